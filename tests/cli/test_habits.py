"""Habits from other command lines, and typing mistakes."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from mcp_trio.cli.main import main
from mcp_trio.cli.options import Parser
from mcp_trio.cli.output import table
from mcp_trio.cli.run_options import (
    SETTINGS,
    SWITCHES,
    fill_from_environment,
    resolve_places,
    run_arguments,
)
from mcp_trio.load_spec import UsageError
from tests.support.command_line import ENVIRONMENT, PATIENCE, command
from tests.support.paths import TRACES


def where(*arguments):
    """Where `run` with these flags would serve."""
    parser = Parser()
    run_arguments(parser)
    options = parser.parse_args(arguments)
    fill_from_environment(options)
    resolve_places(options)
    return options.stdio, options.http, options.ws


@pytest.fixture(autouse=True)
def without_settings(monkeypatch):
    for name in [*SETTINGS, *SWITCHES]:
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
        (
            "-t stdio -p 8000",
            "--port does not apply to --transport stdio; leave it out, or use --tr",
        ),
    ],
)
def test_contradicting_options_are_refused(line, says):
    with pytest.raises(UsageError, match=says):
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
def test_a_flag_wins_over_variables_that_say_it_in_another_way(
    monkeypatch, line, variables, place
):
    for name, value in variables.items():
        monkeypatch.setenv(f"MCP_TRIO_{name}", value)
    assert where(*line.split()) == place


def test_a_switch_of_the_environment_is_1_or_0(monkeypatch):
    monkeypatch.setenv("MCP_TRIO_CORS", "perhaps")
    with pytest.raises(
        UsageError, match="MCP_TRIO_CORS: expected 1 or 0, got 'perhaps'"
    ):
        where()


# What inspect shows


def tool(**about):
    return {
        "tools": [{"name": "f", "inputSchema": {}, **about}],
        "resources": [],
        "resourceTemplates": [],
        "prompts": [],
    }


def shown(capsys, **about):
    print(table(tool(**about)))
    return capsys.readouterr().out


SCHEMA = {
    "properties": {
        "units": {
            "enum": ["metric", "imperial"],
            "default": "metric",
            "description": "of\n  measure",
        },
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
        "any": True,
    },
    "required": ["tags"],
    "$defs": {"Point": {"type": "object"}},
}


def test_inspect_names_types_defaults_and_what_is_required(capsys):
    assert shown(capsys, description="Does\nit.\n\nAt length.", inputSchema=SCHEMA) == (
        "Tools (1)\n"
        "  f        Does it.\n"
        '    units  metric|imperial, default "metric": of measure\n'
        "    tags   array of string, required\n"
        "    at     null|object, default null\n"
        "    any    anything, optional\n"
    )


def test_without_a_terminal_each_entry_is_one_line_of_any_length(capsys):
    assert shown(capsys, description="long " * 100).count("\n") == 2
    assert "\x1b" not in shown(capsys, description="long")


def test_a_strangers_text_moves_no_cursor(capsys):
    out = shown(capsys, name="\x1b[2Jf", description="a\x1b]0;title\x07b\x9bc")
    assert out == "Tools (1)\n  [2Jf  a]0;titlebc\n"


def test_colour_is_for_terminals_and_as_the_environment_wants_it(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1mTools" in shown(capsys)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(capsys)


def at_terminal(folder, *arguments, columns=80, **environment):
    """What a command writes to a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env={
            **ENVIRONMENT,
            "TERM": "xterm",
            "NO_COLOR": "",
            "FORCE_COLOR": "",
            **environment,
            "COLUMNS": str(columns),
        },
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    seen = b""
    try:
        with suppress(OSError):  # Linux reports this only at the end
            while chunk := os.read(ours, 4096):
                seen += chunk
    finally:
        os.close(ours)
        process.wait(PATIENCE)
    return seen.decode().replace("\r\n", "\n")


@pytest.mark.thorough
def test_a_terminal_gets_colours_and_lines_that_fit(tmp_path):
    coloured = at_terminal(tmp_path, "inspect", columns=60)
    assert "\x1b[1mTools (11)\x1b[0m\n" in coloured
    plain = at_terminal(tmp_path, "inspect", columns=60, NO_COLOR="1")
    assert "\x1b" not in plain
    assert plain == re.sub(r"\x1b\[\d+m", "", coloured)
    assert max(map(len, plain.splitlines())) <= 60


# Progress bars


