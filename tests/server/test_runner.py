"""A request runs in the turn of its reader until it first waits."""

import gc
import json
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Context, Limits, Server, ToolError
from tests.support.checked import (
    Line,
    call,
    cancelled,
    connect,
    initialize,
    opened,
    ping,
    raw,
    request,
)

R = "2025-11-25"
SEEN: ContextVar[str] = ContextVar("SEEN", default="nothing")


def text(reply: Any) -> Any:
    return reply["result"]["content"][0]["text"]


class Office:
    """A server whose tools wait for each other, or for nothing."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("x", **options)
        self.gates: dict[str, trio.Event] = {}
        self.ended: list[str] = []
        for tool in (
            self.say,
            self.wait,
            self.sleep,
            self.fail,
            self.remember,
            self.busy,
        ):
            self.server.add_tool(tool)

    def gate(self, name: str) -> trio.Event:
        return self.gates.setdefault(name, trio.Event())

    async def say(self, word: str) -> str:
        return word

    async def wait(self, name: str) -> str:
        try:
            await self.gate(name).wait()
            return name
        finally:
            self.ended.append(name)

    async def sleep(self, seconds: float) -> str:
        try:
            await trio.sleep(seconds)
            return str(seconds)
        finally:
            self.ended.append(str(seconds))

    async def fail(self, late: bool = False) -> str:
        if late:
            await trio.lowlevel.checkpoint()
        raise RuntimeError("no")

    async def remember(self, word: str, waits: int = 0) -> list[Any]:
        """What is remembered at first, and after each wait."""
        seen = [SEEN.get()]
        SEEN.set(word)
        for _ in range(waits):
            await trio.lowlevel.checkpoint()
            seen.append(SEEN.get())
        return [*seen, SEEN.get()]

    async def busy(self, milliseconds: float) -> str:
        end = time.perf_counter() + milliseconds / 1000
        while time.perf_counter() < end:
            pass
        return "done"


def say(id: Any, word: str = "x") -> Any:
    return call(R, id, "say", {"word": word})


async def test_calls_that_do_not_wait_are_answered_in_order() -> None:
    async with opened(Office().server, R) as client:
        replies = await client.exchange(*[say(id, str(id)) for id in range(500)])
    assert [(reply["id"], text(reply)) for reply in replies] == [
        (id, str(id)) for id in range(500)
    ]


async def test_calls_that_wait_run_together_and_are_answered_when_they_are_ready() -> (
    None
):
    office = Office()
    async with opened(office.server, R) as client:
        calls = [call(R, name, "wait", {"name": name}) for name in "abc"]
        (at_once,) = await client.exchange(*calls[:2], say("now"), calls[2])
        assert at_once["id"] == "now"
        for name in "cab":
            office.gate(name).set()
            (reply,) = await client.quiet()
            assert (reply["id"], text(reply)) == (name, name)


async def test_a_message_behind_one_that_waits_is_served_in_the_same_batch_of_messages() -> (
    None
):
    office = Office()
    async with opened(office.server, R) as client:
        messages = [
            m
            for n in range(50)
            for m in (call(R, f"w{n}", "wait", {"name": "go"}), say(n))
        ]
        replies = await client.exchange(*messages)
        assert [reply["id"] for reply in replies] == list(range(50))
        office.gate("go").set()
        assert len(await client.quiet()) == 50


@pytest.mark.load
@pytest.mark.slow
async def test_ten_thousand_calls_in_flight() -> None:
    office = Office()
    async with raw(office.server) as client:
        await client.open(R)
        assert (
            await client.exchange(
                *[call(R, id, "wait", {"name": "go"}) for id in range(10_000)]
            )
            == []
        )
        (pong,) = await client.exchange(ping(R))
        assert pong["id"] == "ping"
        office.gate("go").set()
        replies = await client.quiet()
    assert sorted(reply["id"] for reply in replies) == list(range(10_000))


# Context variables


async def test_what_a_tool_puts_in_a_context_variable_does_not_reach_the_next_request() -> (
    None
):
    async with opened(Office().server, R) as client:
        calls = [
            call(R, id, "remember", {"word": f"w{id}", "waits": id % 3})
            for id in range(12)
        ]
        replies = await client.exchange(
            *calls, *[{**one, "id": one["id"] + 100} for one in calls]
        )
    assert len(replies) == 24
    for reply in replies:
        first, *later = [item["text"] for item in reply["result"]["content"]]
        assert first == "nothing"
        assert set(later) == {f"w{reply['id'] % 100}"}


async def test_a_context_variable_set_around_the_server_is_seen_by_tools() -> None:
    token = SEEN.set("outside")
    try:
        async with opened(Office().server, R) as client:
            replies = await client.exchange(
                *[
                    call(R, id, "remember", {"word": "w", "waits": id})
                    for id in (0, 1, 2)
                ]
            )
        assert [reply["result"]["content"][0]["text"] for reply in replies] == [
            "outside"
        ] * 3
    finally:
        SEEN.reset(token)


async def test_a_token_of_a_context_variable_is_good_across_the_first_wait() -> None:
    server = Server("x")

    @server.tool
    async def set_and_reset() -> str:
        token = SEEN.set("inside")
        await trio.lowlevel.checkpoint()
        SEEN.reset(token)
        return SEEN.get()

    async with opened(server, R) as client:
        (reply,) = await client.exchange(call(R, 1, "set_and_reset"))
    assert text(reply) == "nothing"


async def test_a_thread_sees_the_context_of_its_request() -> None:
    server = Server("x")

    @server.tool
    def look() -> str:
        return SEEN.get()

    token = SEEN.set("outside")
    try:
        async with connect(server) as client:
            assert (await client.call_tool("look")).text == "outside"
    finally:
        SEEN.reset(token)


# Fairness


async def test_a_flood_of_calls_lets_other_conversations_go_on() -> None:
    office = Office()
    flooding, other = Line(), Line()
    async with office.server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(flooding.serve, office.server)
        nursery.start_soon(other.serve, office.server)
        for line in (flooding, other):
            line.ours.send(
                b'{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{}}'
            )
        await trio.testing.wait_all_tasks_blocked()
        await flooding.ours.receive()
        await other.ours.receive()
        flooding.ours.send(json.dumps(initialize(R)).encode())
        calls = [
            json.dumps(call(R, id, "busy", {"milliseconds": 0.5})).encode()
            for id in range(200)
        ]
        for one in calls:
            flooding.ours.send(one)
        await trio.lowlevel.checkpoint()
        other.ours.send(json.dumps(request("hello", "ping")).encode())
        await other.ours.receive()
        flooding.end()
        answered = len(await flooding.ours.receive())
        assert answered < 150
        nursery.cancel_scope.cancel()


# What tools may do


async def run_tool(tool: Any, **arguments: Any) -> Any:
    """Return a tool's reply, sent among other requests."""
    server = Office().server
    server.add_tool(tool, name="tool")
    async with opened(server, R) as client:
        client.send(say("before"), call(R, "tool", "tool", arguments), say("behind"))
        replies = {reply["id"]: reply for reply in await client.replies(3)}
    return text(replies["tool"])


