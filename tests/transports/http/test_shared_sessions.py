"""Sessions that several processes serve."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Access, Context, Limits, Principal, Server
from mcp_trio.client.event_parser import EventParser
from mcp_trio.stores import peers
from mcp_trio.stores.base import Record, StoreUnavailable
from mcp_trio.stores.memory import MemoryStore
from mcp_trio.stores.parent import ParentStore, serve_store
from mcp_trio.transports.http import followed_stream, stream_logs
from mcp_trio.transports.http.sessions import Sessions
from tests.support.http_wire import (
    HEADERS,
    HOSTS,
    Signals,
    Site,
    make_server,
    message,
    request,
)
from tests.support.shared_sites import (
    Events,
    Killable,
    PartedStore,
    SharedMemoryStore,
    calling,
    getting,
    listening,
    one_site,
    posting,
    two_sites,
    until,
)

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def make() -> Server:
    server = make_server()

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    return server


async def add(there: Site, session: dict[str, str]) -> Any:
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    return await there.post(message("tools/call", params), session)


async def subscribe(there: Site, session: dict[str, str], uri: str) -> None:
    answer = await there.post(message("resources/subscribe", {"uri": uri}), session)
    assert answer.json["result"] == {}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_session_of_one_process_is_served_by_another(
    version: str, host: str
) -> None:
    async with two_sites(make, host=host) as (a, b):
        session = await a.open_session(version)
        reply = await add(b, session)
        assert reply.status == 200
        assert reply.json["result"]["content"][0]["text"] == "3"


@pytest.mark.parametrize("host", HOSTS)
async def test_a_session_that_ends_at_one_process_ends_at_all(host: str) -> None:
    async with two_sites(make, host=host) as (a, b):
        session = await a.open_session()
        assert (await add(b, session)).status == 200
        assert (await b.send("DELETE", "/mcp", session)).status == 204
        assert (await add(b, session)).status == 404
        with trio.fail_after(30):
            while (await add(a, session)).status != 404:
                pass


async def test_an_unknown_session_is_404() -> None:
    async with two_sites(make) as (a, _):
        session = await a.open_session()
        for unknown in ("x", "x" * 500, "a:b"):
            there = await add(a, {**session, "Mcp-Session-Id": unknown})
            assert there.status == 404


async def test_a_session_belongs_to_its_principal_at_every_process() -> None:
    async def verify(token: str) -> Principal:
        return Principal(token)

    def make_guarded() -> Server:
        return make_server(access=verify)

    async with two_sites(make_guarded) as (a, b):
        mine = {"Authorization": "Bearer me"}
        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        opened = await a.post(message("initialize", opening), mine)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert (await add(b, {**session, **mine})).status == 200
        theirs = {"Authorization": "Bearer you"}
        assert (await add(b, {**session, **theirs})).status == 404
        assert (await b.send("DELETE", "/mcp", {**session, **theirs})).status == 404


async def test_what_a_client_sets_at_one_process_holds_at_all() -> None:
    def make_logging() -> Server:
        server = make_server()

        @server.tool
        async def say(ctx: Context) -> str:
            await ctx.log("info", "hello")
            return "said"

        return server

    async with two_sites(make_logging) as (a, b):
        session = await a.open_session()
        assert (await add(b, session)).status == 200
        await b.post(message("logging/setLevel", {"level": "error"}), session)

        async def is_silent() -> bool:
            said = await a.post(message("tools/call", {"name": "say"}), session)
            return said.headers["content-type"] == "application/json"

        with trio.fail_after(30):
            while not await is_silent():
                pass


async def test_the_standing_stream_hears_what_changes_at_another_process() -> None:
    async with two_sites(make) as (a, b):
        session = await a.open_session()
        await subscribe(a, session, "note://a")
        async with getting(b, session) as events:
            await events.primed()
            a.server.add_tool(trio.sleep, name="new")
            changed = await events.next()
            assert changed["method"] == "notifications/tools/list_changed"
            a.server.resource_updated("note://a")
            updated = await events.next()
            assert updated["method"] == "notifications/resources/updated"
            assert updated["params"] == {"uri": "note://a"}


@pytest.mark.thorough
@pytest.mark.parametrize("calls", [0, 1], ids=["idle", "in use"])
async def test_a_session_that_outlives_its_announcements_gets_all_announcements(
    calls: int,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With the real intervals, this would take more steps.
    monkeypatch.setattr(stream_logs, "WHILE_OPEN", 3000)
    monkeypatch.setattr(peers, "LEASE", 1000)
    monkeypatch.setattr(peers, "RENEW", 300)
    monkeypatch.setattr(peers, "RECORD", 3000)
    async with two_sites(make) as (a, b):
        session = await a.open_session()
        async with getting(a, session, patience=inf) as events:
            await events.primed()
            a.server.add_tool(trio.sleep, name="early")
            assert (await events.next())["method"].endswith("list_changed")
            for _ in range(10):
                await trio.sleep(1000)
                for _ in range(calls):
                    assert (await add(a, session)).status == 200
            b.server.add_tool(trio.sleep, name="late")
            with trio.fail_after(60):
                assert (await events.next())["method"].endswith("list_changed")


async def test_only_the_latest_stream_gets_announcements() -> None:
    async with two_sites(make) as (a, b):
        session = await a.open_session()
        async with getting(a, session) as old, getting(b, session) as new:
            await old.primed()
            await new.primed()
            b.server.add_tool(trio.sleep, name="one")
            assert (await new.next())["method"].endswith("list_changed")
            with trio.move_on_after(0.2):
                raise AssertionError(f"{await old.next()} was sent twice")


class SlowMessagesStore(PartedStore):
    """The store as a process sees it whose messages to others are held back.

    `kind` is `news` for those to all processes, `inbox` for those to one.
    """

    def __init__(self, shared: SharedMemoryStore, kind: str) -> None:
        super().__init__(shared)
        self._kind = kind
        self.goes_on = trio.Event()
        self.goes_on.set()
        self.has_waited = trio.Event()

    async def append(self, log: str, *data: bytes, **options: Any) -> int:
        """Append, when it may."""
        if log.startswith(self._kind) and not self.goes_on.is_set():
            self.has_waited.set()
            await self.goes_on.wait()
        return await super().append(log, *data, **options)


class Listener:
    """A client that reads the announcements of a session, and stores them."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def has_heard(self, number: int) -> bool:
        """Return whether it has received this many."""
        return len(self.heard) >= number

    async def read(
        self,
        there: Site,
        session: dict[str, str],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Read until it is cancelled."""
        async with getting(there, session) as events:
            task_status.started()
            while True:
                self.heard.append(await events.next())


@pytest.mark.thorough
@pytest.mark.parametrize("is_changed", [False, True])
async def test_of_two_streams_that_open_at_once_one_gets_each_announcement(
    is_changed: bool,
) -> None:
    shared = SharedMemoryStore()
    slow = SlowMessagesStore(shared, "news")
    async with (
        one_site(make, slow) as a,
        one_site(make, shared) as b,
        one_site(make, shared) as c,
        trio.open_nursery() as nursery,
    ):
        session = await c.open_session()
        # A takes over the announcements. B does too, before A has published that.
        slow.goes_on = trio.Event()
        listener = Listener()
        async with trio.open_nursery() as opening:
            opening.start_soon(nursery.start, listener.read, a, session)
            await slow.has_waited.wait()
            await nursery.start(listener.read, b, session)
            slow.goes_on.set()
        if is_changed:
            # The others read the session again.
            await post_level(a, session, "error")
            await trio.sleep(0.1)
        for number, there in enumerate((a, b, c), 1):
            there.server.add_tool(trio.sleep, name="new")
            await until(partial(listener.has_heard, number))
            await trio.sleep(0.1)
            assert len(listener.heard) == number
        nursery.cancel_scope.cancel()


async def post_level(there: Site, session: dict[str, str], level: str) -> None:
    answer = await there.post(message("logging/setLevel", {"level": level}), session)
    assert answer.json["result"] == {}


async def test_announcements_that_nobody_read_are_sent_by_another_process() -> None:
    async with two_sites(make) as (a, b):
        session = await a.open_session()
        a.server.add_tool(trio.sleep, name="one")
        await add(a, session)
        b.server.add_tool(trio.sleep, name="two")
        async with getting(b, session) as events:
            for _ in range(2):
                assert (await events.next())["method"].endswith("list_changed")
            last = events.ids[-1]
        b.server.add_tool(trio.sleep, name="three")
        async with getting(a, session, last) as events:
            assert (await events.next())["method"].endswith("list_changed")
            with trio.move_on_after(0.2):
                raise AssertionError(f"{await events.next()} was sent twice")


async def test_a_subscription_of_2026_hears_what_changes_at_another_process() -> None:
    async with two_sites(make) as (a, b):
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}
        async with listening(b, wanted) as events, listening(a, wanted) as at_a:
            a.server.add_tool(trio.sleep, name="new")
            for heard in (events, at_a):
                changed = await heard.next()
                assert changed["method"] == "notifications/tools/list_changed"
            a.server.resource_updated("note://a")
            for heard in (events, at_a):
                updated = await heard.next()
                assert updated["method"] == "notifications/resources/updated"


def make_asking() -> Server:
    server = make_server()
    add_asking(server)
    return server


def add_asking(server: Server) -> None:
    """Add a tool that asks the client."""

    @server.tool
    async def places(ctx: Context) -> str:
        return ", ".join(root.uri for root in await ctx.roots())


async def test_a_question_of_one_process_is_answered_at_another() -> None:
    async with two_sites(make_asking) as (a, b):
        session = await a.open_session(capabilities={"roots": {}})
        async with calling(a, session, "places") as events:
            question = await events.next()
            assert question["method"] == "roots/list"
            answer = {
                "jsonrpc": "2.0",
                "id": question["id"],
                "result": {"roots": [{"uri": "file:///a"}]},
            }
            assert (await b.post(answer, session)).status == 202
            reply = await events.next()
            assert reply["result"]["content"][0]["text"] == "file:///a"
            assert await events.next() is None


async def test_a_request_of_one_process_is_cancelled_at_another() -> None:
    signals = Signals()

    def make_waiting() -> Server:
        return make_server(signals)

    async with two_sites(make_waiting) as (a, b):
        session = await a.open_session()
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                body = message("tools/call", {"name": "wait"}, 7)
                await a.post(body, session)

            nursery.start_soon(call)
            await signals.begun.wait()
            note = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 7},
            }
            assert (await b.post(note, session)).status == 202
            with trio.fail_after(30):
                await signals.cleaned.wait()


class Steps:
    """A tool that reports a step whenever it is let go."""

    def __init__(self) -> None:
        self.go = trio.Semaphore(0)

    def make(self) -> Server:
        server = make_server()

        @server.tool
        async def advance(count: int, ctx: Context) -> str:
            for number in range(count):
                await self.go.acquire()
                await ctx.progress(number + 1, count)
            await self.go.acquire()
            return "done"

        return server


@pytest.mark.parametrize("host", HOSTS)
async def test_a_stream_of_one_process_is_resumed_at_another(host: str) -> None:
    steps = Steps()
    async with two_sites(steps.make, host=host) as (a, b):
        session = await a.open_session()
        steps.go.release()
        async with calling(a, session, "advance", {"count": 3}) as events:
            assert (await events.next())["params"]["progress"] == 1
        seen = events.ids[-1]
        steps.go.release()
        async with getting(b, session, seen) as resumed:
            assert (await resumed.next())["params"]["progress"] == 2
            steps.go.release()
            assert (await resumed.next())["params"]["progress"] == 3
            steps.go.release()
            reply = await resumed.next()
            assert reply["id"] == 7
            assert reply["result"]["content"][0]["text"] == "done"
            assert await resumed.next() is None
        assert len(set(resumed.ids)) == len(resumed.ids)
        # Everything again, and from the process where it ran.
        for there in (a, b):
            async with getting(there, session, seen) as resumed:
                assert len(await resumed.rest()) == 3


async def test_whoever_follows_a_stream_is_told_what_was_added_before_that_was_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed_stream, "POLL_INTERVAL", 600)
    steps = Steps()
    shared = SharedMemoryStore()
    slow = SlowMessagesStore(shared, "inbox")
    async with one_site(steps.make, shared) as a, one_site(steps.make, slow) as b:
        session = await a.open_session()
        steps.go.release()
        async with calling(a, session, "advance", {"count": 1}) as events:
            await events.next()
            slow.goes_on = trio.Event()
            last = events.ids[-1]
            async with getting(b, session, last, patience=5) as resumed:
                # B has read the stream, and A does not know that B follows it.
                await slow.has_waited.wait()
                await trio.testing.wait_all_tasks_blocked()
                steps.go.release()
                await events.rest()
                slow.goes_on.set()
                (reply,) = await resumed.rest()
                assert reply["result"]["content"][0]["text"] == "done"


class HalfAwayStore(PartedStore):
    """The store as a process sees it that cannot look for other processes."""

    async def read(self, key: str) -> Record | None:
        """Read, unless it is about a process."""
        if key.startswith("process:"):
            raise StoreUnavailable("cut off")
        return await super().read(key)


async def test_a_session_is_used_while_the_store_comes_and_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = SharedMemoryStore()
    half = HalfAwayStore(shared)
    async with one_site(make, shared) as a, one_site(make, half) as b:
        session = await a.open_session()
        for _ in range(3):
            assert (await add(b, session)).status == 200
            await trio.testing.wait_all_tasks_blocked()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


class SlowStore(PartedStore):
    """The store as a process sees it that waits for each reply."""

    def __init__(self, shared: SharedMemoryStore) -> None:
        super().__init__(shared)
        self.goes_on = trio.Event()
        self.goes_on.set()

    async def read(self, key: str) -> Record | None:
        """Read, when it may."""
        await self.goes_on.wait()
        return await super().read(key)

    async def append(self, log: str, *data: bytes, **options: Any) -> int:
        """Append, when it may."""
        await self.goes_on.wait()
        return await super().append(log, *data, **options)


LARGE = 2**20


def large_ping() -> bytes:
    return json.dumps(message("ping", {"more": "x" * LARGE})).encode()


@asynccontextmanager
async def open_session(there: Site) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Open a session. Yields the target and the headers of its requests."""
    yield "/mcp", await there.open_session()


@asynccontextmanager
async def open_sse(there: Site) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Open a stream of HTTP+SSE. Yields the target and the headers of its requests."""
    async with there.wire() as wire:
        await wire.send(request("GET", "/sse"))
        assert (await wire.head()).status == 200
        yield (await wire.event(EventParser())).data, HEADERS


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("open_at", [open_session, open_sse])
@pytest.mark.parametrize("is_given_up", [False, True])
async def test_a_body_is_charged_while_it_waits_for_the_store(
    open_at: Any, is_given_up: bool, host: str
) -> None:
    shared = SharedMemoryStore()
    slow = SlowStore(shared)
    statuses = []

    async def post(target: str, headers: dict[str, str], body: bytes) -> None:
        answer = await there.send("POST", target, headers, body)
        statuses.append(answer.status)

    async with (
        one_site(make, shared, host) as home,
        one_site(make, slow, host) as there,
        open_at(home) as (target, headers),
        trio.open_nursery() as nursery,
    ):
        ledger = there.server.ledger
        slow.goes_on = trio.Event()
        nursery.start_soon(post, target, headers, large_ping())
        await until(lambda: ledger.by_kind["bodies"] >= LARGE)
        # All of it was read.
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert ledger.by_kind["bodies"] >= LARGE
        if is_given_up:
            assert ledger.relieve()
        else:
            slow.goes_on.set()
        await until(lambda: len(statuses) == 1)
        slow.goes_on.set()
        assert ledger.by_kind["bodies"] == 0
        nursery.cancel_scope.cancel()
    if is_given_up:
        assert statuses == [503]
    else:
        assert statuses[0] in (200, 202)


async def test_an_event_of_no_stream_is_refused() -> None:
    async with two_sites(make) as (a, b):
        session = await a.open_session()
        for event in ("x", "x-1", "abc.1-1", "abc.1-x"):
            reply = await b.send("GET", "/mcp", {**session, "Last-Event-ID": event})
            assert reply.status == 400, event


async def test_a_client_has_a_bounded_number_of_sessions() -> None:
    def make_small() -> Server:
        server = make()
        server.use_limits(Limits(max_sessions=3))
        return server

    async with two_sites(make_small) as (a, b):
        sessions = [await a.open_session() for _ in range(4)]
        assert (await add(b, sessions[3])).status == 200
        with trio.fail_after(30):
            while (await add(b, sessions[0])).status != 404:
                pass


@pytest.mark.thorough
async def test_a_session_that_nobody_uses_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sessions, "idle_timeout", 2.0)
    async with two_sites(make) as (a, b):
        idle = await a.open_session()
        used = await a.open_session()
        watched = await a.open_session()
        async with getting(a, watched):
            for _ in range(10):
                await trio.sleep(0.5)
                assert (await add(b, used)).status == 200
            for there in (a, b):
                assert (await add(there, idle)).status == 404
                assert (await add(there, watched)).status == 200
            assert (await add(a, used)).status == 200


async def test_servers_with_other_names_have_other_sessions() -> None:
    names = iter(["one", "two"])

    def make_named() -> Server:
        return Server(next(names))

    async with two_sites(make_named, SharedMemoryStore()) as (a, b):
        session = await a.open_session()
        assert (await b.post(message("ping"), session)).status == 404


# HTTP+SSE


async def test_a_message_for_a_stream_of_http_sse_may_be_posted_to_any_process() -> (
    None
):
    async with two_sites(make) as (a, b), a.wire() as wire:
        await wire.send(request("GET", "/sse"))
        assert (await wire.head()).status == 200
        endpoint = (await wire.event(EventParser())).data
        events = Events(wire)
        opening = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        body = json.dumps(message("initialize", opening)).encode()
        assert (await b.send("POST", endpoint, HEADERS, body)).status == 202
        assert (await events.next())["result"]["protocolVersion"] == "2024-11-05"
        body = json.dumps(message("ping", id=2)).encode()
        assert (await a.send("POST", endpoint, HEADERS, body)).status == 202
        assert (await events.next())["id"] == 2
        for unknown in ("/messages", "/messages?session=x", endpoint[:-1]):
            expected = 202 if unknown == endpoint[:-1] else 404
            assert (await b.send("POST", unknown, HEADERS, body)).status == expected


# The store of a parent process


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")
async def test_workers_share_sessions_in_the_store_of_their_parent(
    nursery: trio.Nursery,
) -> None:
    steps = Steps()

    def make_all() -> Server:
        server = steps.make()
        add_asking(server)
        return server

    # The paths of sockets must be short.
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/store"
        await nursery.start(serve_store, MemoryStore(), path)
        async with (
            one_site(make_all, ParentStore(path)) as a,
            one_site(make_all, ParentStore(path)) as b,
        ):
            session = await a.open_session(capabilities={"roots": {}})
            async with getting(b, session) as announced:
                await announced.primed()
                a.server.add_tool(trio.sleep, name="new")
                assert (await announced.next())["method"].endswith("list_changed")
            async with calling(a, session, "places") as events:
                question = await events.next()
                result = {"roots": [{"uri": "file:///a"}]}
                answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
                assert (await b.post(answer, session)).status == 202
                reply = await events.next()
                assert reply["result"]["content"][0]["text"] == "file:///a"
            steps.go.release()
            async with calling(a, session, "advance", {"count": 2}) as events:
                await events.next()
            async with getting(b, session, events.ids[-1]) as resumed:
                steps.go.release()
                assert (await resumed.next())["params"]["progress"] == 2
                steps.go.release()
                reply = await resumed.next()
                assert reply["result"]["content"][0]["text"] == "done"
            assert (await b.send("DELETE", "/mcp", session)).status == 204
            with trio.fail_after(30):
                while (await add(a, session)).status != 404:
                    pass


# A process that is lost


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process be lost after less than a second."""
    monkeypatch.setattr(peers, "LEASE", 0.5)
    monkeypatch.setattr(peers, "RENEW", 0.1)
    monkeypatch.setattr(peers, "RETRY", 0.1)
    monkeypatch.setattr(peers, "FRESH", 0.05)
    monkeypatch.setattr(followed_stream, "POLL_INTERVAL", 0.1)


@pytest.mark.thorough
async def test_requests_of_a_killed_process_are_answered_with_an_error(
    short_leases: None, nursery: trio.Nursery
) -> None:
    steps = Steps()
    store = SharedMemoryStore()
    killable = Killable()
    a = await nursery.start(killable.run, steps.make, store)
    async with one_site(steps.make, store) as b:
        session = await a.open_session()
        steps.go.release()
        steps.go.release()
        async with calling(a, session, "advance", {"count": 9}) as events:
            assert (await events.next())["params"]["progress"] == 1
            assert (await events.next())["params"]["progress"] == 2
            first = events.ids[1]  # it follows an event without a message
        await killable.kill()
        for _ in range(2):  # the second time it was answered already
            async with getting(b, session, first) as resumed:
                missed, reply = await resumed.rest()
            assert missed["params"]["progress"] == 2
            assert reply["id"] == 7
            assert reply["error"]["code"] == -32603
            assert "was lost" in reply["error"]["message"]
        assert (await add(b, session)).status == 200


@pytest.mark.thorough
async def test_a_batch_of_a_killed_process_is_answered_with_errors(
    short_leases: None, nursery: trio.Nursery
) -> None:
    steps = Steps()
    store = SharedMemoryStore()
    killable = Killable()
    a = await nursery.start(killable.run, steps.make, store)
    async with one_site(steps.make, store) as b:
        session = await a.open_session("2025-03-26")
        params = {
            "name": "advance",
            "arguments": {"count": 9},
            "_meta": {"progressToken": "p"},
        }
        batch = [message("tools/call", params, id) for id in (1, 2)]
        steps.go.release()
        async with posting(a, session, batch) as events:
            await events.next()
            last = events.ids[-1]
        await killable.kill()
        async with getting(b, session, last) as resumed:
            (replies,) = await resumed.rest()
        assert [reply["id"] for reply in replies] == [1, 2]
        assert {reply["error"]["code"] for reply in replies} == {-32603}


async def test_requests_that_a_stopping_process_does_not_finish_are_answered(
    nursery: trio.Nursery,
) -> None:
    steps = Steps()
    store = SharedMemoryStore()

    def make_hasty() -> Server:
        server = steps.make()
        server.grace = 0.1
        return server

    async with one_site(make_hasty, store) as b:
        async with one_site(make_hasty, store) as a:
            session = await a.open_session()
            steps.go.release()
            async with calling(a, session, "advance", {"count": 9}) as events:
                await events.next()
                last = events.ids[-1]
                a.stopping.set()
                assert await events.rest() == []
        async with getting(b, session, last) as resumed:
            (reply,) = await resumed.rest()
        assert "was lost" in reply["error"]["message"]


async def test_the_home_of_a_session_moves_when_its_process_is_lost(
    short_leases: None, nursery: trio.Nursery
) -> None:
    store = SharedMemoryStore()
    killable = Killable()
    a = await nursery.start(killable.run, make, store)
    async with one_site(make, store) as b:
        session = await a.open_session()
        await subscribe(a, session, "note://a")
        await killable.kill()
        async with getting(b, session) as events:
            await events.primed()
            b.server.resource_updated("note://a")
            while True:
                sent = await events.next()
                if sent["method"] == "notifications/resources/updated":
                    break


@pytest.mark.thorough
async def test_what_changed_before_a_home_was_known_to_be_lost_is_announced(
    short_leases: None, nursery: trio.Nursery
) -> None:
    store = SharedMemoryStore()
    killable = Killable()
    a = await nursery.start(killable.run, make, store)
    async with one_site(make, store) as b:
        session = await a.open_session()
        await subscribe(a, session, "note://a")
        await add(b, session)
        await killable.kill()
        b.server.resource_updated("note://a")
        await trio.testing.wait_all_tasks_blocked()
        async with getting(b, session, patience=10) as events:
            while True:
                sent = await events.next()
                if sent["method"] == "notifications/resources/updated":
                    break


@pytest.mark.thorough
async def test_a_process_that_was_declared_lost_cancels_what_it_did(
    short_leases: None,
) -> None:
    signals = Signals()
    steps = Steps()
    shared = SharedMemoryStore()
    parted = PartedStore(shared)

    def make_guarded() -> Server:
        server = steps.make()

        @server.tool
        async def hold(ctx: Context) -> str:
            try:
                await ctx.progress(1)
                await signals.go.wait()
                await ctx.progress(2)
                return "done"
            finally:
                signals.cleaned.set()

        return server

    async with one_site(make_guarded, parted) as a, one_site(steps.make, shared) as b:
        session = await a.open_session()
        async with calling(a, session, "hold") as events:
            await events.next()
            last = events.ids[-1]
            parted.is_cut_off = True
            async with getting(b, session, last) as resumed:
                (reply,) = await resumed.rest()
                assert "was lost" in reply["error"]["message"]
            signals.go.set()
            await trio.sleep(0.2)
            parted.is_cut_off = False
            with trio.fail_after(30):
                await signals.cleaned.wait()
            # The error is the only outcome.
            assert await events.rest() == []
        async with getting(a, session, last) as resumed:
            (reply,) = await resumed.rest()
            assert "was lost" in reply["error"]["message"]
        # The process continues under another name.
        async with calling(a, session, "hold", id=8) as events:
            assert (await events.rest())[-1]["result"]["content"][0]["text"] == "done"


class SlowIntroductionStore(PartedStore):
    """The store of a process whose new names others learn late."""

    def __init__(self, shared: SharedMemoryStore) -> None:
        super().__init__(shared)
        self.has_begun = trio.Event()
        self.goes_on = trio.Event()
        self.is_slow = False

    async def write(self, key: str, value: bytes, **options: Any) -> int | None:
        """Write, after a while if it makes a process known."""
        if self.is_slow and key.startswith("process:"):
            self.has_begun.set()
            await self.goes_on.wait()
        return await super().write(key, value, **options)


@pytest.mark.thorough
async def test_a_process_with_a_new_name_gets_answers_from_others_at_once(
    short_leases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "FRESH", 1.0)
    steps = Steps()
    shared = SharedMemoryStore()
    slow = SlowIntroductionStore(shared)

    def make_all() -> Server:
        server = steps.make()
        add_asking(server)
        return server

    async with one_site(make_all, slow) as a, one_site(make_all, shared) as b:
        session = await b.open_session(capabilities={"roots": {}})
        steps.go.release()
        async with calling(b, session, "advance", {"count": 2}) as events:
            await events.next()
            last = events.ids[-1]
            async with calling(a, session, "places", id=8) as lost:
                await lost.next()
                slow.is_cut_off = True
                async with getting(b, session, lost.ids[-1]) as resumed:
                    (reply,) = await resumed.rest()
                    assert "was lost" in reply["error"]["message"]
            slow.is_slow = True
            slow.is_cut_off = False
            with trio.fail_after(30):
                await slow.has_begun.wait()
            # B learns the new name of A before it can send anything to A.
            async with getting(a, session, last):
                await trio.testing.wait_all_tasks_blocked(0.01)
                steps.go.release()
                await events.next()
                await trio.testing.wait_all_tasks_blocked(0.01)
                slow.goes_on.set()
                async with calling(a, session, "places", id=9, patience=5) as asking:
                    question = await asking.next()
                    answer = {
                        "jsonrpc": "2.0",
                        "id": question["id"],
                        "result": {"roots": [{"uri": "file:///a"}]},
                    }
                    assert (await b.post(answer, session)).status == 202
                    reply = await asking.next()
                    assert reply["result"]["content"][0]["text"] == "file:///a"


@pytest.mark.thorough
async def test_a_response_ends_whose_process_was_lost_before_it_began(
    short_leases: None, nursery: trio.Nursery
) -> None:
    steps = Steps()
    shared = SharedMemoryStore()
    parted = PartedStore(shared)
    async with one_site(steps.make, parted) as a, one_site(steps.make, shared) as b:
        session = await a.open_session()
        steps.go.release()
        async with calling(a, session, "advance", {"count": 9}) as events:
            await events.next()
            parted.is_cut_off = True
            steps.go.release()
            ended: list[Any] = []

            async def call_late() -> None:
                opening = calling(a, session, "advance", {"count": 9}, id=8, patience=9)
                async with opening as late:
                    ended.append(await late.rest())

            async with trio.open_nursery() as calls:
                calls.start_soon(call_late)
                await trio.sleep(0.1)
                # The earlier call takes one of them.
                steps.go.release()
                steps.go.release()
                async with getting(b, session, events.ids[-1]) as resumed:
                    (reply,) = await resumed.rest()
                    assert "was lost" in reply["error"]["message"]
                parted.is_cut_off = False
            assert ended == [[]]


async def test_a_stream_is_resumed_at_another_process_only_with_its_scopes() -> None:
    steps = Steps()

    async def verify(token: str) -> Principal:
        name, _, scope = token.partition("+")
        return Principal(name, frozenset({scope} if scope else ()))

    def make_guarded() -> Server:
        server = steps.make()
        server.access = Access(verify)
        return server

    async with two_sites(make_guarded) as (a, b):
        wide = {"Authorization": "Bearer me+admin"}
        session = await a.open_session(headers=wide)
        session.update(wide)
        steps.go.release()
        async with calling(a, session, "advance", {"count": 9}) as events:
            await events.next()
        resuming = {**session, "Last-Event-ID": events.ids[-1]}
        resuming["Authorization"] = "Bearer me"
        assert (await b.send("GET", "/mcp", resuming)).status == 403
        async with getting(b, session, events.ids[0]) as resumed:
            assert (await resumed.next())["params"]["progress"] == 1


@pytest.mark.thorough
async def test_a_cancelled_request_has_no_stream_to_resume_anywhere() -> None:
    steps = Steps()
    async with two_sites(steps.make) as (a, b):
        session = await a.open_session()
        steps.go.release()
        async with calling(a, session, "advance", {"count": 9}) as events:
            await events.next()
            last = events.ids[-1]
            async with getting(b, session, last) as resumed:
                note = {
                    "jsonrpc": "2.0",
                    "method": "notifications/cancelled",
                    "params": {"requestId": 7},
                }
                assert (await b.post(note, session)).status == 202
                assert await events.rest() == []
                assert await resumed.rest() == []
        refused = await b.send("GET", "/mcp", {**session, "Last-Event-ID": last})
        assert refused.status == 400
