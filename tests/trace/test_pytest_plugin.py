"""The pytest plugin: three lines of configuration replay a folder of traces."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib.metadata import entry_points

import httptools  # noqa: F401 - imported once, before pytester puts modules back
import pytest

from tests.support.ports import refusing_port

pytest_plugins = ["pytester"]

SERVER = """
from mcp_trio import Server
server = Server("small", version="1")

@server.tool
async def add(a: int, b: int) -> str:
    return str(a + b)
"""
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}
OPENED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}, "logging": {}},
    "serverInfo": {"name": "small", "version": "1"},
}


def trace(answer, **header):
    def line(sender, **message):
        return {"t": 0, "from": sender, "message": {"jsonrpc": "2.0", **message}}

    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    result = {"content": [{"type": "text", "text": answer}], "isError": False}
    rows = [
        {"mcp_trace": 1, "transport": "stdio", "revision": "2025-11-25", **header},
        line("client", id=0, method="initialize", params=OPENING),
        line("server", id=0, result=OPENED),
        line("client", method="notifications/initialized"),
        line("client", id=1, method="tools/call", params=call),
        line("server", id=1, result=result),
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def project(pytester):
    """Return a project with a server, a trace that passes, and a configuration."""
    pytester.makepyfile(server=SERVER)
    (pytester.mkdir("traces") / "adding.jsonl").write_text(trace("3"), encoding="utf-8")
    pytester.makeini("[pytest]\nmcp_traces = traces\nmcp_server = server.py\n")
    return pytester


def run(project, *arguments):
    installed = any(
        one.value == "mcp_trio.trace.pytest_plugin"
        for one in entry_points(group="pytest11")
    )
    plugin = [] if installed else ["-p", "mcp_trio.trace.pytest_plugin"]
    return project.runpytest_inprocess(*plugin, "-p", "no:cacheprovider", *arguments)


def test_each_trace_is_a_test_on_each_of_its_transports(project):
    result = run(project, "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        ["traces/adding.jsonl::stdio PASSED*", "traces/adding.jsonl::ws PASSED*"]
    )


@pytest.mark.slow
def test_the_traces_are_tested_beside_the_test_paths(project):
    project.makeini(
        "[pytest]\nmcp_traces = traces\nmcp_server = server.py:server\ntestpaths = tests\n"
    )
    (project.mkdir("tests") / "test_other.py").write_text(
        "def test_other(): pass\n", encoding="utf-8"
    )
    run(project).assert_outcomes(passed=5)
    run(project, "tests").assert_outcomes(passed=1)
    run(project, "traces").assert_outcomes(passed=4)
    run(project, "traces/adding.jsonl::http").assert_outcomes(passed=1)


def test_a_difference_fails_with_its_path_and_both_values(project):
    (project.path / "traces" / "adding.jsonl").write_text(
        trace("4", over=["stdio"]), encoding="utf-8"
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*adding.jsonl:6: $.result.content?0?.text (stdio)", '    - "4"', '    + "3"']
    )
    assert "Traceback" not in result.stdout.str()


def test_without_a_server_each_trace_is_replayed_against_its_own(project):
    project.makeini("[pytest]\nmcp_traces = traces\n")
    run(project).assert_outcomes(errors=1)
    (project.path / "traces" / "adding.jsonl").write_text(
        trace("3", server="server.py"), encoding="utf-8"
    )
    run(project).assert_outcomes(passed=4)


def test_it_goes_together_with_pytest_trio(project):
    project.makeini(
        "[pytest]\ntrio_mode = true\nmcp_traces = traces\nmcp_server = server.py\ntestpaths = tests\n"
    )
    (project.mkdir("tests") / "test_other.py").write_text(
        "async def test_other(): pass\n", encoding="utf-8"
    )
    run(project).assert_outcomes(passed=5)


@pytest.mark.thorough
def test_a_command_is_tested_on_stdio(project):
    command = shlex.join([sys.executable, "-m", "mcp_trio", "run", "server.py"])
    project.makeini(f"[pytest]\nmcp_traces = traces\nmcp_server = -- {command}\n")
    run(project).assert_outcomes(passed=1)


def test_a_url_is_tested_on_its_transport_and_one_line_says_that_nobody_is_there(
    project,
):
    with refusing_port() as port:
        project.makeini(
            f"[pytest]\nmcp_traces = traces\nmcp_server = http://127.0.0.1:{port}/mcp\n"
        )
        result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*adding.jsonl: could not be replayed over http: *127.0.0.1*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*Error*hosts.py*")


def test_a_server_that_cannot_be_split_into_words_is_an_error(project):
    project.makeini('[pytest]\nmcp_traces = traces\nmcp_server = -- cat "\n')
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*No closing quotation*"])


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_a_folder_without_traces_is_an_error(project, folder):
    project.mkdir("empty")
    project.makeini(f"[pytest]\nmcp_traces =\n    traces\n    {folder}\n")
    result = run(project)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: mcp_traces: expected traces (*.jsonl), found none in *{folder}"]
    )


def test_a_file_that_is_not_a_trace_is_an_error_with_its_place(project):
    (project.path / "traces" / "adding.jsonl").write_text("{}\n", encoding="utf-8")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*adding.jsonl:1: not the header of a trace: *"])


def test_a_server_that_cannot_be_loaded_says_why(project):
    project.makepyfile(server="1 / 0")
    result = run(project, "traces/adding.jsonl::stdio")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*server.py cannot be imported: ZeroDivisionError*"])


def test_without_the_option_it_does_nothing(project):
    project.makeini("[pytest]\n")
    project.makepyfile(test_other="def test_other(): pass")
    run(project).assert_outcomes(passed=1)


def test_loading_it_loads_nothing_that_replays():
    script = "import mcp_trio.trace.pytest_plugin, sys; print([name for name in sys.modules if name.startswith('mcp_trio')])"
    names = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    ).stdout
    assert "mcp_trio.trace.suite" not in names
    assert "mcp_trio.trace.format" not in names
    assert "mcp_trio.testing" not in names
    assert "mcp_trio.client" not in names
