"""Mocks: clients talk to a trace as if the recorded server were there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from msgspec import Raw

import mcp_trio
from mcp_trio.cli.main import main
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.target import connect
from mcp_trio.trace.compare import ABSENT
from mcp_trio.trace.format import Header, Http, Line, Trace, read
from mcp_trio.trace.mock import MockConversation, MockScript
from mcp_trio.trace.mock_server import MockHttpServer
from tests.support.paths import TRACES

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(mcp_trio.__file__).parents[1])}


def trace(*messages, **header):
    """Return a trace of messages, given as (">", message) and ("<", message)."""
    senders = {">": "client", "<": "server"}
    lines = [
        Line(t=0.0, sender=senders[side], message=Raw(json.dumps(message).encode()))
        for side, message in messages
    ]
    return Trace(Header(mcp_trace=1, transport="stdio", **header), lines)


def asks(id, method, **params):
    return ">", {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def calls(id, name, **params):
    return asks(id, "tools/call", name=name, **params)


def answers(id, **result):
    return "<", {"jsonrpc": "2.0", "id": id, "result": result}


def notes(method, **params):
    return "<", {"jsonrpc": "2.0", "method": method, "params": params}


def said(conversation, message):
    """Return the answer of a mock to a message."""
    return [
        (one.request, one.message)
        for one in conversation.receive(json.dumps(message[1]).encode())
    ]


def test_a_request_is_answered_as_in_the_trace_with_the_clients_id_and_token():
    mock = MockConversation(
        MockScript(
            trace(
                calls(7, "wait", _meta={"progressToken": "t"}),
                notes("notifications/progress", progressToken="t", progress=1),
                notes("notifications/message", data="hello"),
                answers(7, content=[]),
                notes("notifications/tools/list_changed"),
            )
        )
    )
    assert said(mock, calls("a", "wait", _meta={"progressToken": 5})) == [
        ("a", notes("notifications/progress", progressToken=5, progress=1)[1]),
        ("a", notes("notifications/message", data="hello")[1]),
        ("a", answers("a", content=[])[1]),
        (ABSENT, notes("notifications/tools/list_changed")[1]),
    ]


def test_each_client_gets_the_answers_to_the_same_request_in_turn():
    script = MockScript(
        trace(calls(1, "n"), answers(1, n=1), calls(2, "n"), answers(2, n=2))
    )
    for _ in range(2):
        mock = MockConversation(script)
        results = [said(mock, calls(9, "n"))[0][1]["result"]["n"] for _ in range(3)]
        assert results == [1, 2, 2]


def test_a_question_waits_for_the_clients_answer():
    question = {"jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "params": {}}
    mock = MockConversation(
        MockScript(
            trace(
                calls(1, "ask"),
                ("<", question),
                (">", {"jsonrpc": "2.0", "id": 3, "result": {"action": "accept"}}),
                answers(1, content=[]),
            )
        )
    )
    assert said(mock, calls(4, "ask")) == [(4, question)]
    reply = (">", {"jsonrpc": "2.0", "id": 3, "result": {"action": "decline"}})
    assert said(mock, reply) == [(4, answers(4, content=[])[1])]
    assert said(mock, reply) == []


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (
            asks(1, "prompts/list"),
            -32601,
            "the trace: expected a recorded method (ping",
        ),
        (
            calls(1, "add", arguments={"a": 2}),
            -32602,
            'the trace: expected tools/call with recorded params ({"name":"add",'
            '"arguments":{"a":1}}), got {"name":"add","arguments":{"a":2}}',
        ),
        ((">", 5), -32600, "expected a JSON-RPC message"),
    ],
)
def test_what_the_trace_does_not_have_is_an_error_that_says_what_it_has(
    message, code, text
):
    mock = MockConversation(
        MockScript(
            trace(
                asks(0, "ping"),
                answers(0),
                calls(1, "add", arguments={"a": 1}),
                answers(1, content=[]),
            )
        )
    )
    [(_, reply)] = said(mock, message)
    assert reply["error"]["code"] == code
    assert reply["error"]["message"].startswith(text)


def test_a_ping_is_always_answered():
    mock = MockConversation(MockScript(trace(calls(1, "a"), answers(1))))
    assert said(mock, asks(2, "ping")) == [(2, answers(2)[1])]


# Over transports


def all_traces():
    """Return the traces whose messages a client can send unchanged."""
    for path in sorted(TRACES.rglob("*.jsonl")):
        if "hostile" not in path.parts and "clients" not in path.parts:
            yield path


@pytest.mark.parametrize("path", list(all_traces())[::12], ids=lambda path: path.stem)
def test_a_mock_says_all_that_the_server_said(path):
    """Each request of a trace, sent again, gets each message that belongs to it."""
    recorded = read(path)
    mock = MockConversation(MockScript(recorded))
    messages = {"client": [], "server": []}
    for line in recorded.lines:
        if line.message and line.data:
            messages[line.sender] += [one for one in line.parts if type(one) is dict]
    told = []
    for message in messages["client"]:
        told += [one.message for one in mock.receive(json.dumps(message).encode())]

    def texts(found):
        return sorted(json.dumps(one, sort_keys=True) for one in found)

    answered = [one for one in messages["server"] if one.get("id", 0) is not None]
    missing = [text for text in texts(answered) if text not in texts(told)]
    assert missing == []


async def conversation(client):
    tools = await client.request("tools/list", {})
    result = await client.call_tool("add", {"a": 1, "b": 2})
    with pytest.raises(RemoteError, match="expected tools/call with recorded params"):
        await client.call_tool("add", {"a": 2, "b": 2})
    return [one["name"] for one in tools["tools"]], result.text


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Return the path of a trace of a small server, recorded on stdio."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "adding.jsonl"
    (tmp_path / "adding.py").write_text(
        "from mcp_trio import Server\n"
        'server = Server("adding", version="1")\n'
        "@server.tool\n"
        "async def add(a: int, b: int) -> str:\n"
        '    """Add."""\n'
        "    return str(a + b)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mcp_trio", "record", "-o", str(path), "adding.py"]

    async def record():
        async with connect(command) as client:
            await client.request("tools/list", {})
            await client.call_tool("add", {"a": 1, "b": 2})

    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    trio.run(record)
    return path


def test_a_client_talks_to_a_mock_on_stdio(recorded):
    async def talk():
        command = [sys.executable, "-m", "mcp_trio", "mock", str(recorded)]
        async with connect(command) as client:
            return await conversation(client)

    assert trio.run(talk) == (["add"], "3")


@pytest.mark.thorough
@pytest.mark.parametrize("streams", [False, True])
def test_clients_talk_to_a_mock_over_http(recorded, streams):
    async def talk():
        script = MockScript(read(recorded))
        script.streams_answers = streams
        async with trio.open_nursery() as nursery:
            url = await nursery.start(MockHttpServer(script).serve, "0")
            found = []
            for _ in range(2):
                async with connect(url) as client:
                    found.append(await conversation(client))
            nursery.cancel_scope.cancel()
        return found

    assert trio.run(talk) == [(["add"], "3")] * 2


async def test_questions_and_announcements_are_sent_over_http():
    question = {"jsonrpc": "2.0", "id": 3, "method": "roots/list"}
    script = MockScript(
        trace(
            asks(0, "initialize"),
            answers(0, protocolVersion="2025-11-25", capabilities={}, serverInfo={}),
            calls(1, "ask", arguments={}),
            ("<", question),
            (">", {"jsonrpc": "2.0", "id": 3, "result": {"roots": []}}),
            answers(1, content=[{"type": "text", "text": "none"}]),
            notes("notifications/tools/list_changed"),
        )
    )

    async def answer(method, params):
        assert method == "roots/list"
        return {"roots": []}

    async with trio.open_nursery() as nursery:
        url = await nursery.start(MockHttpServer(script).serve, "0")
        async with connect(
            url, "2025-11-25", capabilities={"roots": {}}, answer=answer
        ) as client:
            result = await client.call_tool("ask", {})
            assert result.text == "none"
            with trio.fail_after(30):
                await client.hear("notifications/tools/list_changed")
        nursery.cancel_scope.cancel()


async def test_a_session_that_ended_is_not_found():
    script = MockScript(trace(asks(0, "ping"), answers(0)))
    async with trio.open_nursery() as nursery:
        url = await nursery.start(MockHttpServer(script).serve, "0")
        port = int(url.split(":")[2].partition("/")[0])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"PUT /mcp HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 405 ")
        await stream.send_all(
            b"DELETE /mcp HTTP/1.1\r\nHost: x\r\nMcp-Session-Id: no\r\n\r\n"
        )
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 404 ")
        await stream.aclose()
        nursery.cancel_scope.cancel()


def test_answers_are_streamed_if_the_recorded_server_did():
    recorded = trace(asks(0, "ping"), answers(0))
    assert not MockScript(recorded).streams_answers
    first, second = recorded.lines
    first.stream = second.stream = 1
    first.http = Http("POST", "/mcp")
    second.http = Http(status=200, headers={"content-type": "text/event-stream"})
    assert MockScript(recorded).streams_answers


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_the_command_serves_until_a_signal(recorded):
    words = [sys.executable, "-m", "mcp_trio", "mock", str(recorded), "--http", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert said.startswith(f"Serving {recorded} on http://127.0.0.1:")


def test_a_trace_without_a_client_cannot_be_a_mock(tmp_path, capsys):
    path = tmp_path / "empty.jsonl"
    path.write_bytes(trace().dump())
    assert main(["mock", str(path)]) == 2
    assert "nothing to serve: the client sends nothing" in capsys.readouterr().err
