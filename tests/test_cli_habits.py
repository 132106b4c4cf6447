"""What people are used to from other command lines, and what they mistype."""

import pytest
from test_cli import folder, here  # noqa: F401  (fixtures)

from mcp_trio import cli
from mcp_trio.cli_types import Parser
from mcp_trio.loading import Problem


def where(*arguments):
    """Where `run` with these flags would serve."""
    parser = Parser()
    cli._run_arguments(parser)
    options = parser.parse_args(arguments)
    cli._fill_from_environment(options)
    cli._settle_where(options)
    return options.stdio, options.http, options.ws


@pytest.fixture(autouse=True)
def without_settings(monkeypatch):
    for name in [*cli.SETTINGS, *cli.SWITCHES]:
        monkeypatch.delenv(f"MCP_TRIO_{name.upper()}", raising=False)


# Where to serve, in other words


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("", (False, None, None)),
        ("-t stdio", (True, None, None)),
        ("-t http -p 9000 --host 0.0.0.0", (False, "[0.0.0.0]:9000", None)),
        ("--transport streamable-http --port 9000", (False, "[127.0.0.1]:9000", None)),
        ("-t sse", (False, "[127.0.0.1]:8000", None)),
        ("-t ws -p 0 -H ::1", (False, None, "[::1]:0")),
        ("-p 9000", (False, "[127.0.0.1]:9000", None)),
        ("--host localhost", (False, "[localhost]:8000", None)),
        ("--stdio --http 1 --ws 2", (True, "1", "2")),
    ],
)
def test_transport_port_and_host_are_understood(line, place):
    assert where(*line.split()) == place


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-t http --http 8000", "--transport and --http both say where to serve"),
        ("-p 1 --ws 8000", "--port and --ws both say where to serve"),
        ("--stdio --host a", "--host and --stdio both say where to serve"),
        ("-t stdio -p 8000", "--transport stdio has no --port; leave it out, or give --transport http"),
    ],
)
def test_contradictions_are_told(line, says):
    with pytest.raises(Problem, match=says):
        where(*line.split())


@pytest.mark.parametrize(
    ("line", "variables", "place"),
    [
        ("", {"TRANSPORT": "http", "PORT": "9000"}, (False, "[127.0.0.1]:9000", None)),
        ("-t ws", {"PORT": "9000"}, (False, None, "[127.0.0.1]:9000")),
        ("-p 1", {"HTTP": "8000"}, (False, "[127.0.0.1]:1", None)),
        ("--http 8000", {"PORT": "9000"}, (False, "8000", None)),
        ("--ws 8001", {"HTTP": "8000"}, (False, "8000", "8001")),
        ("--http 8000", {"STDIO": "1"}, (True, "8000", None)),
        ("--http 8000", {"STDIO": "0"}, (False, "8000", None)),
    ],
)
def test_a_flag_wins_over_variables_that_say_it_in_another_way(monkeypatch, line, variables, place):
    for name, value in variables.items():
        monkeypatch.setenv(f"MCP_TRIO_{name}", value)
    assert where(*line.split()) == place


def test_a_switch_of_the_environment_is_1_or_0(monkeypatch):
    monkeypatch.setenv("MCP_TRIO_CORS", "perhaps")
    with pytest.raises(Problem, match="MCP_TRIO_CORS: 1 or 0 is wanted, not 'perhaps'"):
        where()


# Mistakes

MISTAKES = {
    "a command": ("inspekt", "did you mean inspect?"),
    "a flag": ("run --relaod", "unrecognized arguments: --relaod (did you mean --reload?)"),
    "a flag with a value": ("run --prot=8000", "(did you mean --port?)"),
    "a flag of call": ("call --jsn {} server.py add", "(did you mean --json?)"),
    "a port": ("run -p http", "--port: a port is wanted, a number up to 65535 such as 8000, not 'http'"),
    "a transport": ("run -t htp", "stdio or http or streamable-http or sse or ws is wanted, not 'htp'"),
    "reload of nothing": ("run --reload", "--reload wants a SPEC, as in: mcp-trio run server.py --reload"),
}


@pytest.mark.parametrize(("line", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_what_to_type_instead(here, line, says):  # noqa: F811
    code, out, err = here(*line.split())
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
