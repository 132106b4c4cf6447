"""No client can take the worker threads that another client needs."""

import logging
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.lowlevel
import trio.testing

from mcp_trio import Limits, Server
from mcp_trio.protocol.errors import TooManyCalls
from mcp_trio.server.accounts import Account, account_of
from mcp_trio.server.conversation import Conversation
from mcp_trio.server.worker_threads import CHECK_INTERVAL, PATIENCE, WorkerThreads
from mcp_trio.transports.http.metrics import Metrics, thread_gauges
from tests.support.checked import call, cancelled, connect, opened

R = "2025-11-25"
ONE = Account("address", "192.0.2.1")
OTHER = Account("address", "192.0.2.2")
ALONE = Account("connection", "stdio", is_only_client=True)


class Blocking:
    """Calls that block in worker threads until they are released."""

    def __init__(self, most: int) -> None:
        self.threads = WorkerThreads(most)
        self.release = threading.Event()
        self.done: list[str] = []
        self.refused: list[str] = []
        self.begun = threading.Semaphore(0)

    def _block(self) -> None:
        self.begun.release()
        self.release.wait(10)

    async def call(self, account: Account, name: str = "") -> None:
        try:
            await self.threads.run(self._block, account, "tool block")
            self.done.append(name)
        except TooManyCalls as refusal:
            self.refused.append(str(refusal))

    async def have_begun(self, count: int) -> None:
        for _ in range(count):
            await trio.to_thread.run_sync(self.begun.acquire)


@asynccontextmanager
async def blocking(most: int) -> AsyncIterator[tuple[Blocking, trio.Nursery]]:
    """Yield such calls, and wait at the end until their threads have ended."""
    calls = Blocking(most)
    try:
        async with trio.open_nursery() as nursery:
            yield calls, nursery
            nursery.cancel_scope.cancel()
    finally:
        calls.release.set()
        with trio.CancelScope(shield=True):
            while calls.threads.busy or calls.threads.abandoned:
                await trio.lowlevel.checkpoint()


async def test_a_runtime_error_of_a_function_is_raised_as_it_is() -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await WorkerThreads(1).run(fail, ONE, "tool fail")


async def test_an_account_holds_at_most_three_quarters_of_the_threads() -> None:
    async with blocking(8) as (calls, nursery):
        for _ in range(20):
            nursery.start_soon(calls.call, ONE)
        await calls.have_begun(6)
        await trio.testing.wait_all_tasks_blocked()
        assert calls.threads.busy == 6
        assert calls.threads.waiting == 14
        nursery.start_soon(calls.call, OTHER)
        await calls.have_begun(1)
        assert calls.threads.busy == 7


async def test_abandoned_threads_count_toward_the_share_of_their_account() -> None:
    async with blocking(8) as (calls, nursery):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as one:
                for _ in range(6):
                    one.start_soon(calls.call, ONE)
                await calls.have_begun(6)
                scope.cancel()
        assert (calls.threads.busy, calls.threads.abandoned) == (0, 6)
        await calls.call(ONE)
        assert calls.refused == [
            "Busy: 6 worker threads are stuck in calls that you abandoned; "
            "try again in 1 s"
        ]
        nursery.start_soon(calls.call, OTHER, "other")
        await calls.have_begun(1)
        calls.release.set()
        while not calls.done or calls.threads.abandoned:
            await trio.lowlevel.checkpoint()
        assert calls.done == ["other"]


async def test_calls_that_wait_are_refused_when_all_threads_are_stuck() -> None:
    async with blocking(2) as (calls, nursery):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as stuck:
                stuck.start_soon(calls.call, ALONE)
                stuck.start_soon(calls.call, ALONE)
                await calls.have_begun(2)
                nursery.start_soon(calls.call, OTHER)
                await trio.testing.wait_all_tasks_blocked()
                assert calls.threads.waiting == 1
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        refusal = "Busy: all 2 worker threads are stuck in abandoned calls"
        assert calls.refused == [f"{refusal}; try again in 1 s"]
        assert calls.threads.waiting == 0


