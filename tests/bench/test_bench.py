"""The command bench: its measurements, its report, and its errors."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mcp_trio
from mcp_trio.bench.load import Load, Run
from mcp_trio.bench.report import Report, duration
from mcp_trio.bench.target import reach, recorded, request
from mcp_trio.bench.transports import (
    HttpLoadConnection,
    LoadRequest,
    StdioLoadConnection,
    WebSocketLoadConnection,
)
from mcp_trio.cli.main import main
from mcp_trio.load_spec import UsageError
from mcp_trio.trace import format

SERVER = """
from mcp_trio import Context, Server, ToolError
server = Server("small", version="1")

@server.tool
async def add(a: int, b: int) -> str:
    return str(a + b)

@server.tool
async def fail() -> str:
    raise ToolError("not today")

@server.tool
async def ask(ctx: Context) -> str:
    return str(await ctx.elicit("Sure?", bool))

@server.tool
async def progress(ctx: Context) -> str:
    await ctx.progress(1, 2)
    return "done"
"""
# Broken servers: each reads a line, and answers it in its own way.
ECHOES = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
TALKS = "print('hello')"
ENDS = "import sys; sys.stdin.readline()"
REFUSES = """
import sys, json
id = json.loads(sys.stdin.readline())["id"]
print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "go away"}}), flush=True)
sys.stdin.read()
"""
LEAVES = """
import sys, json
opening = json.loads(sys.stdin.readline())
result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "leaves", "version": "1"}}
print(json.dumps({"jsonrpc": "2.0", "id": opening["id"], "result": result}), flush=True)
sys.stdin.readline(), sys.stdin.readline()
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(mcp_trio.__file__).parents[1])}
OLDER, NEWEST = "2025-11-25", "2026-07-28"
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
WAYS = [("http", OLDER), ("http", NEWEST), ("ws", OLDER), ("ws", NEWEST)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the small server over HTTP and WebSocket. Yields host and port."""
    command = [sys.executable, "-m", "mcp_trio", "run", "server.py", "--http", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield re.search(r"//(\S+)/mcp", process.stderr.readline())[1]
        finally:
            process.terminate()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mcp_trio",
        "bench",
        "--seconds",
        "0.1",
        *arguments,
    ]
    return subprocess.run(
        command,
        capture_output=True,
        timeout=60,
        check=False,
        env=ENVIRONMENT,
        text=True,
    )


# The command


@pytest.mark.slow
def test_a_server_on_standard_input_and_output_is_measured(folder: Path) -> None:
    done = run("--at-once", "1,20", "server.py", "add", "a=1", "b=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "small 1: add a=1 b=2, 2025-11-25" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["1", "20"]
    assert "start to first reply: " in done.stdout
    assert "memory: " in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("revision", [OLDER, NEWEST])
def test_all_figures_are_available_as_json(folder: Path, revision: str) -> None:
    command = [sys.executable, "-m", "mcp_trio", "run", "server.py"]
    done = run(
        "--json",
        "--at-once",
        "7",
        "--revision",
        revision,
        "add",
        "a=1",
        "b=2",
        "--",
        *command,
    )
    report = json.loads(done.stdout)
    assert (report["server"], report["revision"], report["load"]) == (
        "small 1",
        revision,
        "add a=1 b=2",
    )
    [row] = report["runs"]
    assert row["at_once"] == 7
    assert row["calls"] > 100
    assert row["rate"] == pytest.approx(row["calls"] / row["seconds"])
    assert 0 < row["p50"] <= row["p90"] <= row["p99"] <= row["longest"] < 1
    assert row["errors"] == {}
    assert 0 < row["load_took"] < 1.5
    assert report["start_up"] > 0.01
    if sys.platform == "linux":
        assert all(size > 10**7 for size in report["memory"])
        assert row["server_took"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "revision"), WAYS)
def test_a_server_at_a_url_is_measured(
    folder: Path, scheme: str, revision: str
) -> None:
    with serving(folder) as address:
        done = run(
            "--json",
            "--revision",
            revision,
            f"{scheme}://{address}/mcp",
            "add",
            "a=1",
            "b=2",
        )
    report = json.loads(done.stdout)
    assert [row["at_once"] for row in report["runs"]] == (
        [1, 16] if scheme == "http" else [1, 50]
    )
    assert all(row["calls"] > 50 and not row["errors"] for row in report["runs"])
    assert report["start_up"] is None


@pytest.mark.slow
def test_without_a_tool_it_lists_the_tools(folder: Path) -> None:
    done = run("--at-once", "1", "server.py")
    assert "small 1: tools/list, 2025-11-25" in done.stdout


@pytest.mark.slow
def test_calls_that_fail_are_reported_and_do_not_count_as_throughput(
    folder: Path,
) -> None:
    done = run("--at-once", "3", "server.py", "fail")
    assert done.returncode == 1
    rate, *_ = done.stdout.splitlines()[2].split()[1:]
    assert rate == "0"
    assert re.search(
        r"^error, [\d,]+ of 3 at once: isError: not today$", done.stdout, re.MULTILINE
    )


@pytest.mark.slow
def test_progress_does_not_count_as_an_answer(folder: Path) -> None:
    done = run("--at-once", "3", "--json", "server.py", "progress")
    assert json.loads(done.stdout)["runs"][0]["errors"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--", sys.executable, "-c", ECHOES],
            "this is not an MCP server: it sends back what it receives",
        ),
        (
            ["--", sys.executable, "-c", TALKS],
            "this is not an MCP server: it sent b'hello'",
        ),
        (["--", sys.executable, "-c", ENDS], "the server has ended the conversation"),
        (
            ["--", sys.executable, "-c", REFUSES],
            "the server answered with an error: go away",
        ),
        (["--", sys.executable, "-c", LEAVES], "the server has ended the conversation"),
        (
            ["--", "no-such-command"],
            "no-such-command cannot be started: No such file or directory",
        ),
        (
            ["server.py", "nosuch"],
            "there is no tool 'nosuch'; the tools are: add, fail, ask, progress",
        ),
        (["server.py", "add", "a=x"], "a: expected integer, got 'x'"),
        (
            ["http://127.0.0.1:9/mcp"],
            "http://127.0.0.1:9/mcp cannot be reached: Connection refused",
        ),
        (
            ["https://127.0.0.1:9/mcp"],
            "https://127.0.0.1:9/mcp: expected an http or ws URL, as bench does not support TLS",
        ),
        (
            ["--trace", "no.jsonl", "server.py"],
            "no.jsonl cannot be read: No such file or directory",
        ),
    ],
)
def test_an_unusable_target_is_reported_in_one_line(
    folder: Path, arguments: list[str], says: str
) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"mcp-trio: error: {says}"


def test_the_number_of_requests_at_once_is_at_least_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "--at-once", "1,0"])
    assert left.value.code == 2
    assert "expected numbers such as 1,16, got '1,0'" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.slow
def test_a_chart_is_drawn(folder: Path) -> None:
    done = run(
        "--at-once", "1,5", "--svg", "chart.svg", "server.py", "add", "a=1", "b=2"
    )
    assert done.returncode == 0
    drawn = (folder / "chart.svg").read_text()
    assert all(
        text in drawn for text in ("small 1: add a=1 b=2", "5 at once", "a second")
    )


@pytest.mark.integration
@pytest.mark.slow
def test_without_a_chart_the_figures_are_printed(folder: Path) -> None:
    done = run(
        "--at-once", "1", "--seconds", "0.1", "--svg", "no/such/chart.svg", "server.py"
    )
    assert (done.returncode, "calls/s" in done.stdout) == (2, True)
    assert (
        done.stderr
        == "mcp-trio: error: No such file or directory: 'no/such/chart.svg'\n"
    )


def test_a_chart_without_matplotlib_names_the_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp_trio.bench.report import chart

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        UsageError, match=r"matplotlib: pip install 'mcp_trio\[charts\]'"
    ):
        chart(tmp_path / "chart.svg", "title", {"a": 1.0}, ["1"], ours=0)


# A trace as the load


def trace(*lines: tuple[Any, object], path: str = "t.jsonl") -> format.Trace:
    header = format.Header(mcp_trace=1, revision=OLDER, transport="stdio")
    return format.Trace(
        header,
        [format.line(0, side, msgspec.json.encode(message)) for side, message in lines],
        Path(path),
    )


def asks(id: int, method: str = "tools/list", **params: object) -> tuple[str, object]:
    return "client", {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def answers(id: int, **result: object) -> tuple[str, object]:
    return "server", {"jsonrpc": "2.0", "id": id, "result": result}


def test_the_requests_of_a_trace_that_were_answered_are_repeated() -> None:
    told = ("client", {"jsonrpc": "2.0", "method": "notifications/initialized"})
    failed = (
        "server",
        {"jsonrpc": "2.0", "id": 3, "error": {"code": -32601, "message": "no"}},
    )
    opened = [asks(0, "initialize"), answers(0), told]
    found = recorded(
        trace(
            *opened,
            asks(1, "ping"),
            asks(2),
            answers(2),
            asks(3, "x"),
            failed,
            answers(1),
        ),
        OLDER,
    )
    assert [json.loads(one.message(9))["method"] for one in found] == [
        "ping",
        "tools/list",
        "x",
    ]
    assert [one.fails for one in found] == [False, False, True]


def test_a_trace_in_which_the_server_asks_cannot_be_a_load() -> None:
    asked = (
        "server",
        {"jsonrpc": "2.0", "id": "a", "method": "elicitation/create", "params": {}},
    )
    with pytest.raises(
        UsageError,
        match=r"t.jsonl cannot be used as a load: the server sends elicitation/create requests in it",
    ):
        recorded(trace(asks(1), asked, answers(1)), OLDER)
    with pytest.raises(
        UsageError,
        match=r"t.jsonl cannot be used as a load: no request in it was answered",
    ):
        recorded(trace(asks(1)), OLDER)


@pytest.mark.slow
def test_the_calls_of_a_trace_are_the_load(folder: Path) -> None:
    called = asks(1, "tools/call", **ADD)
    bad = asks(2, "tools/call", name="fail", arguments={})
    lines = [
        asks(0, "initialize"),
        answers(0),
        called,
        answers(1),
        bad,
        answers(2, isError=True),
    ]
    (folder / "t.jsonl").write_bytes(trace(*lines).dump())
    done = run("--json", "--at-once", "4", "--trace", "t.jsonl", "server.py")
    [row] = json.loads(done.stdout)["runs"]
    assert row["calls"] > 50
    assert row["errors"] == {}


# The load


@pytest.mark.slow
def test_a_tool_that_asks_fails(folder: Path) -> None:
    """A load cannot answer questions, and does not declare that it can."""
    command = [sys.executable, "-m", "mcp_trio", "run", "server.py"]
    ask = request("tools/call", {"name": "ask", "arguments": {}}, OLDER)
    with reach(command, OLDER, env=ENVIRONMENT) as server:
        run = server.load([ask], 1, 5, calls=1)
    assert len(run.errors) == 1
    assert "elicitation" in next(iter(run.errors))


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 500])
def test_a_load_stops_after_the_number_of_calls(folder: Path, calls: int) -> None:
    command = [sys.executable, "-m", "mcp_trio", "run", "server.py"]
    with reach(command, OLDER, env=ENVIRONMENT) as server:
        run = server.load([request("tools/call", ADD, OLDER)], 100, 60, calls)
        assert run.calls == calls
        assert [tool["name"] for tool in server.tools()] == [
            "add",
            "fail",
            "ask",
            "progress",
        ]


@pytest.mark.slow
def test_large_messages_fill_the_pipe_and_are_all_answered(folder: Path) -> None:
    """More data than a pipe holds is sent in both directions."""
    program = """
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.flush()
"""
    echo = [sys.executable, "-c", program]
    from mcp_trio.bench.target import spawned

    with spawned(echo) as process:
        wire = StdioLoadConnection(process.stdout.fileno(), process.stdin.fileno())
        load = Load(
            [wire], [LoadRequest(b'{"text":"%b"' % (b"x" * 300_000), fails=True)], 10
        )
        run = load.drive(60, 40, lambda done: None, lambda: None)
    assert (run.calls, run.errors, run.server_took) == (40, {}, None)


def test_the_report_names_the_bottleneck() -> None:
    run = Run(1, 1.0, 1, 1.0, 0, 0, 0, 0, {}, load_took=0.95, server_took=0.5)
    assert run.is_limited
    assert Report("t", OLDER, runs=[run]).remarks() == [
        "with 1 at once the load itself took 95% of a core: it is the limit"
    ]
    assert not msgspec.structs.replace(run, server_took=0.99).is_limited
    assert not msgspec.structs.replace(run, load_took=0.5).is_limited
    assert msgspec.structs.replace(run, server_took=None).is_limited


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (0.000045, "45 µs"), (float("nan"), "-")],
)
def test_times_are_written_with_a_fitting_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# The connections, against a socket that sends exactly the given bytes


@contextmanager
def listening() -> Iterator[tuple[str, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield f"127.0.0.1:{listener.getsockname()[1]}", listener


def accepted(listener: socket.socket) -> socket.socket:
    connection, _ = listener.accept()
    connection.settimeout(10)
    return connection


def read_when_ready(wire: HttpLoadConnection) -> list[bytes]:
    come: list[bytes] = []
    while not come:
        come = wire.read()
    return come


ASKED = [(LoadRequest(b'{"jsonrpc":"2.0","method":"ping"'), 5)]
DONE = b'{"jsonrpc":"2.0","id":5,"result":{}}'
PLAIN = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(DONE), DONE)
)
EVENTS = b"event: message\ndata: %b\n\n" % DONE


@pytest.mark.parametrize(
    ("answer", "come"),
    [
        (PLAIN, [DONE]),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN, [DONE]),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENTS), EVENTS),
            [DONE],
        ),
    ],
)
def test_http_answers_are_read_whatever_their_form(
    answer: bytes, come: list[bytes]
) -> None:
    with listening() as (address, listener):
        wire = HttpLoadConnection(f"http://{address}/mcp?x=1")
        with accepted(listener) as server:
            wire.write(ASKED)
            assert server.recv(2**16).startswith(
                b"POST /mcp?x=1 HTTP/1.1\r\nHost: " + address.encode()
            )
            server.sendall(answer)
            assert read_when_ready(wire) == come
        wire.close()


def test_an_http_error_status_is_an_error() -> None:
    with listening() as (address, listener):
        wire = HttpLoadConnection(f"http://{address}/mcp")
        with accepted(listener) as server:
            wire.write(ASKED)
            server.sendall(
                b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow"
            )
            [failed] = read_when_ready(wire)
        wire.close()
    assert json.loads(failed) == {
        "id": 5,
        "error": {"code": 0, "message": "HTTP 429: slow"},
    }


def test_messages_before_the_answer_do_not_count_as_answers() -> None:
    with listening() as (address, listener):
        wire = HttpLoadConnection(f"http://{address}/mcp")
        with accepted(listener) as server:
            wire.write(ASKED)
            server.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            assert select.select([wire.read_fd], [], [], 10)[0]
            assert wire.read() == []
            server.sendall(PLAIN)
            assert read_when_ready(wire) == [DONE]
        wire.close()


def test_a_load_continues_when_a_server_refuses_a_request_before_reading_it() -> None:
    """The server closes the connection while the client still writes."""

    def refuse_and_answer() -> None:
        with accepted(listener) as server:
            server.recv(10)
            server.sendall(
                b"HTTP/1.1 413 Content Too Large\r\n"
                b"Connection: close\r\nContent-Length: 0\r\n\r\n"
            )
        with accepted(listener):
            pass

    with listening() as (address, listener):
        wires = [HttpLoadConnection(f"http://{address}/mcp")]
        answering = threading.Thread(target=refuse_and_answer)
        answering.start()
        run = Load(wires, [LoadRequest(b'{"text":"%b"' % (b"x" * 10**7))], 1).drive(
            10, 1, lambda done: None, lambda: None
        )
        answering.join()
        wires[0].close()
    assert run.calls == 0
    assert list(run.errors.values()) == [1]


@pytest.mark.parametrize("closing", [b"Connection: close\r\n", b""])
def test_a_closed_connection_is_reopened(closing: bytes) -> None:
    """If the server did not announce the close, the latest request has failed."""
    with listening() as (address, listener):
        wire = HttpLoadConnection(f"http://{address}/mcp")
        before = wire.read_fd
        with accepted(listener) as server:
            wire.write(ASKED)
            server.recv(2**16)
            server.sendall(
                PLAIN.replace(b"Content-Length", closing + b"Content-Length")
                if closing
                else b""
            )
        [come] = read_when_ready(wire)
        assert ("error" in json.loads(come)) is not bool(closing)
        assert wire.read_fd != before
        with accepted(listener) as server:
            wire.write(ASKED)
            server.recv(2**16)
            server.sendall(PLAIN)
            assert read_when_ready(wire) == [DONE]
        wire.close()


def test_a_reply_that_is_not_http_is_reported() -> None:
    with listening() as (address, listener):
        wire = HttpLoadConnection(f"http://{address}/mcp")
        with accepted(listener) as server:
            wire.write(ASKED)
            server.sendall(b"hello\r\n")
            with pytest.raises(UsageError, match="the response is not valid HTTP"):
                read_when_ready(wire)
        wire.close()


def test_a_websocket_that_is_refused_is_reported(folder: Path) -> None:
    with listening() as (address, listener):

        def refuse() -> None:
            with accepted(listener) as server:
                server.recv(2**16)
                server.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

        answering = threading.Thread(target=refuse)
        answering.start()
        with pytest.raises(
            UsageError,
            match="the server rejected the WebSocket handshake with status 404",
        ):
            WebSocketLoadConnection(f"ws://{address}/mcp")
        answering.join()


def test_http_sse_is_refused_with_an_explanation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "http://127.0.0.1:9/sse"]) == 2
    assert "got HTTP+SSE" in capsys.readouterr().err