async def test_a_cancel_scope_across_the_first_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def tool() -> str:
        with trio.move_on_after(1) as scope:
            await trio.sleep_forever()
        with trio.move_on_after(1) as again:
            await trio.sleep_forever()
        return f"{scope.cancelled_caught} {again.cancelled_caught}"

    assert await run_tool(tool) == "True True"


async def test_a_tool_may_cancel_its_own_scope_before_it_first_waits() -> None:
    async def tool() -> str:
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.lowlevel.checkpoint()
            return "not cancelled"
        return "cancelled"

    assert await run_tool(tool) == "cancelled"


async def test_a_nursery_across_the_first_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def tool() -> str:
        done = []

        async def part(number: int) -> None:
            await trio.sleep(number)
            done.append(number)

        async with trio.open_nursery() as nursery:
            for number in (3, 1, 2):
                nursery.start_soon(part, number)
        return str(done)

    assert await run_tool(tool) == "[1, 2, 3]"


async def test_no_deadline_is_a_tools_unless_it_has_a_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def tool() -> str:
        first = trio.current_effective_deadline()
        await trio.lowlevel.checkpoint()
        return f"{first} {trio.current_effective_deadline()}"

    assert await run_tool(tool) == "inf inf"


async def test_a_tool_may_use_a_shield_within_a_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def tool() -> str:
        with trio.move_on_after(1):
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
        return str(trio.current_time() >= 2)

    assert await run_tool(tool) == "True"


async def test_a_tool_may_use_an_async_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            yield number

    async def tool() -> str:
        return str([number async for number in numbers()])

    assert await run_tool(tool) == "[0, 1, 2]"


