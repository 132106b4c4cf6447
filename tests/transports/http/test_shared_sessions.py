"""Sessions that several processes serve."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from mcp_trio import Context, Principal, Server
from mcp_trio.transports.http.sessions import Sessions
from tests.support.http_wire import Signals, Site, make_server, message
from tests.support.shared_sites import (
    SharedMemoryStore,
    calling,
    getting,
    listening,
    two_sites,
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


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_session_of_one_process_is_served_by_another(version: str) -> None:
    async with two_sites(make) as (a, b):
        session = await a.open_session(version)
        reply = await add(b, session)
        assert reply.status == 200
        assert reply.json["result"]["content"][0]["text"] == "3"


async def test_a_session_that_ends_at_one_process_ends_at_all() -> None:
    async with two_sites(make) as (a, b):
        session = await a.open_session()
        assert (await add(b, session)).status == 200
        assert (await b.send("DELETE", "/mcp", session)).status == 204
        assert (await add(b, session)).status == 404
        with trio.fail_after(1):
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

        with trio.fail_after(5):
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

    @server.tool
    async def places(ctx: Context) -> str:
        return ", ".join(root.uri for root in await ctx.roots())

    return server


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
            with trio.fail_after(5):
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


async def test_a_stream_of_one_process_is_resumed_at_another() -> None:
    steps = Steps()
    async with two_sites(steps.make) as (a, b):
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


async def test_an_event_of_no_stream_is_refused() -> None:
    async with two_sites(make) as (a, b):
        session = await a.open_session()
        for event in ("x", "x-1", "abc.1-1", "abc.1-x"):
            reply = await b.send("GET", "/mcp", {**session, "Last-Event-ID": event})
            assert reply.status == 400, event


async def test_a_client_has_a_bounded_number_of_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sessions, "max_sessions", 3)
    async with two_sites(make) as (a, b):
        sessions = [await a.open_session() for _ in range(4)]
        assert (await add(b, sessions[3])).status == 200
        with trio.fail_after(5):
            while (await add(b, sessions[0])).status != 404:
                pass


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
