"""A wrong option, variable or file causes one line that says how to correct it."""

import pytest

# The arguments of `mcp-trio`, and the line.
OPTIONS = {
    "run server.py --http abc": "--http: expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got 'abc'",
    "run server.py --http 70000": "--http: expected a port between 0 and 65535, got '70000'",
    "run server.py --http 127.0.0.1:": "--http: expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got '127.0.0.1:'",
    "run server.py --http [::1:80": "--http: expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got '[::1:80'",
    "run server.py --ws :x": "--ws: expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got ':x'",
    "run server.py --console x": "--console: expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got 'x'",
    "run server.py --port x": "-p/--port: expected a port between 0 and 65535, got 'x'",
    "run server.py --http-engine uvicorn": "--http-engine: expected one of native, hypercorn, got 'uvicorn'",
    "run server.py --transport tcp": "-t/--transport: expected one of stdio, http, streamable-http, sse, ws, got 'tcp'",
    "run server.py -t stdio -p 80": "--port does not apply to --transport stdio; leave it out, or use --transport http",
    "run server.py -p 80 --http 80": "--port and --http both say where to serve; use one of them",
    "run server.py --path /a?b": "--path: expected a path such as /mcp, got '/a?b'",
    "run server.py --path /sse": "--path: expected a path that the server does not use itself, got '/sse'; choose another one, such as /mcp",
    "run server.py --public-url mcp.example.org": "--public-url: expected the endpoint's URL as clients know it, such as https://mcp.example.org/mcp, got 'mcp.example.org'",
    "run server.py --public-url https://a.org:x/": "--public-url: expected the endpoint's URL as clients know it, such as https://mcp.example.org/mcp, got 'https://a.org:x/'",
    "run server.py --allowed-host https://a.org": "--allowed-host: expected a host such as mcp.example.org, with or without a port, or * for any, got 'https://a.org'",
    "run server.py --allowed-host a.org,": "--allowed-host: expected a host such as mcp.example.org, with or without a port, or * for any, got ''",
    "run server.py --allowed-origin a.org": "--allowed-origin: expected an origin such as https://app.example.org, or * for any, got 'a.org'",
    "run server.py --allowed-origin https://a.org/b": "--allowed-origin: expected an origin such as https://app.example.org, or * for any, got 'https://a.org/b'",
    "run server.py --token-file no.txt": "--token-file: cannot read no.txt: No such file or directory; to make a token and its line: mcp-trio token NAME",
    "run server.py --token-file server.py": "--token-file: server.py, line 2: expected NAME SHA256-HEX [SCOPE,SCOPE], as printed by: mcp-trio token NAME",
    "run server.py --http 0 --tls-cert a": "--tls-cert and --tls-key: expected both or neither, got only --tls-cert",
    "run server.py --http 0 --tls-key a": "--tls-cert and --tls-key: expected both or neither, got only --tls-key",
    "run server.py --http 0 --tls-cert a --tls-key b": "--tls-cert: expected a file in PEM format, got 'a', which does not exist",
    "run server.py --grace -1": "--grace: expected a number of seconds such as 5 or 0.5, got '-1'",
    "run server.py --timeout 0": "--timeout: expected more than 0 seconds, got '0'",
    "run server.py --timeout soon": "--timeout: expected a number of seconds such as 5 or 0.5, got 'soon'",
    "run server.py --rate 10": "--rate: expected '10/s', '100/m' or '1000/h', or '10/s:50' with a burst, got '10'",
    "run server.py --max-in-flight 0": "--max-in-flight: expected a whole number of at least 1, got '0'",
    "run server.py --http 0 --worker-timeout 9": "--worker-timeout: expected --workers with it, because only workers are replaced; add --workers 4, or leave out --worker-timeout",
    "run server.py --threads many": "--threads: expected a whole number of at least 1, got 'many'",
    "run server.py --max-result 1M": "--max-result: expected a whole number of at least 1, got '1M'",
    "run server.py --profile small": "--profile: expected one of pocket, got 'small'",
    "run server.py --log-level loud": "--log-level: expected one of debug, info, warning, error, got 'loud'",
    "run server.py --log-format xml": "--log-format: expected one of text, json, got 'xml'",
    "run server.py --log-arguments=yes": "--log-arguments: expected no value, got 'yes'",
    "run server.py --otel=http://a": "--otel: expected no value, got 'http://a'",
    "run server.py --htpp 80": "unrecognized arguments: --htpp 80 (did you mean --http?); see mcp-trio run --help",
    "run server.py --rate": "--rate: expected one argument",
    "inspect server.py --revision 2020-01-01": "--revision: expected one of ",
    "bench server.py --seconds 0": "--seconds: expected more than 0 seconds, got '0'",
    "record -o t.jsonl --listen x server.py": "--listen: expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got 'x'",
    "config server.py --env NOVALUE": "--env: expected KEY=VALUE, got 'NOVALUE'",
    "token ada --scope x,y": "--scope: expected one scope, got 'x,y'; repeat --scope for more",
    "completion tcsh": "SHELL: expected one of bash, zsh, fish, got 'tcsh'",
}

