"""Replays find each fault of a server, and name its file, line and path."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec import Raw

from mcp_trio.trace import suite
from mcp_trio.trace.format import Header, Line, Pattern, Trace, read
from mcp_trio.trace.record import Recorder, record_network

FAULTY = str(Path(__file__).with_name("faulty_server.py"))


# On standard input and output


def client(message):
    return Line(t=0.0, sender="client", message=Raw(json.dumps(message).encode()))


def server(message, **fields):
    raw = Raw(json.dumps(message).encode())
    return Line(t=0.0, sender="server", message=raw, **fields)


CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "shop", "_meta": {"progressToken": 5}},
}
PROGRESS = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": 5, "progress": 1},
}
LOG = {
    "jsonrpc": "2.0",
    "method": "notifications/message",
    "params": {"level": "info", "data": "done"},
}
RESULT = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {
        "content": [{"type": "text", "text": "milk"}, {"type": "text", "text": "tea"}],
        "structuredContent": {"count": 2, "made": "2025-12-24", "tags": ["a", "b"]},
        "isError": False,
    },
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
REFUSED = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32601, "message": "no"}}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Return the trace of the server without a fault."""
    monkeypatch.chdir(tmp_path)
    date = {"/result/structuredContent/made": Pattern(type="date")}
    trace = Trace(
        Header(mcp_trace=1, transport="stdio", revision="2025-11-25", paced=True),
        [
            client(CALL),
            server(PROGRESS),
            server(LOG),
            server(RESULT, match=date),
            client(LIST),
            server(REFUSED),
        ],
    )
    suite.write(Path("shop.jsonl"), trace)
    return Path("shop.jsonl")


async def told(path, target, **options):
    [result] = await suite.replay_all([path], target, **options)
    return [*suite.report_lines(result), *suite.remarks(result)]


FAULTS = {
    "a changed value": "shop.jsonl:5: $.result.structuredContent.count (",
    "a missing field": "shop.jsonl:5: $.result.structuredContent.count is missing (",
    "an extra field": "shop.jsonl:5: $.result.structuredContent.size was not expected",
    "another type": (
        "shop.jsonl:5: $.result.structuredContent.count is a string, not a number"
    ),
    "another item": "shop.jsonl:5: $.result.structuredContent.tags[2] was not expected",
    "items in another order": "shop.jsonl:5: $.result.content[0].text (",
    "no date": "shop.jsonl:5: $.result.structuredContent.made is not a date",
    "an answer without its tail": "shop.jsonl:5: $.result.content[1].text (",
    "a request of its own": "shop.jsonl:2: the question ping arrived, but is not in",
    "a line that is not JSON": "shop.jsonl:2: data that is not JSON arrived",
    "a blank line": "shop.jsonl:2: data that is not JSON arrived",
    "a missing notification": (
        "shop.jsonl:3: notifications/progress about 5 did not arrive within"
    ),
    "progress twice": "shop.jsonl:3: notifications/progress about 5 arrived again",
    "an answer too early": (
        "shop.jsonl:4: notifications/message arrived after line 5 of the same request"
    ),
    "no answer": "shop.jsonl:5: the answer to 1 did not arrive within",
    "an early end": (
        "shop.jsonl:5: the answer to 1 never arrived: the server has ended the "
        "conversation (its process ended with exit code 3)"
    ),
    "an error in its place": "shop.jsonl:5: $.result is missing",
    "another id": 'shop.jsonl:4: the answer to "wrong" arrived, but is not in',
    # It arrives before or after the next request is sent.
    "the answer twice": (
        "shop.jsonl:5: the answer to 1 arrived again",
        "shop.jsonl:6: the answer to 1 arrived again",
    ),
    "another error code": "shop.jsonl:7: $.error.code (",
    "a late message": "shop.jsonl:7: notifications/message arrived again",
}


# These are found only when the time for the next message has passed.
SILENT = {"a missing notification", "no answer", "another id"}


async def test_without_a_fault_nothing_is_found(shop):
    assert await told(shop, [sys.executable, FAULTY], over=["stdio"]) == []


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - SILENT))
async def test_a_fault_is_found_and_named(shop, fault):
    settle = 0.5 if fault == "a late message" else 0.0
    rows = await told(shop, [sys.executable, FAULTY, fault], settle=settle)
    assert any(row.startswith(FAULTS[fault]) for row in rows), rows


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(SILENT))
async def test_a_message_that_does_not_come_is_found_and_named(shop, fault):
    rows = await told(shop, [sys.executable, FAULTY, fault], timeout=3.0)
    assert any(row.startswith(FAULTS[fault]) for row in rows), rows


async def test_a_trace_itself_can_wait_for_late_messages(shop):
    trace = read(shop)
    trace.header.settle = 0.5
    suite.write(shop, trace)
    rows = await told(shop, [sys.executable, FAULTY, "a late message"])
    assert rows[0].startswith("shop.jsonl:7: notifications/message arrived again")


CHILD = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
sys.argv = ["faulty", ""]
exec(open({path!r}).read())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups")
async def test_what_a_server_leaves_running_is_killed_and_named(shop):
    command = [sys.executable, "-c", CHILD.format(path=FAULTY)]
    with trio.fail_after(25):  # the other process would run for 30 s
        rows = await told(shop, command)
    assert rows == [
        "shop.jsonl: note: the server has ended, but a process that it started was "
        "still running; it was killed (stdio)"
    ]


# Over HTTP


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}'