TOLD = """
from mcp_trio import Context, Server
server = Server("a")

@server.tool
async def work(ctx: Context, total: float | None = None) -> str:
    await ctx.progress(1, total, "digging")
    await __import__("trio").sleep(0.3)
    return "done"
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pairs", "far"), [([], "1 digging"), (["total=4"], "1/4 digging")]
)
def test_progress_is_a_bar_that_is_gone_in_the_end(folder, pairs, far):
    (folder / "told.py").write_text(TOLD, encoding="utf-8")
    seen = at_terminal(folder, "call", "told.py", "work", *pairs, NO_COLOR="1")
    assert far in seen
    assert seen.endswith("done\n")
    assert "\x1b[2K" in seen[seen.rindex(far) :]  # the line is erased


@pytest.mark.thorough
def test_replays_and_measurements_have_the_same_bar(tmp_path):
    trace = TRACES / "2025-11-25" / "ping.jsonl"
    (tmp_path / "a.jsonl").write_bytes(trace.read_bytes())
    assert "━ 6/6 replays" in at_terminal(
        tmp_path, "replay", "a.jsonl", "mcp_trio.demo", NO_COLOR="1"
    )
    measured = at_terminal(
        tmp_path,
        "bench",
        "--seconds",
        "0.5",
        "--at-once",
        "1",
        "mcp_trio.demo",
        NO_COLOR="1",
    )
    assert re.search(r"━ 1/1 seconds of measuring", measured)


def test_without_a_terminal_no_bar_is_drawn(folder, here):
    (folder / "told.py").write_text(TOLD, encoding="utf-8")
    assert here("call", "told.py", "work") == (0, "done\n", "")


# Mistakes

MISTAKES = {
    "a command": ("inspekt", "did you mean inspect?"),
    "a flag": (
        "run --relaod",
        "unrecognized arguments: --relaod (did you mean --reload?)",
    ),
    "a flag with a value": ("run --prot=8000", "(did you mean --port?)"),
    "a flag of call": ("call --jsn {} server.py add", "(did you mean --json?)"),
    "a port": (
        "run -p http",
        "error: -p/--port: expected a port between 0 and 65535, got 'http'",
    ),
    "a transport": (
        "run -t htp",
        "expected one of stdio, http, streamable-http, sse, ws, got 'htp' (did you mean",
    ),
    "a call of a tool": (
        "call server.py ad a=1",
        "there is no tool 'ad' (did you mean add?); the tools are: add, wait_for_ever",
    ),
    "nothing given": (
        "call server.py add",
        "add: missing required arguments: a=INTEGER",
    ),
    "no text": (
        "run null.py",
        "null.py cannot be imported: SyntaxError: source code string cannot contain null bytes",
    ),
    "no UTF-8": ("run binary.py", "binary.py, line 1)"),
    "a variable that is empty": (
        "run :",
        "got ':': '' is not a valid name",
    ),
    "a URL to serve": (
        "run http://127.0.0.1:1/mcp",
        "got a URL; to inspect it, run: mcp-trio inspect http://127.0.0.1:1",
    ),
    "a host that is not here": (
        "run server.py -H 192.0.2.1 -p 0",
        "cannot listen on [192.0.2.1]:0: this machine does not have that address; leave",
    ),
    "no certificate": (
        "run server.py --http 0 --tls-cert a --tls-key b",
        "--tls-cert: expected a file in PEM format, got 'a', which does not exist",
    ),
    "a bad certificate": (
        "run server.py --http 0 --tls-cert server.py --tls-key server.py",
        "--tls-cert server.py, --tls-key server.py: expected a certificate and its private",
    ),
    "no such port": (
        "inspect http://127.0.0.1:99999/mcp",
        "got 'http://127.0.0.1:99999/mcp': Port out of range 0-65535",
    ),
    "no host": (
        "inspect http:///mcp",
        "expected a URL such as http://127.0.0.1:8000/mcp, got 'http:///mcp': it has no host",
    ),
    "no URL": (
        "call ws://[::1/mcp add",
        "got 'ws://[::1/mcp': Invalid IPv6 URL",
    ),
    "nobody at HTTP": (
        "inspect http://127.0.0.1:1/mcp",
        "no reply from the server: all attempts to connect to",
    ),
    "nobody at HTTP+SSE": (
        "inspect http://127.0.0.1:1/sse",
        "all attempts to connect to 127.0.0.1:1 failed",
    ),
    "a number for a server": (
        "inspect -- echo 5",
        "this is not an MCP server: it wrote '5', which is not JSON-RPC",
    ),
    "what sends all back": (
        "inspect -- cat",
        "the server answered with an error: Method not found: initialize",
    ),
    "reload of nothing": (
        "run --reload",
        "--reload: expected a SPEC, as the demo does not change; for example: mcp-trio run",
    ),
}


@pytest.mark.parametrize(("line", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_what_to_type_instead(here, folder, line, says):
    (folder / "null.py").write_bytes(b"a\0b")
    (folder / "binary.py").write_bytes(b"\xff\xfe")
    code, out, err = here(*line.split())
    assert (code, out.replace("printed at import\n", "")) == (2, "")
    (told,) = [line for line in err.splitlines() if " at import" not in line]
    assert says in told


EXTRAS = {
    "run server.py --console 0": ("quart_trio", "--console", "console"),
    "run server.py --http 0 --http-engine hypercorn": (
        "hypercorn",
        "--http-engine hypercorn",
        "http2",
    ),
    "run server.py --otel": ("opentelemetry", "--otel", "otel"),
    "run server.py --reload": ("watchfiles", "--reload", "reload"),
    "bench server.py --svg chart.svg": ("matplotlib", "--svg", "charts"),
}


@pytest.mark.parametrize(("line", "needs"), EXTRAS.items(), ids=EXTRAS)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    here, monkeypatch, line, needs
):
    library, option, extra = needs
    monkeypatch.setitem(sys.modules, library, None)
    code, out, err = here(*line.split())
    assert (code, out.replace("printed at import\n", "")) == (2, "")
    told = err.splitlines()[-1]
    assert told == f"mcp-trio: error: {option} needs: pip install 'mcp_trio[{extra}]'"


PORTS = (
    "run server.py --http {}",
    "run server.py --ws {}",
    "run server.py --http {0} --console {0}",
)


@pytest.mark.parametrize("line", [*PORTS, "record -o a.jsonl --listen {}"])
def test_a_port_that_is_taken_is_named(here, folder, line):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = here(*line.format(port).split())
    assert code == 2
    assert (
        f"mcp-trio: error: cannot listen on {port}: the port is in use; choose another "
        "one, or 0 for any free port\n" in err
    )
    assert not (folder / "a.jsonl").exists()


def speaks(answer):
    """Run a program that answers the first connection with these bytes. Yields its
    port.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with listener, listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(answer)

    threading.Thread(target=serve).start()
    return listener.getsockname()[1]