async def test_a_call_is_refused_when_no_thread_becomes_free_for_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    threads = WorkerThreads(1)
    release = threading.Event()

    async def hold() -> None:
        await threads.run(lambda: release.wait(10), ALONE, "tool hang")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        while not threads.busy:
            await trio.lowlevel.checkpoint()
        # The autojump clock stands still while a thread runs, so it is moved here.
        autojump_clock.autojump_threshold = float("inf")
        refusals: list[str] = []

        async def wait() -> None:
            with pytest.raises(TooManyCalls) as refused:
                await threads.run(int, OTHER, "tool int")
            refusals.append(str(refused.value))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(PATIENCE)
        await trio.testing.wait_all_tasks_blocked()
        assert refusals == [
            "Busy: no worker thread became free within 30 s; try again in 1 s"
        ]
        release.set()


@pytest.mark.parametrize(("most", "share"), [(2, 1), (4, 3)])
async def test_a_call_waits_while_threads_of_its_account_become_free(
    most: int, share: int, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    threads = WorkerThreads(most)
    first, others = threading.Event(), threading.Event()
    ended: list[str] = []

    async def run(call: Callable[[], object], name: str) -> None:
        await threads.run(call, ONE, "tool block")
        ended.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, lambda: first.wait(10), "first")
        for _ in range(share - 1):
            nursery.start_soon(run, lambda: others.wait(10), "other")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(run, lambda: others.wait(10), "other")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(run, int, "last")
        await trio.testing.wait_all_tasks_blocked()
        assert threads.waiting == 2

        autojump_clock.jump(PATIENCE - 1)
        first.set()
        while "first" not in ended:
            await trio.lowlevel.checkpoint()
        autojump_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()
        assert threads.waiting == 1
        others.set()
    assert "last" in ended


async def test_a_call_is_refused_when_only_threads_of_others_become_free(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    threads = WorkerThreads(2)  # each account may use one
    first, second, of_other = (threading.Event() for _ in range(3))
    ended: list[str] = []
    refused: list[str] = []

    async def run(account: Account, name: str, event: threading.Event) -> None:
        try:
            await threads.run(lambda: event.wait(10), account, "tool block")
            ended.append(name)
        except TooManyCalls:
            refused.append(name)

    async def has_ended(name: str) -> None:
        while name not in ended:
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, OTHER, "of another", of_other)
        for name, event in (("first", first), ("second", second), ("last", second)):
            nursery.start_soon(run, ONE, name, event)
            await trio.testing.wait_all_tasks_blocked()
        first.set()
        await has_ended("first")
        autojump_clock.jump(PATIENCE - 1)
        of_other.set()
        await has_ended("of another")
        autojump_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()
        assert refused == ["last"]
        second.set()


async def test_a_call_that_has_not_waited_for_long_is_not_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    async with blocking(1) as (calls, nursery):
        nursery.start_soon(calls.call, ALONE, "first")
        await calls.have_begun(1)
        nursery.start_soon(calls.call, ALONE, "early")
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(PATIENCE / 2)
        nursery.start_soon(calls.call, ALONE, "late")
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(PATIENCE / 2)
        await trio.testing.wait_all_tasks_blocked()
        assert len(calls.refused) == 1
        assert calls.threads.waiting == 1
        calls.release.set()
        while len(calls.done) < 2:
            await trio.lowlevel.checkpoint()
    assert calls.done == ["first", "late"]


