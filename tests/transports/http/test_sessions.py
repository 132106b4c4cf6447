"""Sessions over HTTP: their lifetime, streams, resumption, and questions."""

import json

import pytest
import trio

from mcp_trio import Context, Limits, Principal, Server
from mcp_trio.client.event_parser import EventParser
from mcp_trio.server.request import Environment
from mcp_trio.transports.http.event_stream import (
    HIGH_WATER,
    HISTORY_BYTES,
    EventStream,
)
from mcp_trio.transports.http.sessions import HttpSession, Sessions
from tests.support.http_wire import (
    HEADERS,
    Signals,
    Site,
    Wire,
    make_server,
    message,
    request,
    site,
)

RESUMING = ["2025-03-26", "2025-06-18", "2025-11-25"]


async def call(
    wire: Wire,
    session: dict[str, str],
    name: str,
    arguments: object = None,
    id: object = 7,
) -> None:
    body = message(
        "tools/call",
        {"name": name, "arguments": arguments or {}, "_meta": {"progressToken": "p"}},
        id,
    )
    await wire.send(request("POST", "/mcp", session, json.dumps(body).encode()))


@pytest.mark.parametrize("version", ["2024-10-07", "2024-11-05", *RESUMING])
async def test_a_session_is_used_and_ended(version: str) -> None:
    async with site(make_server()) as there:
        session = await there.open_session(version)
        reply = await there.post(
            message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
            session,
        )
        assert reply.headers["content-type"] == "application/json"
        assert reply.json["id"] == 1
        assert (await there.send("DELETE", "/mcp", session)).status == 204
        assert (await there.post(message("ping"), session)).status == 404
        assert (await there.send("DELETE", "/mcp", session)).status == 404


async def test_a_session_id_is_required_and_must_be_known() -> None:
    async with site(make_server()) as there:
        missing = await there.post(message("ping"))
        assert missing.status == 400
        assert "Mcp-Session-Id" in missing.json["error"]["message"]
        assert (
            await there.post(message("ping"), {"Mcp-Session-Id": "x"})
        ).status == 404
        assert (
            await there.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        ).status == 400


@pytest.mark.parametrize(
    ("version", "status"),
    [(None, 200), ("2025-11-25", 200), ("2025-06-18", 400), ("1900", 400)],
)
async def test_the_version_is_the_one_agreed_on(
    version: str | None, status: int
) -> None:
    async with site(make_server()) as there:
        session = await there.open_session("2025-11-25")
        del session["MCP-Protocol-Version"]
        headers = (
            session if version is None else {**session, "MCP-Protocol-Version": version}
        )
        assert (await there.post(message("ping"), headers)).status == status


async def test_errors_of_requests_are_200_and_invalid_requests_are_400() -> None:
    async with site(make_server()) as there:
        session = await there.open_session()
        assert (await there.post(message("nosuch"), session)).status == 200
        assert (
            await there.post(message("tools/call", {"name": "nosuch"}), session)
        ).status == 200
        for bad in (
            b"{",
            b"[]",
            b"\xff",
            b"[" * 100_000,
            {"id": 1},
            {"jsonrpc": "2.0", "id": None, "method": "ping"},
        ):
            assert (await there.post(bad, session)).status == 400
        assert (await there.post(message("ping"), session)).status == 200


async def test_a_refused_opening_leaves_no_session() -> None:
    async with site(make_server()) as there:
        assert (
            "mcp-session-id"
            not in (await there.post(message("initialize", {}))).headers
        )
        assert b"mcp_sessions 0" in (await there.send("GET", "/metrics")).body


async def test_batches_get_one_array_or_202() -> None:
    async with site(make_server()) as there:
        session = await there.open_session("2025-03-26")
        note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
        calls = [
            message("ping", id=1),
            note,
            message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 2),
        ]
        assert sorted(
            reply["id"] for reply in (await there.post(calls, session)).json
        ) == [1, 2]
        assert (await there.post([note, note], session)).status == 202
        assert (await there.post([], session)).status == 400
        streamed = message(
            "tools/call", {"name": "steps", "_meta": {"progressToken": 1}}, 3
        )
        *steps, replies = (
            await there.post([message("ping", id=4), streamed], session)
        ).messages
        assert [step["method"] for step in steps] == ["notifications/progress"] * 3
        assert sorted(reply["id"] for reply in replies) == [3, 4]


# Streams