def response(status, headers, body):
    return b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n" + body


def plain(body=PONG, *, status=b"200 OK", type=b"application/json", more=0):
    headers = b"Content-Type: %b\r\nContent-Length: %d\r\n" % (type, len(body) + more)
    return response(status, headers, body)


def stream(*messages, ends=True, first=b""):
    headers = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    body = b""
    for message in messages:
        event = first + b"data: %b\n\n" % message
        body += b"%x\r\n%b\r\n" % (len(event), event)
    if ends:
        body += b"0\r\n\r\n"
    return response(b"200 OK", headers, body)


def post(body=PING, path=b"/mcp"):
    return (
        b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (path, len(body), body)
    )


class Served:
    """A server on a port that answers each request with the same bytes, and closes."""

    def __init__(self, nursery, answer):
        self._nursery = nursery
        self.answer = answer
        self.requests = []

    async def start(self):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._nursery.start_soon(trio.serve_listeners, self._serve, [listener])
        port = listener.socket.getsockname()[1]
        return f"http://127.0.0.1:{port}/mcp"

    async def _serve(self, stream):
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = await stream.receive_some()
            if not chunk:
                return
            data += chunk
        self.requests.append(data)
        await stream.send_all(self.answer)
        await stream.aclose()


async def recorded(nursery, url, path, request):
    """Record one exchange through the recorder."""
    recorder = Recorder(path)
    own = await nursery.start(record_network, url, "127.0.0.1:0", recorder)
    port = int(own.split(":")[2].partition("/")[0])
    client = await trio.open_tcp_stream("127.0.0.1", port)
    await client.send_all(request)
    while await client.receive_some():
        pass
    await client.aclose()
    await trio.testing.wait_all_tasks_blocked()


HTTP_FAULTS = {
    "another status": (
        plain(),
        plain(status=b"202 Accepted"),
        "web.jsonl:3: http.status (http)",
    ),
    "another type": (
        plain(),
        plain(type=b"text/plain"),
        "web.jsonl:3: http.headers.content-type (http)",
    ),
    "a short body": (
        plain(),
        plain(more=9),
        "web.jsonl:3: cut was not expected (http)",
    ),
    "a cut stream": (
        stream(NOTE, PONG),
        stream(NOTE, PONG, ends=False),
        "web.jsonl:6: cut was not expected (http)",
    ),
    "a stream that ends before its answer": (
        stream(NOTE, PONG),
        stream(NOTE),
        "web.jsonl:5: the answer to 1 never arrived",
    ),
    "events in another order": (
        stream(NOTE, PONG),
        stream(PONG, NOTE),
        "web.jsonl:4: notifications/message arrived after line 5 of the same request",
    ),
    "an event with another name": (
        stream(PONG),
        stream(PONG, first=b"event: other\n"),
        "web.jsonl:4: event was not expected (http)",
    ),
    "no stream": (
        stream(PONG),
        plain(),
        "web.jsonl:3: http.headers.content-type (http)",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", HTTP_FAULTS)
async def test_a_fault_over_http_is_found_and_named(tmp_path, monkeypatch, fault):
    monkeypatch.chdir(tmp_path)
    good, bad, expected = HTTP_FAULTS[fault]
    path = Path("web.jsonl")
    async with trio.open_nursery() as nursery:
        served = Served(nursery, good)
        url = await served.start()
        await recorded(nursery, url, path, post())
        assert await told(path, url) == []
        served.answer = bad
        rows = await told(path, url, timeout=0.2 if fault == "no stream" else 10.0)
        assert any(row.startswith(expected) for row in rows), rows
        nursery.cancel_scope.cancel()


async def test_a_trace_of_an_older_recorder_says_nothing_about_cuts(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = Path("web.jsonl")
    async with trio.open_nursery() as nursery:
        served = Served(nursery, stream(PONG))
        url = await served.start()
        await recorded(nursery, url, path, post())
        trace = read(path)
        trace.header.cuts = False
        suite.write(path, trace)
        served.answer = stream(PONG, ends=False)
        assert await told(path, url) == []
        nursery.cancel_scope.cancel()


async def test_a_replay_brings_a_token_and_headers_to_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("web.jsonl")
    async with trio.open_nursery() as nursery:
        served = Served(nursery, plain())
        url = await served.start()
        secret = post().replace(b"\r\n", b"\r\nAuthorization: Bearer old-token\r\n", 1)
        await recorded(nursery, url, path, secret)
        assert "old-token" not in path.read_text(encoding="utf-8")
        served.requests.clear()
        await told(path, url)
        assert b"uthorization" not in served.requests[0]
        served.requests.clear()
        credentials = suite.Credentials("new-token", [("X-Team", "a")])
        await told(path, url, credentials=credentials)
        assert b"\r\nauthorization: Bearer new-token\r\n" in served.requests[0]
        assert b"\r\nx-team: a\r\n" in served.requests[0]
        nursery.cancel_scope.cancel()


async def test_a_query_that_was_not_recorded_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("web.jsonl")
    async with trio.open_nursery() as nursery:
        served = Served(nursery, plain())
        url = await served.start()
        await recorded(nursery, url, path, post())
        trace = read(path)
        request = trace.lines[0].http
        request.path = "/other?team=&x=1"
        request.method = "PUT"
        suite.write(path, trace)
        [row] = await told(path, url)
        assert re.match(
            r"web.jsonl: note: the trace does not contain the query values of /other",
            row,
        )
        nursery.cancel_scope.cancel()
