"""The commands record, replay and show: arguments, exit codes and output."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

import mcp_trio
from mcp_trio.cli.main import main
from mcp_trio.client.target import connect
from mcp_trio.trace.format import read
from tests.support.paths import PROJECT, TRACES

SERVER = """
from mcp_trio import Server
server = Server("small", version="1")

@server.tool
async def add(a: int, b: int) -> str:
    print("printed by a tool")
    return str(a + b)
"""
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}
ASKED = [
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": OPENING},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
    },
]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(mcp_trio.__file__).parents[1]),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def command(*arguments):
    return [sys.executable, "-m", "mcp_trio", *arguments]


def run(*arguments):
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        timeout=20,
        check=False,
        env=ENVIRONMENT,
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.fixture(scope="module")
def recording_of_stdio(tmp_path_factory):
    """What a recorder has written, of a conversation on standard input and output."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    words = command(
        "record",
        "-o",
        "one.jsonl",
        "--title",
        "Adding",
        "--client",
        "a test",
        "server.py",
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, **pipes) as recorder:
        for one in ASKED:
            recorder.stdin.write(json.dumps(one).encode() + b"\n")
            recorder.stdin.flush()
            if "id" in one:
                assert json.loads(recorder.stdout.readline())["id"] == one["id"]
    assert recorder.returncode == 0
    return (folder / "one.jsonl").read_bytes()


@pytest.fixture
def recorded(folder, recording_of_stdio):
    (folder / "one.jsonl").write_bytes(recording_of_stdio)
    return folder / "one.jsonl"


@pytest.fixture
def broken(recorded):
    """Return the trace with one character of the server's messages changed."""
    text = recorded.read_text(encoding="utf-8")
    recorded.write_text(text.replace('"text":"3"', '"text":"4"'), encoding="utf-8")
    return recorded


def lines(capsys):
    return capsys.readouterr().out.splitlines()


# record and replay


def test_what_was_recorded_is_replayed_without_a_difference(recorded, capsys):
    header = read(recorded).header
    assert (header.title, header.client, header.server, header.transport) == (
        "Adding",
        "a test",
        "server.py",
        "stdio",
    )
    assert main(["replay", "one.jsonl"]) == 0
    assert lines(capsys)[-1].startswith("1 trace, 6 replays, ")
    assert main(["replay", "."]) == 0
    assert main(["replay", "one.jsonl", "server.py:server", "--over", "stdio"]) == 0
    assert lines(capsys)[-1].endswith("no differences")


def test_a_difference_is_exit_code_1_with_its_path_and_both_values(broken, capsys):
    assert main(["replay", "one.jsonl", "--over", "http"]) == 1
    told = lines(capsys)
    assert told[0].endswith(": $.result.content[0].text (http)")
    assert told[1:3] == ['    - "4"', '    + "3"']
    assert told[3].endswith(", 1 difference")


def test_only_the_report_is_on_standard_output(broken, capsys):
    main(["replay", "one.jsonl"])
    both = capsys.readouterr()
    assert "printed by a tool" not in both.out
    assert "printed by a tool" in both.err
    assert "\x1b" not in both.out


def test_the_log_of_a_server_in_this_process_is_not_shown():
    [trace, *_] = sorted(TRACES.rglob("error-masked.jsonl"))
    done = subprocess.run(
        command("replay", str(trace), "--over", "http"),
        cwd=PROJECT,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.thorough
@pytest.mark.parametrize("quiet", [False, True])
def test_differences_are_in_colour_at_a_terminal_unless_one_wants_none(broken, quiet):
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, **({"NO_COLOR": "1"} if quiet else {})}
    subprocess.run(
        command("replay", "one.jsonl", "--over", "ws"),
        stdout=theirs,
        stderr=theirs,
        env=environment,
        check=False,
    )
    text = os.read(ours, 100_000)
    os.close(ours)
    os.close(theirs)
    assert (b"\x1b[31m" in text) is not quiet
    assert b"1 of 1 replays" not in text


def test_update_takes_what_came(broken, capsys):
    assert main(["replay", "one.jsonl", "--update"]) == 0
    told = lines(capsys)
    assert told[0].startswith("one.jsonl: line ")
    assert told[0].endswith(': $.result.content[0].text changes from "4" to "3"')
    assert told[1] == "one.jsonl: updated"
    assert main(["replay", "one.jsonl"]) == 0


@pytest.mark.slow
def test_stabilise_finds_a_time_that_two_quick_replays_share(recorded, folder, capsys):
    clock = SERVER.replace("str(a + b)", 'time.strftime("%H:%M:%S")')
    (folder / "server.py").write_text(f"import time\n{clock}", encoding="utf-8")
    assert main(["replay", "one.jsonl", "--stabilise"]) == 0
    assert '"regex"' in recorded.read_text() or '"type"' in recorded.read_text()


@pytest.mark.slow
def test_stabilise_ignores_nothing_that_differs_in_the_same_way_each_time(
    broken, capsys
):
    before = Path("one.jsonl").read_bytes()
    assert main(["replay", "one.jsonl", "--stabilise"]) == 1
    assert "ignores" not in "".join(lines(capsys))
    assert Path("one.jsonl").read_bytes() == before


