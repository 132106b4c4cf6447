"""Replays: timing, matching, and findings, on each transport."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw

from mcp_trio import Context, Server
from mcp_trio.load_spec import UsageError
from mcp_trio.testing import replay as assert_same
from mcp_trio.trace import suite as runs
from mcp_trio.trace import targets as hosts
from mcp_trio.trace.format import BadTrace, Header, Http, Line, Trace, read
from mcp_trio.trace.replay import (
    ALL_AT_ONCE,
    BYTE_BY_BYTE,
    LINE_BY_LINE,
    Replay,
    transports_of,
    ways,
)
from mcp_trio.transports.http.server import serve_http
from mcp_trio.transports.http.settings import HttpSettings

OPENING, STATELESS = "2025-11-25", "2026-07-28"
END = object()
INITIALIZE = {
    "protocolVersion": OPENING,
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "x", "version": "1"},
}


def line(sender, what, **parts):
    if what is END:
        return Line(t=0, sender=sender, ends=True, **parts)
    if isinstance(what, bytes):
        return Line(t=0, sender=sender, raw=what.decode("latin-1"), **parts)
    return Line(t=0, sender=sender, message=Raw(json.dumps(what).encode()), **parts)


def trace(*lines, **header):
    """Return a trace of pairs: (">", client message), ("<", server message)."""
    header = Header(
        mcp_trace=1, **{"transport": "stdio", "revision": OPENING, **header}
    )
    senders = {">": "client", "<": "server"}
    return Trace(
        header,
        [
            one if isinstance(one, Line) else line(senders[one[0]], one[1])
            for one in lines
        ],
    )


def asks(id, method="tools/call", **params):
    return ">", {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def tells(method, **params):
    return ">", {"jsonrpc": "2.0", "method": method, "params": params}


def answers(id, **result):
    return "<", {"jsonrpc": "2.0", "id": id, "result": result}


def notes(method, **params):
    return "<", {"jsonrpc": "2.0", "method": method, "params": params}


def progress(token, done):
    return notes("notifications/progress", progressToken=token, progress=done)


class Scripted:
    """A server with fixed replies to each line of the client."""

    end_reason = "the server has ended the conversation"

    def __init__(self, *says):
        self._put, self.received = trio.open_memory_channel(math.inf)
        self._says = list(says)
        self.sent = []

    async def send(self, one):
        self.sent.append(one)
        for what in self._says.pop(0) if self._says else ():
            await self._put.send(
                what if isinstance(what, Line) else line("server", what[1])
            )
            if not isinstance(what, Line) and what[1] is END:
                self._put.close()

    async def end_input(self):
        self._put.close()


async def run(recorded, *says, way=LINE_BY_LINE, **options):
    done = Replay(recorded, "stdio", way, 10.0, **options)
    link = Scripted(*says)
    await done.through(link)
    return done, link


async def replay(recorded, target, over, way=LINE_BY_LINE, timeout=10.0):
    done = Replay(recorded, over, way, timeout)
    await done.against(target)
    return done


async def found(recorded, *says, **options):
    done, _ = await run(recorded, *says, **options)
    return [told(finding) for finding in done.findings]


def told(finding):
    difference = finding.difference
    return (
        finding.line,
        f"{difference.path} {difference.kind}".strip() if difference else finding.what,
    )


# What cannot pass


async def test_an_answer_has_to_be_asked_for_first(autojump_clock):
    recorded = trace(asks(1), answers(1), asks(1), answers(1), (">", END), ("<", END))
    too_early = "the answer to 1 arrived before its request, or again"
    found_so = await found(recorded, [answers(1), answers(1)], [], [("<", END)])
    assert [what.partition(":")[0] for _, what in found_so] == [
        too_early,
        "the answer to 1 did not arrive within 10 s",
    ]


async def test_a_server_that_ends_before_its_client_is_reported(autojump_clock):
    recorded = trace(
        asks(1), answers(1), tells("notifications/x"), (">", END), ("<", END)
    )
    ended = "the server has ended the conversation before the client did"
    assert (4, ended) in await found(recorded, [answers(1)], [("<", END)])


async def test_what_says_much_but_not_what_is_awaited_does_not_go_on_for_ever(
    autojump_clock,
):
    class Chatty(Scripted):
        async def send(self, one):
            await super().send(one)
            while True:
                await trio.sleep(1)
                await self._put.send(line("server", progress("p", 1)[1]))

    done = Replay(trace(asks(1), answers(1)), "stdio", timeout=5.0)
    await done.through(Chatty())
    assert "could not be sent within 5 s" in [told(one)[1] for one in done.findings]


@pytest.mark.parametrize("id", [2, "1", None])
async def test_an_answer_by_http_has_the_id_that_it_was_asked_by(id, autojump_clock):
    def post(answered):
        head = Http(status=200, headers={"content-type": "application/json"})
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        asked = line("client", ping, stream=1, http=Http(method="POST", path="/mcp"))
        return asked, line(
            "server",
            {"jsonrpc": "2.0", "id": answered, "result": {}},
            stream=1,
            http=head,
        )

    done = Replay(trace(*post(1), transport="http"), "http")
    link = Scripted([post(id)[1]])
    await done.through(link)
    assert [told(one)[1].split()[0] for one in done.findings] == ["$.id"]


async def test_the_messages_in_reply_to_one_post_keep_their_order(autojump_clock):
    def event(message):
        return line("server", message[1], stream=1)

    log, head = notes("notifications/message", level="info", data="x"), Http(status=200)
    asked = line("client", asks(1)[1], stream=1, http=Http(method="POST", path="/mcp"))
    opened = Line(t=0, sender="server", stream=1, http=head)
    done = Replay(
        trace(asked, opened, event(log), event(answers(1)), transport="http"), "http"
    )
    await done.through(Scripted([opened, event(answers(1)), event(log)]))
    assert [told(one)[1] for one in done.findings] == [
        "notifications/message arrived after line 5 of the same request"
    ]


async def test_a_trace_in_which_the_client_says_nothing_cannot_be_replayed(folder):
    runs.write(Path("silent.jsonl"), trace(server="counter.py"))
    [result] = await runs.replay_all([Path("silent.jsonl")], None)
    assert result.problems == [
        "silent.jsonl: nothing to replay: the client sends nothing"
    ]


async def test_a_trace_of_other_transports_is_counted(folder):
    runs.write(
        Path("elsewhere.jsonl"), trace(asks(1), over=["http"], server="counter.py")
    )
    results = await runs.replay_all(
        [Path("elsewhere.jsonl"), Path("one.jsonl")], None, ["stdio"]
    )
    assert runs.summary(results).endswith(
        "no differences, 1 trace skipped because of their transports"
    )


async def silence(stream):
    await trio.sleep_forever()


async def test_one_that_listens_and_says_nothing_is_a_problem(
    folder, monkeypatch, nursery
):
    monkeypatch.setattr(hosts, "OPEN_TIMEOUT", 0.05)
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, silence, [listener])
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/sse"
    [result] = await runs.replay_all([Path("one.jsonl")], url)
    assert [problem.rpartition(": ")[2] for problem in result.problems] == [
        "connected, but the server did not open a conversation within 0.05 s"
    ]


# What is sent, and when


async def test_a_line_is_sent_when_every_line_of_the_servers_before_it_has_come(
    autojump_clock,
):
    recorded = trace(asks(1), asks(2), answers(2), answers(1), asks(3), answers(3))
    done, link = await run(recorded, [], [answers(2), answers(1)], [answers(3)])
    assert done.findings == []
    assert [msgspec.json.decode(one.message)["id"] for one in link.sent] == [1, 2, 3]
    done, link = await run(recorded, [], [answers(2)])
    assert [told(one) for one in done.findings] == [
        (5, "the answer to 1 did not arrive within 10 s")
    ]
    assert len(link.sent) == 2


async def test_all_at_once_everything_is_one_write(autojump_clock):
    recorded = trace(asks(1), answers(1), asks(2), answers(2), (">", END), ("<", END))
    done, link = await run(
        recorded, [answers(1), answers(2)], [("<", END)], way=ALL_AT_ONCE
    )
    assert done.findings == []
    assert link.sent[0].data.count(b"\n") == 1
    assert [one.ends for one in link.sent] == [False, True]


async def test_bytes_are_sent_as_they_were_recorded(autojump_clock):
    odd = Line(
        t=0,
        sender="client",
        message=Raw(b'{ "id":1,  "id" : 1.0e0, "method":"\\u0070ing"}'),
    )
    _, link = await run(trace(odd, (">", b"\xff not JSON")), [], [])
    assert [one.data for one in link.sent] == [bytes(odd.message), b"\xff not JSON"]


# Matching messages


async def test_answers_are_matched_by_id_and_only_their_own_order_says_something(
    autojump_clock,
):
    recorded = trace(asks(1), asks("1"), answers(1, x=1), answers("1", x=2))
    assert await found(recorded, [], [answers("1", x=2), answers(1, x=1)]) == []
    assert await found(recorded, [], [answers("1", x=1), answers(1, x=1)]) == [
        (5, "$.result.x")
    ]


async def test_an_id_that_is_used_again_is_matched_with_the_earliest_that_is_open(
    autojump_clock,
):
    recorded = trace(asks(1), answers(1, x=1), asks(1), answers(1, x=2))
    assert await found(recorded, [answers(1, x=1)], [answers(1, x=3)]) == [
        (5, "$.result.x")
    ]


async def test_errors_without_an_id_are_matched_in_their_order(autojump_clock):
    def error(code):
        return "<", {"jsonrpc": "2.0", "id": None, "error": {"code": code}}

    recorded = trace((">", b"a"), (">", b"b"), error(1), error(2))
    assert await found(recorded, [error(1)], [error(2)]) == []
    assert await found(recorded, [error(1)], [error(3)]) == [(5, "$.error.code")]


async def test_notifications_are_matched_by_what_they_are_about(autojump_clock):
    told_of = [
        notes("notifications/resources/updated", uri="a:1"),
        notes("notifications/resources/updated", uri="a:2"),
        notes("x", _meta={"io.modelcontextprotocol/subscriptionId": 1}, n=1),
        notes("x", _meta={"io.modelcontextprotocol/subscriptionId": 2}, n=2),
        progress("a", 1),
        progress("b", 1),
    ]
    assert await found(trace(asks(1), *told_of), list(reversed(told_of))) == []


async def test_the_messages_of_one_request_must_keep_their_order(autojump_clock):
    recorded = trace(
        asks(1, _meta={"progressToken": "t"}),
        progress("t", 1),
        answers(1),
        asks(2),
        answers(2),
    )
    assert await found(recorded, [progress("t", 1), answers(1)], [answers(2)]) == []
    late = 'notifications/progress about "t" arrived after line 4 of the same request'
    assert await found(recorded, [answers(1), progress("t", 1)], [answers(2)]) == [
        (3, late)
    ]


async def test_a_subscription_is_confirmed_before_its_notifications(autojump_clock):
    mine = {"io.modelcontextprotocol/subscriptionId": 7}
    first, second = notes("acknowledged", _meta=mine), notes("changed", _meta=mine)
    recorded = trace(asks(7, "subscriptions/listen"), first, second)
    assert [number for number, _ in await found(recorded, [second, first])] == [3]


async def test_batches_are_sets_of_replies(autojump_clock):
    one, two = answers(1, x=1)[1], answers(2, x=2)[1]
    recorded = trace((">", [asks(1)[1], asks(2)[1]]), ("<", [one, two]))
    assert await found(recorded, [("<", [two, one])]) == []
    assert await found(recorded, [("<", [answers(2, x=3)[1], one])]) == [
        (3, "$[1].result.x")
    ]
    missing = [
        (
            2,
            'a batch: the answer to 1 arrived, but is not in the trace: [{"jsonrpc": "2.0"',
        )
    ]
    came = await found(recorded, [("<", [one])])
    assert [
        (number, what[: len(missing[0][1])]) for number, what in came[:1]
    ] == missing
    assert came[1] == (
        3,
        "a batch: the answer to 1, the answer to 2 did not arrive within 10 s",
    )


# What may differ


async def test_questions_may_have_other_ids_which_the_client_repeats(autojump_clock):
    recorded = trace(
        asks(1),
        ("<", {"jsonrpc": "2.0", "id": "q1", "method": "roots/list"}),
        (">", {"jsonrpc": "2.0", "id": "q1", "result": {"roots": []}}),
        answers(1),
    )
    done, link = await run(
        recorded,
        [("<", {"jsonrpc": "2.0", "id": 99, "method": "roots/list"})],
        [answers(1)],
    )
    assert done.findings == []
    assert msgspec.json.decode(link.sent[1].message) == {
        "jsonrpc": "2.0",
        "id": 99,
        "result": {"roots": []},
    }


async def test_questions_in_a_batch_may_have_other_ids_too(autojump_clock):
    def batch(id):
        question = {"jsonrpc": "2.0", "id": id, "method": "roots/list"}
        return "<", [question, answers(1)[1]]

    recorded = trace(
        asks(1),
        batch("q1"),
        (">", {"jsonrpc": "2.0", "id": "q1", "result": {"roots": []}}),
    )
    done, link = await run(recorded, [batch(99)])
    assert done.findings == []
    assert msgspec.json.decode(link.sent[1].message)["id"] == 99


async def test_what_the_server_takes_back_or_refuses_is_known_by_its_new_id(
    autojump_clock,
):
    question = {"jsonrpc": "2.0", "id": "q1", "method": "roots/list"}
    refused = ("<", {"jsonrpc": "2.0", "id": "q1", "error": {"code": 1}})
    recorded = trace(
        asks(1),
        ("<", question),
        notes("notifications/cancelled", requestId="q1"),
        refused,
    )
    says = [
        ("<", {**question, "id": 5}),
        notes("notifications/cancelled", requestId=5),
        ("<", {**refused[1], "id": 5}),
    ]
    assert await found(recorded, says) == []


async def test_cursors_and_states_may_be_other_ones_which_the_client_repeats(
    autojump_clock,
):
    recorded = trace(
        asks(1, "tools/list"),
        answers(1, nextCursor="old"),
        asks(2, "tools/list", cursor="old"),
        answers(2, requestState="s"),
        asks(3, "tools/call", requestState="s", other="s"),
        answers(3),
    )
    done, link = await run(
        recorded,
        [answers(1, nextCursor="new")],
        [answers(2, requestState="t")],
        [answers(3)],
    )
    assert done.findings == []
    sent = [msgspec.json.decode(one.message)["params"] for one in link.sent]
    assert sent == [{}, {"cursor": "new"}, {"requestState": "t", "other": "s"}]
    assert await found(recorded, [answers(1)]) == [
        (3, "$.result.nextCursor is missing"),
        (5, "the answer to 2 did not arrive within 10 s"),
    ]


async def test_what_the_header_says_may_differ(autojump_clock):
    recorded = trace(
        asks(1),
        answers(1, serverInfo={"version": "1"}, a=[{"t": 1}]),
        ignore=["/result/serverInfo/version", "/result/a/*/t"],
    )
    assert (
        await found(recorded, [answers(1, serverInfo={"version": "2"}, a=[{"t": 2}])])
        == []
    )
    assert await found(
        recorded, [answers(1, serverInfo={"version": "2"}, a=[{"u": 2}])]
    ) == [(3, "$.result.a[0].u was not expected")]


# What is wrong


async def test_an_answer_that_arrives_twice_is_reported(autojump_clock):
    recorded = trace(asks(1), answers(1), asks(2), answers(2))
    assert await found(recorded, [answers(1), answers(1)], [answers(2)]) == [
        (3, 'the answer to 1 arrived again: {"jsonrpc": "2.0", "id": 1, "result": {}}')
    ]


async def test_messages_after_the_last_line_are_reported(autojump_clock):
    recorded = trace(asks(1), answers(1))
    [(number, what)] = await found(
        recorded, [answers(1), notes("notifications/message", data="more")]
    )
    assert number == 3
    assert what.startswith("notifications/message arrived, but is not in the trace: {")


async def test_garbage_is_reported_where_the_trace_has_none(autojump_clock):
    assert await found(
        trace(asks(1), answers(1)), [("<", b"Traceback!"), answers(1)]
    ) == [(2, "data that is not JSON arrived, but is not in the trace: Traceback!")]
    assert await found(
        trace(asks(1), ("<", b"Traceback!")), [("<", b"Traceback?")]
    ) == [(3, "$")]


async def test_a_method_that_is_not_text_is_reported(autojump_clock):
    [(_, what)] = await found(
        trace(asks(1), answers(1)), [("<", {"method": 5}), answers(1)]
    )
    assert what == '5 arrived, but is not in the trace: {"method": 5}'


async def test_what_a_server_says_cannot_act_on_the_terminal(folder):
    runs.write(Path("one.jsonl"), trace(asks(1), answers(1)))
    [result] = await runs.replay_all([Path("one.jsonl")], command("colours"))
    assert result.findings
    assert all(row.isprintable() for row in runs.report_lines(result))


async def test_a_server_that_ends_is_reported_with_the_expected_message(autojump_clock):
    recorded = trace(asks(1), answers(1), asks(2), notes("a"), answers(2))
    assert await found(recorded, [answers(1)], [("<", END)]) == [
        (5, "a never arrived: the server has ended the conversation"),
        (6, "the answer to 2 never arrived: the server has ended the conversation"),
    ]


async def test_a_missing_message_is_named_as_it_was_recorded(autojump_clock):
    recorded = trace(
        asks(1),
        ("<", {"jsonrpc": "2.0", "id": 7, "method": "ping"}),
        (">", {"jsonrpc": "2.0", "id": 7, "result": {}}),
        notes("notifications/cancelled", requestId=5),
    )
    came = await found(
        recorded, [("<", {"jsonrpc": "2.0", "id": 5, "method": "ping"})], []
    )
    assert came == [(5, "notifications/cancelled about 5 did not arrive within 10 s")]


async def test_a_server_may_end_after_the_last_line_or_where_the_trace_has_it(
    autojump_clock,
):
    recorded = trace(asks(1), answers(1), (">", END), ("<", END))
    assert await found(recorded, [answers(1)], [("<", END)]) == []
    assert await found(trace(asks(1), answers(1)), [answers(1), ("<", END)]) == []
    assert await found(recorded, [answers(1)], []) == [
        (5, "the end did not arrive within 10 s")
    ]


async def test_the_end_of_the_input_may_bring_answers_that_were_owed(autojump_clock):
    class Listening(Scripted):
        async def end_input(self):
            await self._put.send(line("server", answers(1)[1]))
            await super().end_input()

    for recorded, expected in (
        (trace(asks(1)), []),
        (
            trace(asks(1), tells("notifications/cancelled", requestId=1)),
            ["the answer to 1 arrived"],
        ),
    ):
        done = Replay(recorded, "stdio", LINE_BY_LINE, 10)
        await done.through(Listening())
        assert [one.what[:23] for one in done.findings] == expected


# What a trace holds on, and how


def test_a_trace_holds_on_all_that_its_revision_has():
    assert transports_of(trace(asks(1))) == ["stdio", "http", "sse", "ws"]
    assert transports_of(trace(asks(1), revision=STATELESS)) == ["stdio", "http", "ws"]
    assert transports_of(trace(asks(1), over=["ws"])) == ["ws"]
    assert transports_of(trace((">", b"raw"))) == ["stdio"]
    head = Line(t=0, sender="server", stream=1, http=Http(status=202))
    assert transports_of(trace(head, transport="http")) == ["http"]


@pytest.mark.parametrize(
    "lines",
    [
        [asks(1, cursor="x")],
        [asks(1, requestState="x")],
        [(">", {"jsonrpc": "2.0", "id": 1, "result": {}})],
        [(">", [{"jsonrpc": "2.0", "id": 1, "result": {}}])],
    ],
)
def test_what_depends_on_what_the_server_has_said_is_not_sent_all_at_once(lines):
    assert ways(trace(*lines), "stdio") == (LINE_BY_LINE, BYTE_BY_BYTE)


def test_on_stdio_a_trace_is_sent_in_three_ways():
    assert ways(trace(asks(1)), "stdio") == (LINE_BY_LINE, BYTE_BY_BYTE, ALL_AT_ONCE)
    assert ways(trace(asks(1), paced=True), "stdio") == (LINE_BY_LINE, BYTE_BY_BYTE)
    assert ways(trace(asks(1)), "http") == (LINE_BY_LINE,)


# A server on each transport


@dataclass
class Name:
    name: str


def make_server():
    server = Server("small", version="1")

    @server.tool
    async def count(ctx: Context, to: int) -> str:
        for step in range(to):
            await ctx.progress(step + 1)
        return f"to {to}"

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Name)
        return f"Hello {answer.content.name}"

    return server


def opening():
    result = {
        "protocolVersion": OPENING,
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "small", "version": "1"},
    }
    return [
        asks(0, "initialize", **INITIALIZE),
        answers(0, **result),
        tells("notifications/initialized"),
    ]


def content(text):
    return {"content": [{"type": "text", "text": text}], "isError": False}


def counting():
    return trace(
        *opening(),
        asks(1, name="count", arguments={"to": 2}, _meta={"progressToken": 1}),
        progress(1, 1),
        progress(1, 2),
        answers(1, **content("to 2")),
        asks(2, "ping"),
        answers(2),
    )


def asking():
    question = {
        "message": "Who?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
        "mode": "form",
    }
    return trace(
        *opening(),
        asks(1, name="greet", arguments={}),
        (
            "<",
            {
                "jsonrpc": "2.0",
                "id": "theirs",
                "method": "elicitation/create",
                "params": question,
            },
        ),
        (
            ">",
            {
                "jsonrpc": "2.0",
                "id": "theirs",
                "result": {"action": "accept", "content": {"name": "Ada"}},
            },
        ),
        answers(1, **content("Hello Ada")),
    )


@pytest.mark.parametrize("over", ["stdio", "http", "sse", "ws"])
@pytest.mark.parametrize("make", [counting, asking])
async def test_a_trace_holds_on_each_transport(over, make):
    for way in ways(make(), over):
        done = await replay(make(), make_server(), over, way)
        assert list(map(told, done.findings)) == []


@pytest.mark.parametrize("over", ["stdio", "http", "sse", "ws"])
async def test_a_difference_is_found_on_each_transport(over):
    recorded = counting()
    recorded.lines[6] = line("server", answers(1, **content("to 3"))[1])
    done = await replay(recorded, make_server(), over)
    assert list(map(told, done.findings)) == [(8, "$.result.content[0].text")]
    assert done.findings[0].difference.values() == ('"to 3"', '"to 2"')


async def test_a_stateless_trace_is_sent_over_http_with_the_heads_that_it_wants():
    meta = {
        f"io.modelcontextprotocol/{key}": value
        for key, value in {
            "protocolVersion": STATELESS,
            "clientCapabilities": {},
        }.items()
    }
    result = {
        "resultType": "complete",
        **content("to 0"),
        "_meta": {
            "io.modelcontextprotocol/serverInfo": {"name": "small", "version": "1"}
        },
    }
    recorded = trace(
        asks(1, name="count", arguments={"to": 0}, _meta=meta),
        answers(1, **result),
        revision=STATELESS,
    )
    done = await replay(recorded, make_server(), "http")
    assert list(map(told, done.findings)) == []


async def test_over_http_nothing_overtakes_a_notification(nursery):
    """A server that accepts a notification late has not seen the next request."""
    seen = []

    async def serve(stream):
        async with stream:
            while chunk := await stream.receive_some():
                body = chunk.partition(b"\r\n\r\n")[2]
                seen.append(msgspec.json.decode(body)["method"])
                if seen[-1] == "slow":
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    assert seen == ["slow"]
                    await stream.send_all(
                        b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
                    )
                else:
                    answer = json.dumps(answers(1)[1]).encode()
                    await stream.send_all(
                        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
                        % (len(answer), answer)
                    )

    [listener] = await nursery.start(
        partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
    )
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    done = await replay(trace(tells("slow"), asks(1, "quick"), answers(1)), url, "http")
    assert list(map(told, done.findings)) == []
    assert seen == ["slow", "quick"]


# HTTP as it was recorded

ACCEPT = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


def exchange(
    stream,
    what,
    answer,
    *,
    method="POST",
    status=200,
    headers=None,
    session="recorded",
    **sent,
):
    head = Http(
        method=method,
        path="/mcp",
        headers={**ACCEPT, **({"mcp-session-id": session} if session else {}), **sent},
    )
    asked = (
        line("client", what, stream=stream, http=head)
        if what
        else Line(t=0, sender="client", stream=stream, http=head)
    )
    reply = Http(status=status, headers=headers or {})
    return [
        asked,
        line("server", answer, stream=stream, http=reply)
        if answer
        else Line(t=0, sender="server", stream=stream, http=reply),
    ]


def over_http(*lines):
    ask, reply, tell = (what for _, what in opening())
    json_headers = {"content-type": "application/json"}
    return trace(
        *exchange(
            1,
            ask,
            reply,
            headers={**json_headers, "mcp-session-id": "recorded"},
            session="",
        ),
        *exchange(2, tell, None, status=202),
        *lines,
        *exchange(9, None, None, method="DELETE", status=204),
        transport="http",
    )


async def test_http_is_replayed_as_it_was_recorded_with_the_new_session():
    listening = exchange(
        3, None, None, method="GET", headers={"content-type": "text/event-stream"}
    )
    priming = Line(
        t=0, sender="server", stream=3, event={"id": "recorded-0", "data": ""}
    )
    closed = Line(t=0, sender="client", stream=3, ends=True)
    pinged = exchange(
        4,
        asks(5, "ping")[1],
        answers(5)[1],
        headers={"content-type": "application/json"},
    )
    done = await replay(
        over_http(*listening, priming, *pinged, closed), make_server(), "http"
    )
    assert list(map(told, done.findings)) == []


async def test_a_url_is_asked_under_its_own_path(nursery):
    server = make_server()
    pinged = exchange(
        4,
        asks(5, "ping")[1],
        answers(5)[1],
        headers={"content-type": "application/json"},
    )
    async with server.running():
        start = partial(
            serve_http,
            server,
            "127.0.0.1",
            0,
            stopping=trio.Event(),
            settings=HttpSettings(path="/v2/mcp"),
        )
        [(host, port)] = await nursery.start(start)
        done = await replay(over_http(*pinged), f"http://{host}:{port}/v2/mcp", "http")
    assert list(map(told, done.findings)) == []


async def test_a_stream_of_events_has_its_head_its_events_and_its_end():
    asked, head = exchange(
        3, asks(5, name="count", arguments={"to": 1}, _meta={"progressToken": 1})[1], None,
        headers={"content-type": "text/event-stream"},
    )  # fmt: skip
    events = [
        Line(t=0, sender="server", stream=3, event={"id": "x-0", "data": ""}),
        line(
            "server",
            progress(1, 1)[1],
            stream=3,
            event={"id": "x-1", "event": "message"},
        ),
        line(
            "server",
            answers(5, **content("to 1"))[1],
            stream=3,
            event={"id": "x-2", "event": "message"},
        ),
        Line(t=0, sender="server", stream=3, ends=True),
    ]
    done = await replay(over_http(asked, head, *events), make_server(), "http")
    assert list(map(told, done.findings)) == []


@pytest.mark.parametrize(
    "event",
    [
        {"id": "x-2", "event": "other"},
        {"id": "x-2", "event": "message", "retry": "5"},
        {"event": "message"},
    ],
    ids=["another name", "a time to wait that is not sent", "an id that is not there"],
)
async def test_the_fields_of_an_event_are_compared(event):
    asked, head = exchange(
        3, asks(5, name="count", arguments={"to": 1}, _meta={"progressToken": 1})[1], None,
        headers={"content-type": "text/event-stream"},
    )  # fmt: skip
    first = {"id": "x-1", "event": "message"}
    events = [
        Line(t=0, sender="server", stream=3, event={"id": "x-0", "data": ""}),
        line("server", progress(1, 1)[1], stream=3, event=first),
        line("server", answers(5, **content("to 1"))[1], stream=3, event=event),
        Line(t=0, sender="server", stream=3, ends=True),
    ]
    done = await replay(over_http(asked, head, *events), make_server(), "http")
    assert [found.what for found in done.findings] == ["event"]


async def test_statuses_and_the_headers_that_were_recorded_are_compared():
    wrong = exchange(
        3,
        asks(5, "ping")[1],
        answers(5)[1],
        status=201,
        headers={"content-type": "text/plain", "allow": "x"},
    )
    done = await replay(over_http(*wrong), make_server(), "http")
    seen = [(finding.line, finding.what, told(finding)[1]) for finding in done.findings]
    assert seen == [
        (7, "http", "$.status"),
        (7, "http", "$.headers.content-type"),
        (7, "http", "$.headers.allow is missing"),
    ]


async def test_bytes_that_are_not_http_are_sent_unchanged():
    garbage = [
        line("client", b"GARBAGE\r\n\r\n", stream=3),
        Line(t=0, sender="server", stream=3, http=Http(status=400)),
    ]
    done = await replay(over_http(*garbage), make_server(), "http")
    assert [(one.line, one.what) for one in done.findings] == [
        (7, "http"),
        (7, "message"),
    ]


async def test_several_connections_of_a_websocket_are_kept_apart():
    def on(stream, lines):
        return [
            msgspec.structs.replace(one, stream=stream) for one in trace(*lines).lines
        ]

    session = [*opening(), asks(1, "ping"), answers(1)]
    first, second = on(msgspec.UNSET, session), on(2, session)
    recorded = trace(
        *first[:3],
        *second[:3],
        *second[3:],
        line("client", END, stream=2),
        *first[3:],
        transport="ws",
    )
    done = await replay(recorded, make_server(), "ws")
    assert list(map(told, done.findings)) == []


# Targets that fail

SCRIPTS = {
    "dies": "import sys; sys.stdin.readline(); sys.exit(3)",
    "babbles": "print('Hello!', flush=True); input()",
    "colours": r"""print("\x1b]0;title\x07\x9b31m\n" + r'{"method": "\u202e"}', flush=True); input()""",
    "hangs": "import time; time.sleep(60)",
}


def command(script):
    return [sys.executable, "-c", SCRIPTS[script]]


async def test_a_process_that_dies_is_reported_with_its_exit_code():
    done = await replay(trace(asks(1), answers(1)), command("dies"), "stdio")
    assert list(map(told, done.findings)) == [
        (
            3,
            "the answer to 1 never arrived: the server has ended the conversation (its process ended with exit code 3)",
        )
    ]


async def test_a_process_that_hangs_is_reported_and_ended():
    done = await replay(
        trace(asks(1), answers(1)), command("hangs"), "stdio", timeout=0.05
    )
    assert list(map(told, done.findings)) == [
        (3, "the answer to 1 did not arrive within 0.05 s")
    ]


async def test_a_process_that_sends_endless_output_is_reported():
    done = await replay(trace(asks(1), answers(1)), command("babbles"), "stdio")
    assert told(done.findings[0]) == (
        2,
        "data that is not JSON arrived, but is not in the trace: Hello!",
    )


@pytest.mark.parametrize(
    ("target", "over", "problem"),
    [
        (
            ["/no/such/program"],
            "stdio",
            "/no/such/program cannot be started: No such file or directory",
        ),
        (
            "http://127.0.0.1:1/mcp",
            "http",
            "all attempts to connect to 127.0.0.1:1 failed",
        ),
        (
            "http://127.0.0.1:1/sse",
            "sse",
            "all attempts to connect to 127.0.0.1:1 failed",
        ),
        ("ws://127.0.0.1:1/mcp", "ws", "all attempts to connect to 127.0.0.1:1 failed"),
        ("no_such_file.py", "stdio", "no_such_file.py does not exist"),
    ],
)
async def test_a_target_that_cannot_be_run_is_a_problem(target, over, problem):
    with pytest.raises((UsageError, OSError)) as raised:
        await replay(trace(asks(1), answers(1)), target, over)
    assert str(raised.value).startswith(problem)


# Many


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a server that counts its calls, and a trace of it."""
    (tmp_path / "counter.py").write_text(COUNTER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    runs.write(Path("one.jsonl"), counted(1))
    return tmp_path


COUNTER = """
import itertools, os
from mcp_trio import Server
server = Server("counter", version="1")
asked = itertools.count(1)

@server.tool
async def count() -> str:
    return f"asked {next(asked)}"

@server.tool
async def process() -> dict:
    return {"items": [{"id": os.urandom(8).hex(), "name": "a"}, {"id": os.urandom(8).hex(), "name": "b"}]}
"""


def counted(number, **header):
    ask, reply, tell = opening()
    reply[1]["result"]["serverInfo"]["name"] = "counter"
    call = asks(1, name="count", arguments={})
    return trace(
        ask,
        reply,
        tell,
        call,
        answers(1, **content(f"asked {number}")),
        server="counter.py",
        **header,
    )


async def test_a_server_is_loaded_anew_for_each_replay(folder):
    [result] = await runs.replay_all([Path("one.jsonl")], None)
    assert list(runs.report_lines(result)) == []
    assert runs.summary([result]) == "1 trace, 6 replays, 30 messages, no differences"


async def test_what_is_the_same_everywhere_is_reported_once(folder):
    runs.write(Path("one.jsonl"), counted(2))
    [result] = await runs.replay_all([Path("one.jsonl")], None)
    assert list(runs.report_lines(result)) == [
        "one.jsonl:6: $.result.content[0].text (stdio, http, sse, ws)",
        '    - "asked 2"',
        '    + "asked 1"',
    ]
    assert runs.summary([result]) == "1 trace, 6 replays, 30 messages, 1 difference"
    assert '\x1b[31m- "asked 2"\x1b[0m' in "\n".join(
        runs.report_lines(result, color=True)
    )


async def test_a_trace_is_replayed_only_over_the_transports_that_are_asked_for(folder):
    [result] = await runs.replay_all([Path("one.jsonl")], None, ["stdio", "ws"])
    assert [(run.over, run.way) for run in result.replays] == [
        ("stdio", LINE_BY_LINE),
        ("stdio", BYTE_BY_BYTE),
        ("stdio", ALL_AT_ONCE),
        ("ws", LINE_BY_LINE),
    ]


@pytest.mark.parametrize(
    "server", ["", "npx thing", "https://x.org/", "no_such.py", "/bin/sh"]
)
async def test_a_trace_chooses_no_command_and_no_url(folder, server):
    recorded = counted(1)
    recorded.header.server = server
    runs.write(Path("one.jsonl"), recorded)
    [result] = await runs.replay_all([Path("one.jsonl")], None)
    what = (
        f"was recorded from {server!r}, which is neither a file here nor a module"
        if server
        else "names no server"
    )
    assert result.problems == [f"one.jsonl: {what}; give a target"]


async def test_a_bad_trace_and_a_bad_server_are_reported_and_the_others_are_replayed(
    folder,
):
    Path("bad.jsonl").write_text("{}\n")
    Path("broken.py").write_text("1 / 0\n")
    broken = counted(1, over=["stdio"], paced=True)
    broken.header.server = "broken.py"
    runs.write(Path("broken.jsonl"), broken)
    results = await runs.replay_all(runs.files([folder]), None)
    problems = [problem for result in results for problem in result.problems]
    assert problems[0].endswith(
        "bad.jsonl:1: not the header of a trace: Object missing required field `mcp_trace`"
    )
    assert (
        "broken.jsonl: could not be replayed over stdio: broken.py cannot be imported: ZeroDivisionError"
        in problems[1]
    )
    assert runs.summary(results).startswith(
        "3 traces, 6 replays, 30 messages, no differences, 2 traces could not be run"
    )


async def test_an_update_rewrites_what_differs_and_keeps_what_may(folder):
    recorded = counted(7, ignore=["/result/serverInfo/name"])
    recorded.lines[1] = line(
        "server", {**msgspec.json.decode(recorded.lines[1].message), "gone": True}
    )
    extra = line("server", notes("notifications/message", data="never")[1])
    ended = asks(2, "ping")
    recorded.lines[1:1] = [extra]
    recorded.lines.append(line("client", ended[1]))
    message = msgspec.json.decode(recorded.lines[2].message)
    message["result"]["serverInfo"]["name"] = "another"
    recorded.lines[2] = line("server", message)
    runs.write(Path("one.jsonl"), recorded)
    [result] = await runs.replay_all(
        [Path("one.jsonl")], None, timeout=0.3, patient=True
    )
    assert runs.update(result)
    updated = read(Path("one.jsonl"))
    [opened] = [one for one in updated.lines if b"serverInfo" in bytes(one.message)]
    assert b"another" in bytes(opened.message)
    assert b"gone" not in bytes(opened.message)
    assert not any(b"never" in bytes(one.message) for one in updated.lines)
    assert b"asked 1" in bytes(updated.lines[4].message)
    assert [one.sender for one in updated.lines] == [
        "client",
        "server",
        "client",
        "client",
        "server",
        "client",
        "server",
    ]
    [result] = await runs.replay_all([Path("one.jsonl")], None)
    assert list(runs.report_lines(result)) == []
    assert not runs.update(result)


async def test_an_update_keeps_the_values_that_the_server_chose(folder):
    recorded = trace(
        asks(1), answers(1, nextCursor="old", x=1), asks(2, cursor="old"), answers(2)
    )
    done, _ = await run(recorded, [answers(1, nextCursor="new", x=2)], [answers(2)])
    lines = [msgspec.json.decode(one.message) for one in done.updated().lines]
    assert lines[1]["result"] == {"nextCursor": "old", "x": 2}
    assert lines[2]["params"] == {"cursor": "old"}


async def test_what_came_to_no_end_is_not_updated(folder):
    [result] = await runs.replay_all([Path("one.jsonl")], command("dies"), patient=True)
    assert result.findings
    assert not runs.update(result)
    assert read(Path("one.jsonl")).lines == counted(1).lines


async def test_what_differs_from_one_replay_to_the_next_becomes_a_pattern(folder):
    recorded = counted(1)
    items = {
        "items": [{"id": "recorded", "name": "a"}, {"id": "recorded", "name": "b"}]
    }
    recorded.lines[3:] = trace(
        asks(1, name="process", arguments={}),
        answers(
            1, content=content(json.dumps(items))["content"], structuredContent=items
        ),
    ).lines
    runs.write(Path("one.jsonl"), recorded)
    [first] = await runs.replay_all([Path("one.jsonl")], None, patient=True)
    [second] = await runs.replay_all([Path("one.jsonl")], None, patient=True)
    unstable = runs.stabilise(first, second)
    assert [volatile.pointer for volatile in unstable] == [
        "/result/content/0/text",
        "/result/structuredContent/items/0/id",
        "/result/structuredContent/items/1/id",
    ]
    assert list(read(Path("one.jsonl")).lines[-1].match) == [
        volatile.pointer for volatile in unstable
    ]
    [result] = await runs.replay_all([Path("one.jsonl")], None)
    assert list(runs.report_lines(result)) == []
    assert runs.stabilise(result, result) == []


# In users' tests


async def test_replay_for_ones_own_tests_raises_what_differs(folder):
    runs.write(Path("two.jsonl"), counted(2))
    await assert_same("one.jsonl", "counter.py")
    await assert_same(Path("one.jsonl"), "counter.py", over="ws")
    with pytest.raises(
        AssertionError, match=r"two.jsonl:6: \$.result.content\[0\].text \(stdio\)"
    ):
        await assert_same("two.jsonl", "counter.py")
    runs.write(Path("three.jsonl"), counting())
    await assert_same("three.jsonl", make_server())
    with pytest.raises(BadTrace):
        await assert_same("counter.py", make_server())