async def test_a_tool_may_use_a_channel_a_lock_and_a_thread() -> None:
    lock = trio.Lock()

    async def tool() -> str:
        sender, receiver = trio.open_memory_channel[int](0)
        async with lock, trio.open_nursery() as nursery:
            nursery.start_soon(sender.send, 5)
            number = await receiver.receive()
        return str(await trio.to_thread.run_sync(lambda: number + 1))

    assert await run_tool(tool) == "6"
    assert not lock.locked()


async def test_two_tools_with_one_lock() -> None:
    server, lock, order = Server("x"), trio.Lock(), []

    @server.tool
    async def locked(name: str) -> str:
        async with lock:
            order.append(f"{name} in")
            await trio.lowlevel.checkpoint()
            order.append(f"{name} out")
        return name

    async with opened(server, R) as client:
        await client.exchange(
            *[call(R, name, "locked", {"name": name}) for name in "abc"]
        )
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]


async def test_a_tool_that_raises_stop_iteration_fails() -> None:
    server = Server("x")

    @server.tool
    async def stop() -> str:
        raise StopIteration("x")

    @server.tool
    async def stop_late() -> str:
        await trio.lowlevel.checkpoint()
        return str(next(iter([])))

    @server.tool
    def stop_in_thread() -> str:
        return str(next(iter([])))

    async with opened(server, R) as client:
        client.send(
            *[call(R, name, name) for name in ("stop", "stop_late", "stop_in_thread")]
        )
        for reply in await client.replies(3):
            assert text(reply).startswith("Internal error"), reply


@pytest.mark.parametrize("late", [False, True])
async def test_a_failing_tool_never_ends_the_server(late: bool) -> None:
    async with opened(Office().server, R) as client:
        replies = await client.exchange(
            *[call(R, id, "fail", {"late": late}) for id in range(100)]
        )
        assert len(replies) == 100
        assert len(await client.exchange(ping(R))) == 1


async def test_a_task_in_a_nursery_of_the_server_outlives_the_tool_that_started_it() -> (
    None
):
    server, noted = Server("x"), []

    @server.lifespan
    async def lifespan() -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()

    async def later() -> None:
        await trio.lowlevel.checkpoint()
        noted.append("done")

    @server.tool
    async def begin(ctx: Context) -> str:
        ctx.lifespan.start_soon(later)
        return "begun"

    async with connect(server) as client:
        assert (await client.call_tool("begin")).text == "begun"
        await trio.testing.wait_all_tasks_blocked()
    assert noted == ["done"]


# The end of the input


async def test_what_runs_at_the_end_of_the_input_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    office = Office(grace=5)
    async with opened(office.server, R) as client:
        client.send(
            *[call(R, id, "sleep", {"seconds": id}) for id in (1, 2, 4)], say("x")
        )
        client.end()
        await client.ended()
        assert [reply["id"] for reply in await client.replies(4)] == ["x", 1, 2, 4]
        assert trio.current_time() < 4.5


async def test_what_does_not_end_within_the_grace_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    office = Office(grace=5)
    async with opened(office.server, R) as client:
        client.send(*[call(R, id, "sleep", {"seconds": id}) for id in (1, 6, 1000)])
        begun = trio.current_time()
        client.end()
        await client.ended()
        assert 5 <= trio.current_time() - begun < 5.1
        assert [reply["id"] for reply in await client.quiet()] == [1]
    assert sorted(office.ended) == ["1.0", "1000.0", "6.0"]


@pytest.mark.parametrize("late", [False, True])
async def test_a_tool_that_asks_learns_that_the_client_has_gone(
    late: bool, autojump_clock: trio.testing.MockClock
) -> None:
    server = Server("x", grace=5)

    @server.tool
    async def ask(ctx: Context) -> str:
        if late:
            await trio.sleep(1)
        return str(await ctx.roots())

    async with raw(server) as client:
        await client.exchange(initialize(R, capabilities={"roots": {}}))
        client.send(call(R, 1, "ask"))
        await trio.testing.wait_all_tasks_blocked()
        client.end()
        await client.ended()
        reply = (await client.quiet())[-1]
    assert text(reply) == "the client disconnected before it answered roots/list"
    assert trio.current_time() < 2


async def test_nothing_is_sent_about_a_request_that_has_ended() -> None:
    server, contexts = Server("x"), []

    @server.tool
    async def keep(ctx: Context) -> str:
        contexts.append(ctx)
        return "kept"

    async with opened(server, R) as client:
        message = call(R, 1, "keep")
        message["params"]["_meta"] = {"progressToken": "t"}
        (reply,) = await client.exchange(message)
        assert text(reply) == "kept"
        await contexts[0].progress(1)
        await contexts[0].log("error", "late")
        assert await client.quiet() == []


