"""Calls that are expected to wait run in tasks that are used again."""

import gc
import weakref
from contextvars import ContextVar

import pytest
import trio

from mcp_trio import Server
from mcp_trio.server import call_tasks
from mcp_trio.server.serve_conversation import serve_conversation
from mcp_trio.transports.send_queue import QueuedWire, SendQueue
from tests.support.checked import call, connect, opened

R = "2025-11-25"
NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


def make_server() -> tuple[Server, list[trio.lowlevel.Task]]:
    """Return a server whose tools wait, and the tasks that they ran in."""
    server = Server("x")
    tasks: list[trio.lowlevel.Task] = []

    @server.tool
    async def wait(seconds: float = 1) -> str:
        tasks.append(trio.lowlevel.current_task())
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    async def remember(name: str) -> str:
        before = NAME.get()
        NAME.set(name)
        await trio.sleep(1)
        return f"{before} {NAME.get()}"

    @server.tool
    async def leak() -> str:
        await trio.sleep(1)
        trio.move_on_after(0).__enter__()
        return "leaked"

    return server, tasks


async def test_the_next_call_uses_the_task_of_one_that_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, tasks = make_server()
    async with connect(server, R) as client:
        for _ in range(4):
            await client.call_tool("wait")
    assert tasks[1] is tasks[2] is tasks[3]


async def test_calls_at_once_have_tasks_of_their_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, tasks = make_server()
    async with opened(server, R) as client:
        client.send(call(R, 0, "wait"))
        await client.replies(1)
        for _ in range(2):
            tasks.clear()
            client.send(*[call(R, id, "wait") for id in range(5)])
            await client.replies(5)
            assert len(set(tasks)) == 5


async def test_context_variables_of_one_call_do_not_reach_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, _ = make_server()
    async with connect(server, R) as client:
        for name in ("ann", "bob", "cid", "dan"):
            result = await client.call_tool("remember", {"name": name})
            assert result.text == f"nobody {name}"


async def test_a_cancelled_call_does_not_cancel_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server, tasks = make_server()
    async with opened(server, R) as client:
        for id in range(3):
            client.send(call(R, id, "wait"))
            await client.replies(1)
        client.send(call(R, 7, "wait", {"seconds": 1000}))
        cancelled = {"requestId": 7}
        client.send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": cancelled,
            }
        )
        assert await client.quiet() == []
        client.send(call(R, 8, "wait"))
        (reply,) = await client.replies(1)
    assert reply["result"]["content"][0]["text"] == "waited"
    assert tasks[-1] is not tasks[-2]


async def test_a_task_with_an_open_cancel_scope_is_not_used_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = make_server()
    async with connect(server, R) as client:
        for _ in range(3):
            assert (await client.call_tool("leak")).text == "leaked"
            assert (await client.call_tool("wait")).text == "waited"
    assert "left a cancel scope open" in caplog.text


async def test_idle_tasks_are_bounded_and_end_with_the_conversation(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_tasks, "MOST_IDLE", 3)
    server, _ = make_server()
    async with connect(server, R) as first, connect(server, R) as second:
        for client in (first, second):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(client.call_tool, "wait")
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(client.call_tool, "wait")
        assert server.idle_tasks == 3
    assert server.idle_tasks == 0


async def test_calls_begin_before_many_more_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_tasks, "MOST_ABOUT_TO_BEGIN", 3)
    server, tasks = make_server()
    async with opened(server, R) as client:
        client.send(call(R, 0, "wait", {"seconds": 0}))
        await client.replies(1)
        calls = [call(R, id, "wait", {"seconds": 0}) for id in range(1, 31)]
        client.send(*calls)
        replies = await client.replies(30)
    assert {reply["id"] for reply in replies} == set(range(1, 31))
    # If all calls ran at once, each would need its own task.
    assert len(set(tasks)) <= 12


async def test_a_conversation_that_has_ended_is_not_in_a_reference_cycle() -> None:
    server, _ = make_server()
    incoming = SendQueue()
    outgoing = SendQueue()
    ended: list[weakref.ref[QueuedWire]] = []

    async def converse() -> None:
        wire = QueuedWire(incoming, outgoing)
        ended.append(weakref.ref(wire))
        await serve_conversation(server, wire)

    gc.disable()
    try:
        async with server.running(), trio.open_nursery() as nursery:
            nursery.start_soon(converse)
            incoming.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
            await outgoing.wait()
            incoming.close()
        assert ended[0]() is None
    finally:
        gc.enable()