BROKEN = {
    "another protocol": (
        "http",
        "/mcp",
        b"SSH-2.0\r\n",
        "no reply from the server: the response is not valid HTTP",
    ),
    "another protocol for HTTP+SSE": (
        "http",
        "/sse",
        b"SSH-2.0\r\n",
        "the response is not valid HTTP",
    ),
    "no TLS": (
        "https",
        "/mcp",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "the connection was lost: [SSL",
    ),
    "no TLS for HTTP+SSE": (
        "https",
        "/sse",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "the connection was lost: [SSL",
    ),
    "nothing for HTTP+SSE": (
        "http",
        "/sse",
        b"",
        "the server closed the connection without a response",
    ),
    "a page": (
        "http",
        "/mcp",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<p>\r\n",
        "expected a JSON-RPC message, got: <p>",
    ),
    "another page": (
        "http",
        "/mcp",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        "HTTP 404 no",
    ),
    "no events": (
        "http",
        "/sse",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        "expected an event stream that begins with an endpoint, got HTTP 404",
    ),
}


@pytest.mark.parametrize(
    ("scheme", "path", "answer", "says"), BROKEN.values(), ids=BROKEN
)
def test_a_url_without_an_mcp_server_is_reported_in_one_line(
    here, scheme, path, answer, says
):
    code, out, err = here("inspect", f"{scheme}://127.0.0.1:{speaks(answer)}{path}")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments", [("inspect", "--json"), ("--help",), ("version",)], ids=" ".join
)
def test_a_reader_that_stops_early_is_not_an_error(tmp_path, arguments):
    ours, its = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            command(*arguments),
            stdout=its,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=ENVIRONMENT,
            timeout=PATIENCE,
        )
    finally:
        os.close(its)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


UNAUTHORIZED = (
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, '
    b'"message": "Authorization: expected Bearer TOKEN"}}'
)


def test_errors_of_a_server_are_printed_with_what_to_type(here):
    head = b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(UNAUTHORIZED)
    port = speaks(head + length + UNAUTHORIZED)
    code, out, err = here("inspect", f"http://127.0.0.1:{port}/mcp")
    assert (code, out) == (2, "")
    expected = (
        "expected Bearer TOKEN (-32600); pass a token with --token or MCP_TRIO_TOKEN"
    )
    assert err.rstrip().endswith(expected)


# Options that exclude each other


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "--workers: expected --http or --ws"),
        ("--stdio --http 0", "--workers: expected --http or --ws"),
        ("--http 0 --reload", "--reload: cannot be combined with --workers"),
        ("--http 0 --console 0", "--console: cannot be combined with --workers"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="it has no workers at all")
def test_workers_need_a_port_and_no_option_for_one_process(line, problem, capsys):
    assert main(["run", "--workers", "2", *line.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"mcp-trio: error: {problem}")
    assert "leave out --workers" in error


@pytest.mark.parametrize("number", ["0", "-1", "many", "1.5"])
def test_the_number_of_workers_is_at_least_one(number, capsys):
    with pytest.raises(SystemExit):
        main(["run", "--http", "0", "--workers", number])
    problem = "--workers: expected a whole number of at least 1"
    assert f"mcp-trio: error: {problem}, got {number!r}" in capsys.readouterr().err