@pytest.mark.parametrize("version", ["2024-11-05", *RESUMING])
async def test_a_reply_is_a_stream_when_there_is_something_to_say_before(
    version: str,
) -> None:
    async with site(make_server()) as there:
        session = await there.open_session(version)
        body = message("tools/call", {"name": "steps", "_meta": {"progressToken": "p"}})
        response = await there.post(body, session)
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-store"
        assert [one.get("method", "reply") for one in response.messages] == [
            "notifications/progress"
        ] * 3 + ["reply"]
        assert response.body.startswith(b"id: 0-0\ndata: \n\n") == (
            version == "2025-11-25"
        )
        assert (b"id: " in response.body) == (version in RESUMING)


async def test_a_client_that_accepts_no_stream_gets_only_the_reply() -> None:
    async with site(make_server()) as there:
        session = {**await there.open_session(), "Accept": "application/json"}
        response = await there.post(
            message("tools/call", {"name": "steps", "_meta": {"progressToken": 1}}),
            session,
        )
        assert response.json["id"] == 1


ACCEPT = [
    "text/event-stream",
    "text/event-stream, application/json",
    "text/event-stream, */*",
]


@pytest.mark.parametrize("accept", ACCEPT)
async def test_a_client_that_prefers_a_stream_gets_one(accept: str) -> None:
    async with site(make_server()) as there:
        session = {**await there.open_session("2025-06-18"), "Accept": accept}
        for tool in ({"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "steps"}):
            response = await there.post(message("tools/call", tool), session)
            assert [one["id"] for one in response.messages] == [1]
        assert (await there.post(message("nosuch"), session)).headers[
            "content-type"
        ] == "application/json"


async def test_announcements_are_sent_on_the_get_stream() -> None:
    async with site(make_server()) as there:
        session = await there.open_session()
        async with there.wire() as wire:
            await wire.send(request("GET", "/mcp", session))
            assert (await wire.head()).headers["content-type"] == "text/event-stream"
            await wire.chunk()
            there.server.remove_tool("add")
            event = await wire.event(EventParser())
            assert (
                json.loads(event.data)["method"] == "notifications/tools/list_changed"
            )


async def test_only_one_of_two_get_streams_is_used_and_the_other_takes_over() -> None:
    async with site(make_server()) as there:
        session = await there.open_session("2025-06-18")
        async with there.wire() as first:
            await first.send(request("GET", "/mcp", session))
            await first.head()
            async with there.wire() as second:
                await second.send(request("GET", "/mcp", session))
                await second.head()
                there.server.remove_tool("add")
                assert (await second.event(EventParser())).id == "0-1"
            await there.post(message("ping"), session)
            while b"mcp_streams 1" not in (await there.send("GET", "/metrics")).body:
                pass
            there.server.remove_tool("echo")
            assert (await first.event(EventParser())).id == "0-2"


@pytest.mark.parametrize("version", RESUMING)
async def test_a_client_that_was_cut_off_resumes_its_stream(version: str) -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session(version)
        async with there.wire() as wire:
            await call(wire, session, "step_and_wait")
            await wire.head()
            first = await wire.event(EventParser())
        await there.modern("tools/list")
        assert not signals.cleaned.is_set()
        signals.go.set()
        rest = await there.send("GET", "/mcp", {**session, "Last-Event-ID": first.id})
        assert [one.get("id") for one in rest.messages] == [None, 7]
        again = await there.send("GET", "/mcp", {**session, "Last-Event-ID": first.id})
        assert again.messages == rest.messages
        unknown = await there.send("GET", "/mcp", {**session, "Last-Event-ID": "99-1"})
        assert unknown.status == 400


async def test_one_streams_messages_are_not_replayed_on_another() -> None:
    async with site(make_server()) as there:
        session = await there.open_session()
        body = message(
            "tools/call", {"name": "steps", "_meta": {"progressToken": "p"}}, 1
        )
        await there.post(body, session)
        await there.post({**body, "id": 2}, session)
        replayed = await there.send("GET", "/mcp", {**session, "Last-Event-ID": "0-3"})
        assert [one["id"] for one in replayed.messages] == [1]


async def test_another_session_does_not_get_at_a_stream() -> None:
    async with site(make_server()) as there:
        one, other = await there.open_session(), await there.open_session()
        await there.post(
            message("tools/call", {"name": "steps", "_meta": {"progressToken": "p"}}),
            one,
        )
        assert (
            await there.send("GET", "/mcp", {**other, "Last-Event-ID": "1-1"})
        ).status == 400


async def test_a_cancelled_request_ends_without_a_reply() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session()
        async with there.wire() as wire:
            await call(wire, session, "wait")
            await signals.begun.wait()
            cancel = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 7},
            }
            assert (await there.post(cancel, session)).status == 202
            assert (await wire.response()).messages == []
            assert signals.cleaned.is_set()


