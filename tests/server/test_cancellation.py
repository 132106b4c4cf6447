"""A cancelled request stops and is not answered; other requests are."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from mcp_trio import AskFailed, Context, Server
from tests.support.checked import (
    ALL,
    NEWEST,
    OPENING,
    Json,
    RawClient,
    call,
    cancelled,
    connect,
    modern,
    notification,
    opened,
    ping,
    raw,
    request,
)

CANCELLING = [revision for revision in ALL if revision > "2024-10-07"]
R = "2025-11-25"


class Traces:
    """A server whose tools record how they end."""

    def __init__(self) -> None:
        self.server = Server("x", grace=1)
        self.noted: list[str] = []
        self.go_on = trio.Event()
        for tool in (
            self.wait,
            self.shield,
            self.catch,
            self.ask,
            self.quick,
            self.fail,
            self.nursery,
            self.gate,
        ):
            self.server.add_tool(tool)

    async def wait(self) -> str:
        self.noted.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            self.noted.append("cleaned up")
        return "never"

    async def shield(self) -> str:
        with trio.CancelScope(shield=True):
            await self.go_on.wait()
        self.noted.append("went on")
        return "done anyway"

    async def catch(self) -> str:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.noted.append("caught")
        return "caught"

    async def fail(self) -> str:
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("while it was cancelled")

    async def ask(self, ctx: Context) -> str:
        try:
            return str(await ctx.roots())
        except AskFailed as problem:
            self.noted.append(str(problem))
            raise

    async def nursery(self) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.wait)
            nursery.start_soon(self.wait)
        return "never"

    async def gate(self) -> str:
        await self.go_on.wait()
        return "through"

    async def quick(self) -> str:
        return "quick"


@asynccontextmanager
async def at(
    revision: str, capabilities: Json | None = None
) -> AsyncIterator[tuple[RawClient, Traces]]:
    traces = Traces()
    async with raw(traces.server, revision) as client:
        if revision in OPENING:
            opening = {"protocolVersion": revision, "capabilities": capabilities or {}}
            opening["clientInfo"] = {"name": "x", "version": "1"}
            await client.exchange(
                {"jsonrpc": "2.0", "id": "o", "method": "initialize", "params": opening}
            )
            client.send(notification("notifications/initialized"))
        yield client, traces


@pytest.mark.parametrize("id", [1, 0, -1, "", "one", 10**30])
@pytest.mark.parametrize("revision", CANCELLING)
async def test_a_running_request_stops_and_is_not_answered(
    revision: str, id: int | str
) -> None:
    async with at(revision) as (client, traces):
        await client.exchange(call(revision, id, "wait"))
        assert traces.noted == ["begun"]
        assert await client.exchange(cancelled(id)) == []
        assert traces.noted == ["begun", "cleaned up"]
        assert len(await client.exchange(ping(revision))) == 1


@pytest.mark.parametrize("revision", CANCELLING)
async def test_a_call_that_is_cancelled_in_the_same_chunk_is_not_answered(
    revision: str,
) -> None:
    async with at(revision) as (client, traces):
        replies = await client.exchange(
            call(revision, 1, "wait"), cancelled(1), ping(revision)
        )
        assert [reply["id"] for reply in replies] == ["ping"]
        assert traces.noted in (["begun", "cleaned up"], [])


@pytest.mark.parametrize("revision", CANCELLING)
async def test_cancelled_before_it_came_or_after_it_ended_or_twice(
    revision: str,
) -> None:
    async with at(revision) as (client, _):
        before = await client.exchange(
            cancelled(1), call(revision, 1, "quick"), cancelled(1), cancelled(1)
        )
        assert [reply["id"] for reply in before] == [1]
        again = await client.exchange(call(revision, 1, "quick"))
        assert [reply["id"] for reply in again] == [1]


@pytest.mark.parametrize("id", [99, "1", 1.0, None, [], True])
async def test_the_cancellation_of_an_unknown_id_is_ignored(id: object) -> None:
    async with at(R) as (client, traces):
        await client.exchange(call(R, 1, "gate"))
        assert await client.exchange(cancelled(id)) == []
        traces.go_on.set()
        (reply,) = await client.quiet()
        assert reply["id"] == 1


async def test_only_the_named_request_is_cancelled() -> None:
    async with at(R) as (client, traces):
        await client.exchange(*[call(R, id, "gate") for id in range(10)])
        assert await client.exchange(cancelled(0), cancelled(5)) == []
        traces.go_on.set()
        assert sorted(reply["id"] for reply in await client.quiet()) == [
            1,
            2,
            3,
            4,
            6,
            7,
            8,
            9,
        ]


@pytest.mark.parametrize("revision", ["2025-11-25", NEWEST])
async def test_a_thousand_times(revision: str) -> None:
    async with at(revision) as (client, traces):
        for _ in range(10):
            for id in range(100):
                client.send(call(revision, id, "wait"), cancelled(id))
            assert await client.quiet() == []
        assert traces.noted.count("begun") == traces.noted.count("cleaned up") == 1000
        assert len(await client.exchange(ping(revision))) == 1


@pytest.mark.parametrize("revision", CANCELLING)
async def test_a_tool_that_goes_on_all_the_same_is_not_answered(revision: str) -> None:
    async with at(revision) as (client, traces):
        await client.exchange(call(revision, 1, "shield"), call(revision, 2, "catch"))
        assert await client.exchange(cancelled(1), cancelled(2)) == []
        traces.go_on.set()
        assert await client.quiet() == []
        assert sorted(traces.noted) == ["caught", "went on"]


async def test_a_tool_that_fails_on_being_cancelled_is_not_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with at(R) as (client, _):
        await client.exchange(call(R, 1, "fail"))
        (pong,) = await client.exchange(cancelled(1), ping(R))
        assert pong["id"] == "ping"
    assert "while it was cancelled" in caplog.text


async def test_clean_up_after_a_cancellation_reports_no_progress() -> None:
    server = Server("x")
    cleaned_up = []

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await ctx.progress(2)
                await trio.lowlevel.checkpoint()
                await ctx.progress(3)
                cleaned_up.append(True)
        return "never"

    params = {"name": "work", "arguments": {}, "_meta": {"progressToken": "p"}}
    async with opened(server, R) as client:
        (progress,) = await client.exchange(request(1, "tools/call", params))
        assert progress["params"]["progress"] == 1
        assert await client.exchange(cancelled(1)) == []
    assert cleaned_up == [True]


async def test_everything_in_a_tools_nursery_stops() -> None:
    async with at(R) as (client, traces):
        await client.exchange(call(R, 1, "nursery"))
        assert await client.exchange(cancelled(1)) == []
    assert traces.noted == ["begun", "begun", "cleaned up", "cleaned up"]


@pytest.mark.parametrize(
    "revision", OPENING[1:]
)  # the first has neither roots nor cancellation
async def test_the_client_is_told_that_a_question_ended_with_its_request(
    revision: str,
) -> None:
    async with at(revision, {"roots": {}}) as (client, _):
        (question,) = await client.exchange(call(revision, 1, "ask"))
        assert question["method"] == "roots/list"
        (notice,) = await client.exchange(cancelled(1))
        assert notice["method"] == "notifications/cancelled"
        assert notice["params"]["requestId"] == question["id"]
        late = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
        assert await client.exchange(late) == []
        assert len(await client.exchange(ping(revision))) == 1


async def test_an_id_in_use_is_refused_and_is_free_again_afterwards() -> None:
    async with at(R) as (client, traces):
        await client.exchange(call(R, 1, "gate"))
        refused, other = await client.exchange(
            call(R, 1, "quick"), call(R, "1", "quick")
        )
        assert refused["error"]["code"] == -32600
        assert "$.id" in refused["error"]["message"]
        assert other["id"] == "1"
        traces.go_on.set()
        (reply,) = await client.quiet()
        assert reply["result"]["content"][0]["text"] == "through"
        (again,) = await client.exchange(call(R, 1, "quick"))
        assert again["id"] == 1


async def test_a_tool_in_a_thread_is_left_to_end_by_itself() -> None:
    server = Server("x")
    began, go_on, noted = trio.Event(), trio.Event(), []

    @server.tool
    def block() -> str:
        trio.from_thread.run_sync(began.set)
        while not noted:
            time.sleep(0.001)
        return "too late"

    async with opened(server, R) as client:
        client.send(call(R, 1, "block"))
        await began.wait()
        assert await client.exchange(cancelled(1)) == []
        noted.append("go on")
        (pong,) = await client.exchange(ping(R))
        assert pong["id"] == "ping"
        go_on.set()


async def test_a_client_that_stops_waiting_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    traces = Traces()
    async with connect(traces.server) as client:
        with trio.move_on_after(0.01):
            await client.call_tool("wait")
        await trio.testing.wait_all_tasks_blocked()
        assert traces.noted == ["begun", "cleaned up"]


# Timeouts


@pytest.mark.parametrize("revision", ALL)
async def test_a_tool_that_takes_too_long_is_stopped_and_has_cleaned_up(
    revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    server, noted = Server("x"), []

    @server.tool(timeout=2.5)
    async def wait() -> str:
        try:
            await trio.sleep_forever()
        finally:
            noted.append(trio.current_time())
        return "never"

    async with connect(server, revision) as client:
        begun = trio.current_time()
        result = await client.call_tool("wait")
    assert noted == [begun + 2.5]
    says = "wait took longer than 2.5 s and was stopped"
    assert result.get("toolResult", result.text) == says
    assert result.is_error or revision == "2024-10-07"


async def test_the_servers_timeout_holds_where_a_tool_has_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("x", timeout=2)

    @server.tool
    async def slow(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool(timeout=10, name="slower")
    async def slower(seconds: float) -> str:
        return await slow(seconds)

    async with connect(server) as client:
        assert (await client.call_tool("slow", {"seconds": 1})).text == "done"
        assert (await client.call_tool("slow", {"seconds": 3})).is_error
        assert (await client.call_tool("slower", {"seconds": 3})).text == "done"


async def test_a_listener_is_cancelled_without_a_reply() -> None:
    async with raw(Server("x"), NEWEST) as client:
        (acknowledged,) = await client.exchange(
            modern(1, "subscriptions/listen", {"notifications": {}})
        )
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert await client.exchange(cancelled(1)) == []