# A tool that waited in its last call starts in its own task


async def test_what_is_expected_to_wait_begins_before_what_cancels_it() -> None:
    office = Office()
    async with opened(office.server, R) as client:
        client.send(call(R, 0, "wait", {"name": "first"}))
        office.gate("first").set()
        assert [reply["id"] for reply in await client.replies(1)] == [0]
        cancelled = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 1},
        }
        client.send(call(R, 1, "wait", {"name": "never"}), cancelled)
        assert await client.quiet() == []
        client.send(call(R, 1, "wait", {"name": "later"}))
        office.gate("later").set()
        assert text((await client.replies(1))[0]) == "later"
        assert await client.quiet() == []
    assert office.ended == ["first", "never", "later"]


async def test_calls_begin_in_the_order_in_which_they_came() -> None:
    server, begun = Server("x"), []

    @server.tool
    async def slow(number: int) -> str:
        begun.append(number)
        await trio.lowlevel.checkpoint()
        return "slow"

    @server.tool
    async def quick(number: int) -> str:
        begun.append(number)
        return "quick"

    async with opened(server, R) as client:
        await client.exchange(call(R, "first", "slow", {"number": 0}))
        for _ in range(10):
            tools = ["quick", "slow", "slow", "quick", "slow", "quick"]
            await client.exchange(
                *[call(R, id, name, {"number": id}) for id, name in enumerate(tools, 1)]
            )
    assert begun == [0, *[1, 2, 3, 4, 5, 6] * 10]


async def test_an_id_in_use_is_refused_also_where_its_request_has_not_begun() -> None:
    office = Office()
    async with opened(office.server, R) as client:
        client.send(call(R, 0, "wait", {"name": "first"}))
        office.gate("first").set()
        await client.replies(1)
        client.send(
            call(R, 1, "wait", {"name": "second"}),
            call(R, 1, "wait", {"name": "third"}),
        )
        (refused,) = await client.replies(1)
        assert (
            refused["error"]["message"]
            == "Invalid request: $.id: 1 belongs to a request that is still running"
        )
        office.gate("second").set()
        assert text((await client.replies(1))[0]) == "second"


async def test_what_waits_no_more_is_answered_all_the_same() -> None:
    office = Office()
    async with opened(office.server, R) as client:
        for id in range(3):
            client.send(call(R, id, "wait", {"name": "open"}))
            office.gate("open").set()
            assert text((await client.replies(1))[0]) == "open"
        await client.exchange(call(R, 9, "say", {"word": "hello"}))
    assert office.server.tools_that_wait == {"wait"}


# WorkerThreads


async def test_fifty_blocking_tools_do_not_hold_up_a_ping() -> None:
    server = Server("x")
    go = threading.Event()

    @server.tool
    def block() -> str:
        go.wait(10)
        return "done"

    async with opened(server, R) as client:
        client.send(*[call(R, id, "block") for id in range(50)])
        client.send(ping(R))
        first = await client.receive_json()
        go.set()
        replies = await client.replies(50)
    assert first["id"] == "ping"
    assert sorted(reply["id"] for reply in replies) == list(range(50))


async def test_no_more_threads_than_there_may_be() -> None:
    server, all_three = Server("x", limits=Limits(threads=3)), threading.Barrier(3)
    running: list[int] = []
    most: list[int] = []

    @server.tool
    def block() -> str:
        running.append(1)
        most.append(len(running))
        all_three.wait()
        running.pop()
        return "done"

    async with opened(server, R) as client:
        client.send(*[call(R, id, "block") for id in range(21)])
        assert len(await client.replies(21)) == 21
    assert max(most) == 3


async def test_a_call_that_is_cancelled_before_a_thread_is_free_is_never_made() -> None:
    server, go = Server("x", limits=Limits(threads=1)), threading.Event()
    made: list[str] = []

    @server.tool
    def block(name: str) -> str:
        made.append(name)
        go.wait(5)
        return name

    async with opened(server, R) as client:
        client.send(
            *[
                call(R, name, "block", {"name": name})
                for name in ("first", "second", "third")
            ]
        )
        await trio.testing.wait_all_tasks_blocked()
        client.send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": "second"},
            }
        )
        await trio.testing.wait_all_tasks_blocked()
        go.set()
        assert sorted(reply["id"] for reply in await client.replies(2)) == [
            "first",
            "third",
        ]
    assert made == ["first", "third"]