TARGETS = {
    "frobnicate": "expected a command (run, ",
    "run missing.py": "missing.py does not exist (looked in ",
    "run server.py:nothing": "server.py has no 'nothing'; its Server objects are: server.py:server",
    "run https://example.org": "run: expected a SPEC, got a URL; to inspect it, run: mcp-trio inspect https://example.org",
    "run server.py -- --debug": "run: expected only a SPEC, got the arguments '--debug' for it; use environment variables instead",
    "inspect http://": "expected a URL such as http://127.0.0.1:8000/mcp, got 'http://': it has no host",
    "inspect http://127.0.0.1:99999/mcp": "got 'http://127.0.0.1:99999/mcp': Port out of range 0-65535",
    "inspect -- nothing-of-this-name": "nothing-of-this-name cannot be started: No such file or directory",
    "show missing.jsonl": "missing.jsonl cannot be read: No such file or directory",
    "call server.py": "call: expected a server and a tool, for example: mcp-trio call server.py add a=1 b=2",
    "call server.py add a": "expected KEY=VALUE, got 'a'; the arguments of add are: a",
    "call server.py add a=x": "a: expected integer, got 'x'",
    "call server.py add a=@missing": "a=@missing: cannot read the file missing: No such file or directory; for the text itself: ",
    "call server.py add a:=nope": "a:=nope: expected JSON: ",
    "call server.py add --json [1]": "--json: expected a JSON object: ",
}

VARIABLES = {
    "MCP_TRIO_HTTP=abc": "MCP_TRIO_HTTP: expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got 'abc'",
    "MCP_TRIO_OTEL=maybe": "MCP_TRIO_OTEL: expected 1 or 0, got 'maybe'",
    "MCP_TRIO_RATE=x": "MCP_TRIO_RATE: expected '10/s', '100/m' or '1000/h', or '10/s:50' with a burst, got 'x'",
    "MCP_TRIO_ALLOWED_HOST=a.org,b c": "MCP_TRIO_ALLOWED_HOST: expected a host such as mcp.example.org, with or without a port, or * for any, got 'b c'",
    "MCP_TRIO_PUBLIC_URL=x": "MCP_TRIO_PUBLIC_URL: expected the endpoint's URL as clients know it, such as https://mcp.example.org/mcp, got 'x'",
}


def assert_says(answer, says):
    """Check that a command has failed with only this line on stderr."""
    code, out, err = answer
    assert (code, out.replace("printed at import\n", "")) == (2, "")
    lines = [
        line
        for line in err.splitlines()
        if " at import" not in line and "chmod 600" not in line
    ]
    assert len(lines) == 1, err
    assert lines[0].startswith("mcp-trio: error: ")
    assert says in lines[0]


@pytest.mark.parametrize(("line", "says"), OPTIONS.items(), ids=OPTIONS)
def test_a_wrong_option_is_named_in_the_error(here, line, says):
    assert_says(here(*line.split()), says)


@pytest.mark.parametrize(("line", "says"), TARGETS.items(), ids=TARGETS)
def test_a_wrong_target_or_argument_is_named_in_the_error(here, line, says):
    assert_says(here(*line.split()), says)


@pytest.mark.parametrize(("variable", "says"), VARIABLES.items(), ids=VARIABLES)
def test_a_wrong_variable_is_named_in_the_error(here, monkeypatch, variable, says):
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    assert_says(here("run", "server.py"), says)


def test_words_between_commas_may_have_spaces(here, monkeypatch):
    """The server starts, and ends as its input does."""
    monkeypatch.setenv("MCP_TRIO_ALLOWED_HOST", "a.org, b.org:8000")
    assert_says(here("run", "server.py", "--rate", "x"), "--rate: ")
