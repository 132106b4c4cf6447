"""Functions in threads that take several calls, one after another."""

import gc
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import sniffio
import trio
import trio.testing

from mcp_trio import Context, Server
from mcp_trio.server.accounts import Account
from mcp_trio.server.thread_pool import ThreadCall, ThreadPool
from mcp_trio.server.worker_threads import WorkerThreads
from mcp_trio.testing import connect

ALONE = Account("connection", "stdio", is_only_client=True)


async def run(threads: WorkerThreads, function: Callable[[], Any]) -> Any:
    return await threads.run(function, ALONE, "tool test")


async def threads_are_free(threads: WorkerThreads) -> None:
    with trio.fail_after(10):
        while threads.busy or threads.abandoned:
            await trio.lowlevel.checkpoint()


async def test_a_thread_takes_the_next_call_when_a_function_has_returned() -> None:
    threads = WorkerThreads(8)
    used = [await run(threads, threading.get_ident) for _ in range(20)]
    assert len(set(used)) < len(used)


async def test_results_of_short_functions_are_collected_together() -> None:
    batches: list[int] = []
    pool: ThreadPool[ThreadCall] = ThreadPool(
        lambda calls: batches.append(len(calls)), list
    )
    for _ in range(10):
        for _ in range(64):
            pool.submit(ThreadCall(int, "short"))
        collected = sum(batches)
        with trio.fail_after(10):
            while sum(batches) < collected + 64:
                await trio.lowlevel.checkpoint()
    # Each batch is one wake-up of the loop.
    assert len(batches) < 320


async def test_functions_that_wait_for_each_other_each_have_a_thread() -> None:
    threads = WorkerThreads(16)
    barrier = threading.Barrier(16)
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(run, threads, lambda: barrier.wait(10))


async def test_functions_start_while_threads_linger_and_others_block() -> None:
    threads = WorkerThreads(8)
    release = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(run, threads, int)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(7):
            nursery.start_soon(run, threads, lambda: release.wait(10))
        with trio.fail_after(10):
            for _ in range(50):
                assert await run(threads, lambda: 1) == 1
        release.set()


async def test_a_call_is_not_cancelled_because_an_earlier_one_was() -> None:
    threads = WorkerThreads(1)
    began, release = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        release.wait(10)

    def check() -> str:
        trio.from_thread.check_cancelled()
        return "not cancelled"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, threads, block)
        await trio.to_thread.run_sync(began.wait)
        nursery.cancel_scope.cancel()
    assert threads.abandoned == 1
    release.set()
    await threads_are_free(threads)
    assert await run(threads, check) == "not cancelled"


async def test_calls_that_are_ready_do_not_wait_for_an_abandoned_thread() -> None:
    threads = WorkerThreads(4)
    began, release = threading.Semaphore(0), threading.Event()

    def block() -> None:
        began.release()
        release.wait(10)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(run, threads, block)
        for _ in range(3):
            await trio.to_thread.run_sync(began.acquire)
        nursery.cancel_scope.cancel()
    assert threads.abandoned == 3
    with trio.fail_after(10):
        for _ in range(10):
            await run(threads, trio.from_thread.check_cancelled)
    release.set()
    await threads_are_free(threads)


class CancelAtOnce(trio.abc.Instrument):
    """Cancels a scope as soon as a call has been counted, before its thread starts."""

    def __init__(self, threads: WorkerThreads, scope: trio.CancelScope) -> None:
        self._threads = threads
        self._scope = scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._threads.busy:
            self._scope.cancel()


async def test_a_call_that_is_cancelled_before_its_thread_starts_is_not_made() -> None:
    threads = WorkerThreads(4)
    made: list[str] = []
    with trio.CancelScope() as scope:
        instrument = CancelAtOnce(threads, scope)
        trio.lowlevel.add_instrument(instrument)
        try:
            await run(threads, lambda: made.append("made"))
        finally:
            trio.lowlevel.remove_instrument(instrument)
    assert scope.cancelled_caught
    assert (threads.busy, threads.abandoned) == (0, 0)
    await trio.testing.wait_all_threads_completed()
    assert made == []
    assert await run(threads, lambda: 1) == 1


class HoldUpLoop(trio.abc.Instrument):
    """Holds up the loop from the start of a thread until an event, for a check."""

    def __init__(self, event: threading.Event, check: Callable[[], bool]) -> None:
        self._event = event
        self._check = check
        self.found: list[bool] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.endswith("ThreadPool._host") and not self.found:
            assert self._event.wait(10)
            self.found.append(self._check())


async def test_a_call_that_has_returned_is_not_abandoned() -> None:
    returned: list[ThreadCall] = []
    pool: ThreadPool[ThreadCall] = ThreadPool(returned.extend, list)
    second_began = threading.Event()
    first, second = ThreadCall(int, "first"), ThreadCall(second_began.set, "second")
    instrument = HoldUpLoop(
        second_began, lambda: pool.withdraw(first) or pool.abandon(first)
    )
    trio.lowlevel.add_instrument(instrument)
    try:
        pool.submit(first)
        pool.submit(second)
        with trio.fail_after(10):
            while len(returned) < 2:
                await trio.lowlevel.checkpoint()
    finally:
        trio.lowlevel.remove_instrument(instrument)
    assert instrument.found == [False]
    assert returned == [first, second]


async def test_inside_a_function_no_async_library_runs() -> None:
    threads = WorkerThreads(1)

    async def nested() -> str:
        return sniffio.current_async_library()

    with pytest.raises(sniffio.AsyncLibraryNotFoundError):
        await run(threads, sniffio.current_async_library)
    assert await run(threads, lambda: trio.run(nested)) == "trio"
    assert sniffio.current_async_library() == "trio"