@pytest.mark.thorough
def test_a_command_is_started_for_each_replay(recorded, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    assert main(["replay", "one.jsonl", "--", *command("run", "server.py")]) == 0
    assert lines(capsys)[-1].startswith("1 trace, 3 replays, ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl cannot be read: No such file or directory"),
        (
            ["one.jsonl", "nowhere.py"],
            "could not be replayed over stdio: nowhere.py does not exist",
        ),
        (
            ["one.jsonl", "--", "./nowhere"],
            "could not be replayed over stdio: ./nowhere cannot be started",
        ),
        (
            ["one.jsonl", "--over", "ws", "--", "cat"],
            "nothing to replay: no trace can be replayed over a transport of this",
        ),
        (["empty"], "empty: expected traces (*.jsonl) in this folder, found none"),
        (["server.py"], "expected a trace (*.jsonl, or a folder) before the target"),
        (["a.py", "one.jsonl"], "a.py: expected a trace, which is a file *.jsonl"),
        (
            ["one.jsonl", "--over", "smoke"],
            "--over: expected one of stdio, http, sse, ws, got 'smoke'",
        ),
        (["one.jsonl", "--update", "--stabilise"], "not allowed with"),
        (["one.jsonl", "--timeout", "0"], "more than 0 seconds"),
        (
            ["cut.jsonl"],
            "cut.jsonl:3: truncated in the middle of a line; the 2 lines before it are complete",
        ),
        ([], "the following arguments are required: TRACE"),
    ],
)
def test_what_cannot_be_run_is_exit_code_2_and_says_why(
    recorded, capsys, words, problem
):
    Path("empty").mkdir()
    Path("cut.jsonl").write_bytes(
        b"\n".join(recorded.read_bytes().split(b"\n")[:3])[:-9]
    )
    try:
        code = main(["replay", *words])
    except SystemExit as end:
        code = end.code
    both = capsys.readouterr()
    assert problem in both.out + both.err
    assert "Traceback" not in both.err
    assert code == 2


# record


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["server.py"], "the following arguments are required: -o/--output"),
        (
            ["-o", "new.jsonl", "http://127.0.0.1:1/mcp"],
            "--listen: expected [HOST:]PORT with a URL, got no port",
        ),
        (
            ["-o", "new.jsonl", "--listen", "0", "--", "cat"],
            "--listen: expected a SPEC or a URL, got a command",
        ),
        (["-o", "new.jsonl", "--", "./nowhere"], "cannot record: "),
        (
            ["-o", "no/such/folder/new.jsonl", "server.py"],
            "record: No such file or directory: 'no/such",
        ),
    ],
)
def test_what_cannot_be_recorded_is_exit_code_2_and_leaves_nothing(
    folder, words, problem
):
    done = run("record", *words)
    assert problem in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert done.returncode == 2
    assert not Path("new.jsonl").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "server",
    [["nothing.py"], ["--", sys.executable, "-c", ""]],
    ids=["no file", "no words"],
)
def test_where_nothing_was_said_no_trace_is_left(folder, server):
    run("record", "-o", "new.jsonl", *server)
    assert not Path("new.jsonl").exists()


@contextmanager
def recording(*arguments):
    """Run a recorder that listens on a port. Yields its URL."""
    process = subprocess.Popen(
        command("record", "-o", "new.jsonl", *arguments),
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    try:
        for row in process.stderr:
            if row.startswith(b"Recording"):
                yield row.split()[-1].decode()
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "ws"])
def test_a_server_is_recorded_on_a_port_and_replayed(folder, transport, capsys):
    async def talk(url):
        async with connect(url.replace("http", transport), "2025-11-25") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"

    with recording("--listen", "0", "server.py") as url:
        trio.run(talk, url)
    assert read(Path("new.jsonl")).header.transport == transport
    code = main(["replay", "new.jsonl"])
    assert lines(capsys)[-1].endswith("no differences")
    assert code == 0


# show


def test_show_fits_the_terminal_and_writes_a_page(recorded, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["show", "one.jsonl"]) == 0
    told = lines(capsys)
    assert any("tools/call" in row for row in told)
    assert max(map(len, told)) <= 60
    assert main(["show", "one.jsonl", "--html", "one.html"]) == 0
    assert "tools/call" in Path("one.html").read_text(encoding="utf-8")


def test_of_a_trace_that_is_cut_off_what_there_is_is_shown(recorded, capsys):
    recorded.write_bytes(recorded.read_bytes()[:-20])
    assert main(["show", "one.jsonl"]) == 2
    both = capsys.readouterr()
    assert "tools/call" in both.out
    assert "truncated in the middle of a line" in both.err


def test_show_reports_a_file_that_is_not_a_trace(folder, capsys):
    assert main(["show", "server.py"]) == 2
    assert capsys.readouterr().err.startswith(
        "mcp-trio: error: server.py:1: not the header of a trace: "
    )
    assert main(["show", "nowhere.jsonl"]) == 2
    assert (
        capsys.readouterr().err
        == "mcp-trio: error: nowhere.jsonl cannot be read: No such file or directory\n"
    )