async def test_the_end_of_a_session_ends_what_runs_in_it() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session()
        async with there.wire() as wire, there.wire() as news:
            await news.send(request("GET", "/mcp", session))
            await news.head()
            await call(wire, session, "wait")
            await signals.begun.wait()
            assert (await there.send("DELETE", "/mcp", session)).status == 204
            assert (await wire.response()).messages == []
            assert (await news.chunk()).startswith(b"id: 0-0")
            assert await news.chunk() == b""


async def test_an_id_in_use_is_refused() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session()
        async with there.wire() as wire:
            await call(wire, session, "wait")
            await signals.begun.wait()
            assert (await there.post(message("ping", id=7), session)).status == 400


async def asking_server() -> Server:
    server = make_server()

    @server.tool
    async def where(context: Context) -> str:
        return (await context.roots())[0].uri

    return server


async def answer(there: Site, session: dict[str, str], question: str) -> None:
    asked = json.loads(question)
    assert asked["method"] == "roots/list"
    result = {
        "jsonrpc": "2.0",
        "id": asked["id"],
        "result": {"roots": [{"uri": "file:///here"}]},
    }
    assert (await there.post(result, session)).status == 202


@pytest.mark.parametrize("streams", [True, False])
async def test_questions_are_answered_by_other_posts(streams: bool) -> None:
    async with site(await asking_server()) as there:
        session = await there.open_session("2025-06-18", {"roots": {}})
        async with there.wire() as wire, there.wire() as news:
            asking = session if streams else {**session, "Accept": "application/json"}
            await news.send(request("GET", "/mcp", session))
            await news.head()
            await call(wire, asking, "where")
            if streams:
                await wire.head()
            parser = EventParser()
            await answer(
                there, session, (await (wire if streams else news).event(parser)).data
            )
            reply = (
                json.loads((await wire.event(parser)).data)
                if streams
                else (await wire.response()).json
            )
            assert reply["result"]["content"][0]["text"] == "file:///here"


async def test_modern_requests_are_served_beside_a_session() -> None:
    async with site(make_server()) as there:
        session = await there.open_session()
        assert (
            await there.modern(
                "tools/list", **{"Mcp-Session-Id": session["Mcp-Session-Id"]}
            )
        ).status == 200
        assert (
            await there.modern("tools/list", **{"Mcp-Session-Id": "unknown"})
        ).status == 200


async def test_clients_that_open_a_session_twice_are_refused() -> None:
    async with site(make_server()) as there:
        session = await there.open_session()
        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        assert (await there.post(message("initialize", opening), session)).status == 400
        assert (
            await there.post(message("initialize", opening), {**HEADERS})
        ).status == 200


# The store and the streams, without a network


def opened(
    sessions: Sessions, now: float, principal: Principal | None = None
) -> HttpSession | None:
    server = Server("there")
    session = HttpSession(server, sessions)
    session.principal = principal
    session.session.revision = server.revisions.newest_opening
    sessions.expire(now)
    return session if sessions.open(session) else None


def test_sessions_are_bounded_and_the_longest_idle_goes_first() -> None:
    sessions = Sessions(environment=Environment(Limits(max_sessions=2), b""))
    one, two = opened(sessions, 0.0), opened(sessions, 0.0)
    assert one is not None
    assert two is not None
    sessions.expire(1.0)
    assert sessions.find(one.id, None) is one
    three = opened(sessions, 2.0)
    assert sessions.find(two.id, None) is None
    one.announcements.attach(one)
    three.announcements.attach(three)
    assert opened(sessions, 4.0) is None


def test_the_number_of_sessions_can_be_changed_while_the_server_runs() -> None:
    server = Server("there", limits=Limits(max_sessions=1))
    sessions = Sessions(server.ledger, server.environment)
    for _ in range(2):
        assert opened(sessions, 0.0) is not None
    assert len(sessions) == 1
    server.use_limits(Limits(max_sessions=3))
    for _ in range(3):
        assert opened(sessions, 0.0) is not None
    assert len(sessions) == 3


def test_idle_sessions_expire_and_busy_ones_do_not() -> None:
    sessions = Sessions()
    sessions.idle_timeout = 10.0
    one, two = opened(sessions, 0.0), opened(sessions, 0.0)
    one.announcements.attach(one)
    sessions.expire(11.0)
    assert sessions.find(one.id, None) is one
    assert sessions.find(two.id, None) is None