async def test_an_exception_is_freed_without_the_garbage_collector() -> None:
    threads = WorkerThreads(1)

    class Failed(Exception):
        pass

    def fail() -> None:
        raise Failed

    gc.collect()
    gc.disable()
    try:
        try:
            await run(threads, fail)
        except Failed as error:
            raised = weakref.ref(error)
        await trio.testing.wait_all_threads_completed()
        assert raised() is None
    finally:
        gc.enable()


async def test_an_exception_of_an_abandoned_call_is_freed_too() -> None:
    threads = WorkerThreads(1)
    began, release = threading.Event(), threading.Event()
    raised: list[weakref.ref[BaseException]] = []

    class Failed(Exception):
        def __init__(self) -> None:
            raised.append(weakref.ref(self))

    def fail() -> None:
        began.set()
        release.wait(10)
        raise Failed

    gc.collect()
    gc.disable()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, threads, fail)
            await trio.to_thread.run_sync(began.wait)
            nursery.cancel_scope.cancel()
        release.set()
        await threads_are_free(threads)
        await trio.testing.wait_all_threads_completed()
        assert raised[0]() is None
    finally:
        gc.enable()


async def test_an_error_in_a_log_handler_ends_only_the_abandoned_call() -> None:
    threads = WorkerThreads(2)
    began, release = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        release.wait(10)

    def fail(record: logging.LogRecord) -> bool:
        raise KeyError(record.msg)

    async def abandoned() -> None:
        with scope, pytest.raises(KeyError):
            await run(threads, block)

    scope = trio.CancelScope()
    log = logging.getLogger("mcp_trio")
    log.addFilter(fail)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(abandoned)
            await trio.to_thread.run_sync(began.wait)
            scope.cancel()
    finally:
        log.removeFilter(fail)
    assert await run(threads, lambda: 1) == 1
    release.set()
    await threads_are_free(threads)


async def test_the_threads_end_when_no_calls_come() -> None:
    threads = WorkerThreads(8)
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(run, threads, int)
    with trio.fail_after(10):
        await trio.testing.wait_all_threads_completed()


def test_a_thread_that_outlives_the_loop_ends_silently(
    capfd: pytest.CaptureFixture[str],
) -> None:
    began, release, ended = (threading.Event() for _ in range(3))
    threads = WorkerThreads(1)

    def block() -> None:
        began.set()
        release.wait(10)
        ended.set()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, threads, block)
            await trio.to_thread.run_sync(began.wait)
            nursery.cancel_scope.cancel()

    trio.run(main)
    release.set()
    assert ended.wait(10)
    while any(thread.name == "tool test" for thread in threading.enumerate()):
        time.sleep(0)
    assert capfd.readouterr().err.count("Traceback") == 0


def test_a_loop_that_ends_while_calls_are_ready_ends_silently(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        pool: ThreadPool[ThreadCall] = ThreadPool(list, list)
        began, release = threading.Event(), threading.Event()

        def block() -> None:
            began.set()
            release.wait(10)

        trio.lowlevel.add_instrument(HoldUpLoop(began, release.is_set))
        pool.submit(ThreadCall(block, "first"))
        pool.submit(ThreadCall(int, "ready"))
        while not began.is_set():
            await trio.lowlevel.checkpoint()
        pool.submit(ThreadCall(int, "late"))
        releases.append(release)

    releases: list[threading.Event] = []
    # In each run, the loop may end before or after it hears that calls are ready.
    for _ in range(20):
        trio.run(main)
    for release in releases:
        release.set()
    while any(thread.name == "first" for thread in threading.enumerate()):
        time.sleep(0)
    assert capfd.readouterr().err == ""


async def test_each_of_many_calls_has_one_outcome_while_some_are_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "mcp_trio")
    threads = WorkerThreads(6)
    chance = random.Random(1)
    made: list[int] = []
    outcomes: list[str] = []

    def work(number: int, seconds: float) -> int:
        made.append(number)
        if seconds:
            time.sleep(seconds)
        return number

    async def one(number: int, patience: float, seconds: float) -> None:
        with trio.move_on_after(patience) as scope:
            assert await run(threads, lambda: work(number, seconds)) == number
            outcomes.append("returned")
        if scope.cancelled_caught:
            outcomes.append("cancelled")

    async with trio.open_nursery() as nursery:
        for number in range(500):
            patience = chance.choice([0, 0.0005, 0.002, 10])
            seconds = chance.choice([0, 0, 0, 0.0002, 0.001])
            nursery.start_soon(one, number, patience, seconds)
            if number % 20 == 0:
                await trio.lowlevel.checkpoint()
    await threads_are_free(threads)
    assert len(outcomes) == 500
    assert len(made) == len(set(made))
    assert threads.waiting == 0


async def test_a_call_reaches_the_loop_with_its_own_context() -> None:
    server = Server("x")

    @server.tool
    def count(ctx: Context, number: int) -> str:
        for step in range(number):
            trio.from_thread.run(ctx.progress, step)
        return str(number)

    async with connect(server) as client:
        heard: dict[int, int] = {}

        async def call(number: int) -> None:
            meta = {"progressToken": f"t{number}"}
            result = await client.call_tool("count", {"number": number}, meta=meta)
            assert result.text == str(number)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(call, number)
        for message in client.heard:
            number = int(message["params"]["progressToken"][1:])
            heard[number] = heard.get(number, 0) + 1
    assert heard == {1: 1, 2: 2, 3: 3, 4: 4}