async def test_calls_wait_while_threads_become_free(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    threads = WorkerThreads(1)
    turns = [threading.Event() for _ in range(4)]
    done: list[int] = []

    async def run(number: int) -> None:
        await threads.run(lambda: turns[number].wait(10), ALONE, "tool wait")
        done.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(len(turns)):
            nursery.start_soon(run, number)
            await trio.testing.wait_all_tasks_blocked()
        for number, turn in enumerate(turns):
            autojump_clock.jump(PATIENCE * 0.75)
            await trio.testing.wait_all_tasks_blocked()
            turn.set()
            while number not in done:
                await trio.lowlevel.checkpoint()
    assert done == [0, 1, 2, 3]


async def test_the_check_for_stalled_calls_ends_when_none_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    before = trio.lowlevel.current_statistics().tasks_living
    async with blocking(1) as (calls, nursery):
        for _ in range(2):
            nursery.start_soon(calls.call, ALONE)
        await calls.have_begun(1)
        calls.release.set()
        while len(calls.done) < 2:
            await trio.lowlevel.checkpoint()
    autojump_clock.jump(CHECK_INTERVAL)
    await trio.testing.wait_all_threads_completed()
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_a_thread_has_the_name_of_its_tool() -> None:
    server = Server("x")

    @server.tool
    def name() -> str:
        return threading.current_thread().name

    async with connect(server) as client:
        assert (await client.call_tool("name")).text == "tool name"


async def test_a_freed_thread_goes_to_each_account_in_turn() -> None:
    threads = WorkerThreads(1)
    order: list[str] = []
    first = threading.Event()

    async def run(account: Account, name: str) -> None:
        await threads.run(lambda: order.append(name), account, "tool note")

    async def block() -> None:
        await threads.run(lambda: first.wait(10), OTHER, "tool block")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(block)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(3):
            nursery.start_soon(run, ONE, f"one {number}")
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(run, OTHER, "other")
        await trio.testing.wait_all_tasks_blocked()
        first.set()
    assert order == ["one 0", "other", "one 1", "one 2"]


async def test_a_call_that_is_cancelled_while_it_waits_gives_its_turn_away() -> None:
    async with blocking(1) as (calls, nursery):
        nursery.start_soon(calls.call, ALONE, "first")
        await calls.have_begun(1)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as impatient:
                impatient.start_soon(calls.call, ALONE, "cancelled")
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(calls.call, ALONE, "last")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert calls.threads.waiting == 1
        calls.release.set()
        while len(calls.done) < 2:
            await trio.lowlevel.checkpoint()
    assert calls.done == ["first", "last"]
    assert (calls.threads.busy, calls.threads.abandoned) == (0, 0)


async def test_on_stdio_the_connection_may_hold_every_thread() -> None:
    server = Server("x", limits=Limits(threads=4))
    barrier = threading.Barrier(4)

    @server.tool
    def meet() -> str:
        barrier.wait(10)
        return "met"

    async with opened(server, R) as client:
        client.send(*[call(R, id, "meet") for id in range(4)])
        assert len(await client.replies(4)) == 4


@pytest.mark.parametrize("reason", ["timeout", "cancellation"])
async def test_a_thread_sees_a_timeout_and_a_cancellation(reason: str) -> None:
    server = Server("x")
    begun = trio.Event()
    ended = threading.Event()

    @server.tool(timeout=0.01 if reason == "timeout" else None)
    def work() -> str:
        trio.from_thread.run_sync(begun.set)
        try:
            while not ended.wait(0.001):
                trio.from_thread.check_cancelled()
        except trio.Cancelled:
            ended.set()
            raise
        return "not stopped"

    async with opened(server, R) as client:
        client.send(call(R, 1, "work"))
        await begun.wait()
        if reason == "cancellation":
            client.send(cancelled(1))
        with trio.fail_after(30):
            await trio.to_thread.run_sync(ended.wait)
            threads = server.environment.worker_threads
            assert threads is not None
            while threads.abandoned:
                await trio.lowlevel.checkpoint()


async def test_an_abandoned_thread_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    server = Server("x", limits=Limits(threads=2))
    begun, release = threading.Event(), threading.Event()

    @server.tool(timeout=1)
    def block() -> None:
        begun.set()
        release.wait(10)

    caplog.set_level(logging.WARNING, "mcp_trio")
    async with opened(server, R) as client:
        client.send(call(R, 1, "block"))
        await trio.to_thread.run_sync(begun.wait)
        autojump_clock.jump(1)
        await client.receive_json()
        threads = server.environment.worker_threads
        assert threads is not None
        assert (threads.busy, threads.abandoned) == (0, 1)
        expected = (
            "tool block was cancelled, but its thread still runs: "
            "1 of 2 worker threads are abandoned"
        )
        assert expected in caplog.messages
        release.set()
        while threads.abandoned:
            await trio.lowlevel.checkpoint()


async def test_the_metrics_count_busy_and_abandoned_threads() -> None:
    async with blocking(8) as (calls, nursery):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as one:
                one.start_soon(calls.call, ONE)
                await calls.have_begun(1)
                scope.cancel()
        nursery.start_soon(calls.call, OTHER)
        await calls.have_begun(1)
        lines = Metrics().render(thread_gauges(calls.threads)).decode().splitlines()
        assert 'mcp_worker_threads{state="busy"} 1' in lines
        assert 'mcp_worker_threads{state="abandoned"} 1' in lines
        assert "mcp_worker_threads_limit 8" in lines
        assert "mcp_worker_threads_waiting 0" in lines


async def test_limits_that_are_replaced_change_the_number_of_threads() -> None:
    server = Server("x")
    async with connect(server):
        server.use_limits(Limits(threads=3))
        assert server.environment.worker_threads is not None
        assert server.environment.worker_threads.most == 3


def test_a_principal_an_address_and_a_connection_are_different_accounts() -> None:
    from mcp_trio.auth.principal import Principal, owner
    from mcp_trio.protocol.revisions import REVISIONS, Revisions
    from mcp_trio.protocol.session import Session
    from mcp_trio.protocol.types import Implementation
    from mcp_trio.transports.memory import memory_pair

    revisions = Revisions(Implementation("x", "1"), None, REVISIONS)
    channel, _ = memory_pair()

    def conversation(transport: str, address: str = "") -> Conversation:
        session = Session(revisions)
        return Conversation(session, channel, transport=transport, address=address)

    web = conversation("http", "192.0.2.1")
    named = account_of(web, Principal("192.0.2.1"))
    assert named == Account("principal", "192.0.2.1")
    assert account_of(web, None) == Account("address", "192.0.2.1")
    stdio = conversation("stdio")
    assert account_of(stdio, owner()) == Account(
        "connection", stdio, is_only_client=True
    )
    unknown = conversation("ws")
    assert account_of(unknown, None) == Account("connection", unknown)


THREADLESS = """
import logging, resource, threading
import trio, trio.testing
from mcp_trio import Server
from mcp_trio.testing import connect

logging.basicConfig()
clock = trio.testing.MockClock()
server = Server("x")

@server.tool
def block() -> str:
    return "done"

@server.tool
async def wait() -> str:
    return "served"

async def main():
    async with connect(server) as client:
        # There is no memory for such a stack, so no thread can be started.
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        threading.stack_size(2**30)
        refused = await client.call_tool("block")
        print(refused.is_error, refused.text)
        print((await client.call_tool("wait")).text)
        refused = await client.call_tool("block")
        print(refused.is_error)
        clock.jump(1.1)
        refused = await client.call_tool("block")
        print(refused.is_error)
        threading.stack_size(0)
        # CPython leaks memory if a thread cannot start, so nothing is tried for a while.
        refused = await client.call_tool("block")
        print(refused.is_error)
        clock.jump(2.1)
        print((await client.call_tool("block")).text)

trio.run(main, clock=clock)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is Linux's")
def test_a_thread_that_cannot_start_refuses_the_call_and_the_server_goes_on() -> None:
    result = subprocess.run(
        [sys.executable, "-c", THREADLESS], capture_output=True, text=True, timeout=30
    )
    assert result.stdout.splitlines() == [
        "True Busy: no thread can be started; try again in 1 s",
        "served",
        "True",
        "True",
        "True",
        "done",
    ], result.stderr
    tried = re.findall("the next start is tried in (.) s", result.stderr)
    assert tried == ["1", "2"]


ONE_THREAD = """
import resource, threading
import trio
from mcp_trio import Server
from mcp_trio.testing import connect

begun = trio.Event()
release = threading.Event()
server = Server("x")

@server.tool
def block() -> str:
    trio.from_thread.run_sync(begun.set)
    release.wait(30)
    return "released"

async def call(client):
    print((await client.call_tool("block")).text)

async def main():
    async with connect(server) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, client)
            await begun.wait()
            # There is no memory for such a stack, so no thread can be started.
            resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
            threading.stack_size(2**30)
            await call(client)
            release.set()
        # The thread of the first call is free now.
        await call(client)

trio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is Linux's")
def test_a_thread_that_becomes_free_takes_calls_while_no_other_can_start() -> None:
    result = subprocess.run(
        [sys.executable, "-c", ONE_THREAD], capture_output=True, text=True, timeout=30
    )
    assert result.stdout.splitlines() == [
        "Busy: no thread can be started; try again in 1 s",
        "released",
        "released",
    ], result.stderr