async def test_what_a_thread_sets_in_its_context_stays_there() -> None:
    server, variable = Server("x"), ContextVar("variable", default="unset")

    @server.tool
    def change() -> str:
        before = variable.get()
        variable.set("set")
        return before

    async with connect(server, R) as client:
        assert [(await client.call_tool("change")).text for _ in range(2)] == [
            "unset",
            "unset",
        ]


@pytest.mark.parametrize("failure", [StopIteration, SystemExit, KeyError])
async def test_an_exception_in_a_thread_ends_only_its_own_call(
    failure: type[BaseException],
) -> None:
    server = Server("x")

    @server.tool
    def fail() -> str:
        raise failure

    async with connect(server, R) as client:
        for _ in range(2):
            assert "Internal error" in (await client.call_tool("fail")).text
        await client.ping()


async def test_a_blocking_tool_may_use_its_context() -> None:
    server = Server("x")

    @server.tool
    def count(ctx: Context) -> str:
        trio.from_thread.run(ctx.progress, 1)
        return ctx.revision

    async with connect(server, R) as client:
        result = await client.call_tool("count", meta={"progressToken": "t"})
        assert result.text == R
        assert [message["method"] for message in client.heard] == [
            "notifications/progress"
        ]


async def test_a_tool_that_leaves_a_cancel_scope_open_spoils_only_its_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("leaky")

    @server.tool
    async def leaky(wait: float = 0) -> str:
        await trio.sleep(wait) if wait else None
        trio.move_on_after(0.3).__enter__()
        return "ok"

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with connect(server) as client:
        for wait in (0, 0.1):
            assert (await client.call_tool("leaky", {"wait": wait})).text == "ok"
            await trio.sleep(1)
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


async def test_a_cancel_scope_that_was_left_open_does_not_cancel_other_requests() -> (
    None
):
    server = Server("leaky")

    @server.tool
    async def leaky() -> str:
        trio.move_on_after(0.3).__enter__()
        return "ok"

    @server.tool
    async def wait() -> str:
        await trio.sleep(1)
        return "waited"

    async with connect(server) as client:
        assert (await client.call_tool("leaky")).text == "ok"
        with trio.fail_after(30):
            assert (await client.call_tool("wait")).text == "waited"


async def test_a_cancelled_that_was_kept_and_is_raised_again_is_a_failure_of_the_tool() -> (
    None
):
    server, kept = Server("keeping"), list[BaseException]()

    @server.tool
    async def keep(wait: bool) -> str:
        if not kept:
            with trio.move_on_after(0.1):
                try:
                    await trio.sleep_forever()
                except trio.Cancelled as cancelled:
                    kept.append(cancelled)
                    raise
        if wait:
            await trio.sleep(0.1)
        raise kept[0]

    async with connect(server) as client:
        for wait in (False, True, False):
            assert (
                "Internal error (reference"
                in (await client.call_tool("keep", {"wait": wait})).text
            )


async def test_the_errors_of_all_tasks_of_a_tool_are_reported() -> None:
    server = Server("grouped")

    @server.tool
    async def both() -> str:
        async def fail(words: str) -> None:
            raise ToolError(words)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, "the first")
            nursery.start_soon(fail, "the second")
        return "never"

    async with connect(server) as client:
        result = await client.call_tool("both")
        assert result.is_error
        assert sorted(result.text.split("\n")) == ["the first", "the second"]


async def test_a_generator_exit_of_a_tool_is_its_own_failure() -> None:
    server = Server("leaving")

    @server.tool
    async def leave() -> str:
        raise GeneratorExit

    async with connect(server) as client:
        assert (await client.call_tool("leave")).is_error
        assert (await client.call_tool("leave")).is_error


class Argument:
    """A value that a request keeps while it runs."""


@pytest.mark.parametrize("reason", ["cancelled", "given up"])
async def test_a_stopped_request_is_not_in_a_reference_cycle(reason: str) -> None:
    server = Server("x")
    arguments: list[weakref.ref[Argument]] = []

    @server.tool
    async def wait(note: str) -> None:
        argument = Argument()
        arguments.append(weakref.ref(argument))
        await trio.sleep_forever()

    gc.disable()
    try:
        async with opened(server, R) as client:
            client.send(call(R, 1, "wait", {"note": "x" * 1000}))
            await trio.testing.wait_all_tasks_blocked()
            assert arguments[0]() is not None
            if reason == "cancelled":
                client.send(cancelled(1))
            else:
                assert server.ledger.relieve()
            await trio.testing.wait_all_tasks_blocked()
            assert arguments[0]() is None
    finally:
        gc.enable()
