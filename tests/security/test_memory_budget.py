"""Memory that clients use is charged, and the largest client loses first."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Access, Context, Limits, Principal, Server
from mcp_trio.server.charges import REQUEST_SIZE, params_size
from mcp_trio.transports.http.connection import PARSED_SIZE, Connection
from mcp_trio.transports.http.messages import Refused
from mcp_trio.transports.http.server import TICK
from mcp_trio.transports.http.sessions import HttpSession, Sessions
from tests.support.checked import MODERN, OPENING, opened, request
from tests.support.http_wire import HEADERS, message, site
from tests.support.http_wire import request as request_over_http

R = OPENING[-1]
NEWEST = MODERN[-1]
MIB = 2**20


class Waiting:
    """A server with a tool that waits, and one that does not."""

    def __init__(self, memory: int) -> None:
        self.server: Server[Any] = Server("waiting", limits=Limits(memory=memory))
        self.go = trio.Event()
        self.begun = trio.Event()
        self.running = 0
        self.server.add_tool(self.wait)
        self.server.add_tool(self.quick)
        self.server.add_resource("notes://{name}", self.note)

    async def wait(self, text: str = "") -> str:
        self.running += 1
        self.begun.set()
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return "waited"

    async def quick(self, text: str = "") -> str:
        return "done"

    async def note(self, name: str) -> str:
        return name


def call(id: object, name: str, size: int) -> dict[str, Any]:
    params = {"name": name, "arguments": {"text": "x" * size}}
    return request(id, "tools/call", params)


def test_decoded_params_count_more_than_their_bytes() -> None:
    assert params_size(b'{"a":[1,2]}') == 11 + 3 * 64 + 64 + 32
    nested = b"[" + b",".join([b"{}"] * 1000) + b"]"
    assert params_size(nested) > 96 * 1000


async def test_a_request_is_charged_while_it_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waiting = Waiting(100 * MIB)
    ledger = waiting.server.ledger
    async with opened(waiting.server, R) as client:
        await client.exchange(call(1, "quick", MIB))
        assert ledger.held == 0
        client.send(call(2, "wait", MIB))
        await trio.testing.wait_all_tasks_blocked()
        assert MIB + REQUEST_SIZE < ledger.held < MIB + 2 * REQUEST_SIZE
        assert ledger.by_kind["requests"] == ledger.held
        waiting.go.set()
        await client.replies(1)
        assert ledger.held == 0


async def test_the_newest_requests_of_the_largest_client_are_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waiting = Waiting(10 * MIB)
    async with opened(waiting.server, R) as small, trio.open_nursery() as nursery:
        small.send(call("small", "wait", MIB))
        await trio.testing.wait_all_tasks_blocked()
        async with opened(waiting.server, R) as large:
            for id in range(5):
                large.send(call(id, "wait", 2 * MIB))
                await trio.testing.wait_all_tasks_blocked()
            (refused,) = await large.replies(1)
            assert "memory is needed for other clients" in json.dumps(refused)
            assert refused["id"] == 4
            assert waiting.running == 5
            waiting.go.set()
            assert {reply["id"] for reply in await large.replies(4)} == {0, 1, 2, 3}
        (reply,) = await small.replies(1)
        assert reply["result"]["content"][0]["text"] == "waited"
        nursery.cancel_scope.cancel()
    assert waiting.server.ledger.held == 0


async def test_subscriptions_are_charged_until_they_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Waiting(100 * MIB).server
    uris = [f"notes://{number}".ljust(8000, "x") for number in range(10)]
    async with opened(server, R) as client:
        for uri in uris:
            await client.exchange(
                request(uri[:20], "resources/subscribe", {"uri": uri})
            )
        held = server.ledger.by_kind["subscriptions"]
        assert 80_000 < held < 90_000
        gone = {"uri": uris[0]}
        await client.exchange(request("u", "resources/unsubscribe", gone))
        assert server.ledger.held < held - 8000
    assert server.ledger.held == 0


async def test_a_listen_keeps_nothing_of_its_meta(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Waiting(100 * MIB).server
    async with opened(server, NEWEST) as client:
        prefix = "io.modelcontextprotocol/"
        meta = {
            prefix + "protocolVersion": NEWEST,
            prefix + "clientCapabilities": {"sampling": {"x": ["y"] * 10_000}},
            "more": "z" * MIB,
        }
        params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        with traced_memory() as memory:
            for id in range(5):
                client.send(request(id, "subscriptions/listen", params))
                await trio.testing.wait_all_tasks_blocked()
            assert memory() < MIB
        assert server.ledger.by_kind["listens"] == 5 * REQUEST_SIZE
    assert server.ledger.held == 0


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the bytes allocated since then and not freed."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


# Over HTTP


def initialize(id: object = 1) -> dict[str, Any]:
    params = {
        "protocolVersion": R,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    return message("initialize", params, id)


async def held(server: Server[Any], kind: str, check: Callable[[int], bool]) -> int:
    """Wait until the charged bytes of a kind meet a condition."""
    with trio.fail_after(30):
        while not check(server.ledger.by_kind[kind]):
            await trio.sleep(0.01)
    return server.ledger.by_kind[kind]


def beginning_of_an_upload(size: int, sent: int) -> bytes:
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n"
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    return f"{head}{fields}\r\n".encode() + b"[" * sent


async def test_a_body_that_is_read_is_charged_and_freed_when_its_client_goes() -> None:
    server = Waiting(100 * MIB).server
    async with site(server) as there:
        async with there.wire() as wire:
            await wire.send(beginning_of_an_upload(3 * MIB, 2 * MIB))
            size = await held(server, "bodies", lambda size: size >= 2 * MIB)
            assert size < 3 * MIB
        await held(server, "bodies", lambda size: size == 0)


async def test_a_body_is_freed_without_the_garbage_collector() -> None:
    server = Waiting(100 * MIB).server
    upload = beginning_of_an_upload(3 * MIB, 2 * MIB)
    async with site(server) as there:
        gc.disable()
        try:
            with traced_memory() as memory:
                async with there.wire() as wire:
                    await wire.send(upload)
                    await held(server, "bodies", lambda size: size >= 2 * MIB)
                    # The last piece may still be on its way through the parser.
                    assert memory() > 1.5 * MIB
                await held(server, "connections", lambda size: size == 0)
                await trio.testing.wait_all_tasks_blocked()
                assert memory() < MIB
        finally:
            gc.enable()


async def test_a_connection_is_freed_without_the_garbage_collector() -> None:
    server = Waiting(100 * MIB).server
    async with site(server) as there:
        gc.collect()
        gc.disable()
        try:
            async with there.wire() as wire:
                await wire.send(request_over_http("GET", "/healthz", {}))
                assert (await wire.response()).status == 200
                assert len(connections_in_memory()) == 1
            await held(server, "connections", lambda size: size == 0)
            # The connection's task may have a few more steps to its end.
            with trio.fail_after(30):
                while connections_in_memory():
                    await trio.sleep(0.01)
        finally:
            gc.enable()


async def test_a_connection_that_was_open_at_a_tick_is_freed_when_it_is_closed(
    mock_clock: trio.testing.MockClock,
) -> None:
    server = Waiting(100 * MIB).server
    async with site(server) as there:
        gc.collect()
        async with there.wire() as wire:
            await wire.send(request_over_http("GET", "/healthz", {}))
            assert (await wire.response()).status == 200
            mock_clock.jump(2 * TICK)
            await trio.testing.wait_all_tasks_blocked()
        while server.ledger.by_kind["connections"]:
            await trio.testing.wait_all_tasks_blocked()
        # The connection's task may have a few more steps to its end.
        await trio.testing.wait_all_tasks_blocked()
        assert not connections_in_memory()


def connections_in_memory() -> list[object]:
    return [found for found in gc.get_objects() if type(found) is Connection]


async def test_a_complete_body_is_not_charged_any_more() -> None:
    server = Waiting(100 * MIB).server
    async with site(server) as there, there.wire() as wire:
        body = json.dumps(initialize()).encode().ljust(100_000)
        data = beginning_of_an_upload(len(body), 0)
        await wire.send(data + body[:50_000])
        await held(server, "bodies", lambda size: size >= 50_000)
        await wire.send(body[50_000:])
        assert (await wire.response()).status == 200
        assert server.ledger.by_kind["bodies"] == 0


async def test_the_newest_upload_is_refused_when_the_budget_is_exceeded() -> None:
    server = Waiting(5 * MIB).server
    async with site(server) as there, there.wire() as first, there.wire() as second:
        await first.send(beginning_of_an_upload(4 * MIB, 2 * MIB))
        await held(server, "bodies", lambda size: size >= 2 * MIB)
        await second.send(beginning_of_an_upload(4 * MIB, 3 * MIB))
        refused = await second.response()
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert "memory is needed" in refused.json["error"]["message"]
        size = server.ledger.by_kind["bodies"]
        assert 2 * MIB <= size < 3 * MIB


async def test_a_reply_that_nobody_reads_is_charged_and_given_up() -> None:
    server = Waiting(100 * MIB).server

    @server.tool
    async def recite() -> str:
        return "x" * (7 * MIB)

    async with site(server) as there, there.wire() as wire:
        asked = message("tools/call", {"name": "recite"})
        head = {**HEADERS, "MCP-Protocol-Version": "2025-03-26"}
        body = json.dumps(asked).encode()
        await wire.send(request_over_http("POST", "/mcp", head, body))
        size = await held(server, "replies", lambda size: size > 0)
        assert size > MIB
        server.ledger.budget = MIB
        server.ledger.keep_budget()
        assert server.ledger.by_kind["replies"] == 0
        with pytest.raises((EOFError, AssertionError, trio.BrokenResourceError)):
            await wire.response()


def call_over_http(name: str, size: int = 0, **more: str) -> bytes:
    arguments = {"text": "x" * size} if size else {}
    asked = message("tools/call", {"name": name, "arguments": arguments})
    head = {**HEADERS, "MCP-Protocol-Version": "2025-03-26", **more}
    return request_over_http("POST", "/mcp", head, json.dumps(asked).encode())


MANY = 1000
MANY_REQUESTS = request_over_http("GET", "/healthz", {}) * MANY


async def test_requests_that_wait_until_a_reply_is_read_are_charged() -> None:
    server = Waiting(100 * MIB).server
    size = 7 * MIB

    @server.tool
    async def recite() -> str:
        return "x" * size

    async with site(server) as there, there.wire() as wire:
        await wire.send(call_over_http("recite") + MANY_REQUESTS)
        least = size + MANY * PARSED_SIZE
        await held(server, "replies", lambda size: size >= least)
    await held(server, "replies", lambda size: size == 0)


async def test_requests_that_wait_for_another_one_are_charged_and_dropped() -> None:
    waiting = Waiting(100 * MIB)
    ledger = waiting.server.ledger
    async with site(waiting.server) as there, there.wire() as wire:
        await wire.send(call_over_http("wait") + MANY_REQUESTS)
        # So many requests let other clients go first, so the call may begin later.
        await waiting.begun.wait()
        await held(waiting.server, "bodies", lambda size: size >= MANY * PARSED_SIZE)
        ledger.budget = MANY * PARSED_SIZE
        ledger.keep_budget()
        assert ledger.by_kind["bodies"] == 0
        assert waiting.running == 1
        waiting.go.set()
        response = await wire.response()
        assert "waited" in response.body.decode()
        assert response.headers["connection"] == "close"
        assert await wire.ended()


async def test_a_request_whose_token_is_being_verified_is_charged_and_refused() -> None:
    server = Waiting(100 * MIB).server
    asks, answers = trio.Event(), trio.Event()

    async def verify(token: str) -> str:
        asks.set()
        await answers.wait()
        return "somebody"

    server.access = Access(verify)
    async with site(server) as there, there.wire() as wire:
        asked = call_over_http("quick", 2 * MIB, Authorization="Bearer token")
        await wire.send(asked)
        await asks.wait()
        assert server.ledger.by_kind["bodies"] >= 2 * MIB
        server.ledger.budget = MIB
        server.ledger.keep_budget()
        assert server.ledger.by_kind["bodies"] == 0
        answers.set()
        assert (await wire.response()).status == 503


@pytest.mark.parametrize("wait", [False, True])
async def test_a_connection_whose_reply_is_given_up_at_once_ends_without_an_error(
    wait: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Waiting(MIB).server

    @server.tool
    async def recite(wait: bool) -> str:
        if wait:
            await trio.lowlevel.checkpoint()
        return "x" * (7 * MIB)

    async with site(server) as there:
        async with there.wire() as wire:
            await wire.send(recital(wait=wait))
            with pytest.raises((EOFError, AssertionError, trio.BrokenResourceError)):
                await wire.response()
        await held(server, "connections", lambda size: size == 0)
        assert (await there.send("GET", "/healthz")).status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def recital(*, wait: bool) -> bytes:
    asked = message("tools/call", {"name": "recite", "arguments": {"wait": wait}})
    head = {**HEADERS, "MCP-Protocol-Version": "2025-03-26"}
    return request_over_http("POST", "/mcp", head, json.dumps(asked).encode())


async def test_events_of_a_session_are_charged_until_it_ends() -> None:
    server = Waiting(100 * MIB).server

    @server.tool
    async def tell(ctx: Context) -> str:
        for _ in range(20):
            await ctx.info("x" * 10_000)
        return "told"

    async with site(server) as there:
        session = await there.open_session(R)
        assert server.ledger.by_kind["sessions"] > 0
        asked = message("tools/call", {"name": "tell"})
        assert (await there.post(asked, session)).status == 200
        assert server.ledger.by_kind["events"] > 100_000
        metrics = (await there.send("GET", "/metrics", {})).body.decode()
        assert 'mcp_held_bytes{kind="events"} ' in metrics
        assert 'mcp_held_bytes{kind="bodies"} 0' in metrics
        await there.send("DELETE", "/mcp", session)
        assert server.ledger.by_kind["events"] == 0
        assert server.ledger.by_kind["sessions"] == 0


async def test_history_is_given_up_before_requests_are() -> None:
    waiting = Waiting(100 * MIB)
    server = waiting.server
    sessions = Sessions(server.ledger)
    session = HttpSession(server, sessions)
    session.address = "192.0.2.1"
    session.session.revision = server.revisions.opening[R]
    assert sessions.open(session)
    old, new = session.open_stream(), session.open_stream()
    for stream in (old, new):
        stream.send(b"x" * MIB)
    old.close()
    new.attach(session)
    server.ledger.budget = 2 * MIB
    server.ledger.keep_budget()
    assert old.is_lost
    assert not new.is_lost
    with pytest.raises(Refused):
        session.resume(b"0-0")


# Sessions


def open_session(sessions: Sessions, server: Server[Any], name: str) -> HttpSession:
    session = HttpSession(server, sessions)
    session.session.revision = server.revisions.newest_opening
    session.principal = Principal(name)
    session.address = "192.0.2.1"
    assert sessions.open(session)
    return session


def test_no_session_ends_because_another_client_opens_many() -> None:
    server = Server[Any]("sessions", limits=Limits(max_sessions=100))
    sessions = Sessions(server.ledger, server.environment)
    first = [open_session(sessions, server, "small") for _ in range(10)]
    flood = [open_session(sessions, server, "large") for _ in range(1000)]
    assert len(sessions) == 100
    assert all(session.id in sessions for session in first)
    assert list(sessions.values())[10:] == flood[-90:]


def test_a_busy_session_of_the_largest_client_ends_for_another_client() -> None:
    server = Server[Any]("sessions", limits=Limits(max_sessions=3))
    sessions = Sessions(server.ledger, server.environment)
    busy = [open_session(sessions, server, "large") for _ in range(3)]
    for session in busy:
        session.announcements.attach(session)
    refused = HttpSession(server, sessions)
    refused.session.revision = server.revisions.newest_opening
    refused.principal = Principal("large")
    assert not sessions.open(refused)
    open_session(sessions, server, "small")
    assert list(sessions.values())[:2] == busy[1:]