def test_what_all_sessions_keep_is_bounded_and_the_oldest_goes_first() -> None:
    server = make_server()
    server.ledger.budget = 1_000_000
    sessions = Sessions(server.ledger)
    opened = []
    for _ in range(10):
        session = HttpSession(server, sessions)
        session.address = "192.0.2.1"
        session.session.revision = server.revisions.opening["2025-11-25"]
        assert sessions.open(session)
        for _ in range(8):
            stream = session.open_stream()
            stream.send(b"x" * 25_000)
            stream.close()
        opened.append(session)
        assert server.ledger.held <= 1_000_000
    assert list(sessions.values()) == opened[-len(sessions) :]
    assert 3 <= len(sessions) < 6
    assert session.resume(b"7-0") == (stream, 0)
    for session in opened:
        sessions.end(session)
    assert server.ledger.held == 0


def test_a_session_of_another_principal_is_not_found() -> None:
    sessions = Sessions()
    session = opened(sessions, 0.0, principal=Principal("a"))
    assert sessions.find(session.id, Principal("b")) is None
    assert sessions.find(session.id, None) is None
    assert sessions.find(session.id, Principal("a", frozenset({"other"}))) is session


async def test_history_is_bounded_and_its_last_event_is_kept() -> None:
    stream = EventStream(b"1")
    for number in range(1000):
        stream.send(b"%d" % number)
    stream.send(b"x" * HISTORY_BYTES)
    stream.close()
    reader = object()
    stream.attach(reader, 0)
    assert (await stream.take(reader)).startswith(b"event: message\nid: 1-1001\n")
    assert await stream.take(reader) == b""


async def test_a_stream_whose_client_does_not_read_makes_its_writers_wait() -> None:
    stream = EventStream(b"1")
    reader = object()
    stream.attach(reader)
    stream.send(b"x" * HIGH_WATER)
    with trio.move_on_after(0) as waited:
        await stream.drained()
    assert waited.cancelled_caught
    await stream.take(reader)
    await stream.drained()


async def test_a_connection_can_be_let_go_and_the_rest_is_fetched_later() -> None:
    stream = EventStream(b"1", primes=True)
    reader, later = object(), object()
    stream.attach(reader)
    assert await stream.take(reader) == b"id: 1-0\ndata: \n\n"
    stream.release_client(500)
    assert await stream.take(reader) == b"retry: 500\n\n"
    assert await stream.take(reader) == b""
    stream.send(b"{}")
    stream.close()
    stream.attach(later, 0)
    assert (
        await stream.take(later)
        == b"id: 1-0\ndata: \n\nevent: message\nid: 1-1\ndata: {}\n\n"
    )


async def test_a_tool_can_let_the_connection_go_and_is_asked_for_the_rest() -> None:
    server = make_server()
    signals = Signals()

    @server.tool
    async def long(context: Context) -> str:
        await context.close_stream(retry=0.5)
        await signals.go.wait()
        return "went"

    async with site(server) as there:
        session = await there.open_session()
        first = await there.post(message("tools/call", {"name": "long"}, 5), session)
        assert first.body == b"id: 0-0\ndata: \n\nretry: 500\n\n"
        async with there.wire() as wire:
            await wire.send(request("GET", "/mcp", {**session, "Last-Event-ID": "0-0"}))
            await wire.head()
            assert await wire.chunk() == b"id: 0-0\ndata: \n\n"
            signals.go.set()
            event = await wire.event(EventParser())
            assert (event.id, json.loads(event.data)["id"]) == ("0-1", 5)
            assert await wire.chunk() == b""


# Observers of messages


async def test_an_observer_sees_all_that_a_post_brings_and_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = make_server()
    seen: list[tuple[str, object]] = []
    server.on_message = lambda talk, sender, data: seen.append(
        (sender, json.loads(data))
    )
    async with site(server) as there:
        session = await there.open_session()
        seen.clear()
        steps = message(
            "tools/call",
            {"name": "steps", "arguments": {}, "_meta": {"progressToken": "p"}},
        )
        streamed = await there.post(steps, session)
        assert len(streamed.messages) == 4
        assert seen == [
            ("client", steps),
            *[("server", one) for one in streamed.messages],
        ]
        for refused, headers in [
            (message("ping"), {"Mcp-Session-Id": "x"}),
            (message("ping"), {}),
            ({"jsonrpc": "2.0"}, session),
        ]:
            seen.clear()
            refusal = await there.post(refused, headers)
            assert refusal.status >= 400
            assert seen == [("client", refused), ("server", refusal.json)]
        seen.clear()
        monkeypatch.setattr(Sessions, "open", lambda *_: False)
        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        refusal = await there.post(message("initialize", opening))
        assert refusal.status == 503
        assert [data for _, data in seen] == [
            message("initialize", opening),
            refusal.json,
        ]
