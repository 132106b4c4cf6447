"""Workers that hang, and those that only start slowly."""

from __future__ import annotations

import pytest
import trio

from mcp_trio.workers.messages import Alive, Message, Ready
from mcp_trio.workers.watchdog import watch
from mcp_trio.workers.worker_process import TRACEBACK_TIME, WorkerProcess


class Worker(WorkerProcess):
    """A worker without a process, which responds to checks until it hangs."""

    def __init__(self) -> None:
        super().__init__(1, lambda _: None, lambda *_: None)
        self.hangs = False

    def become_ready(self) -> None:
        self.ready = Ready("it", [], 1.0)
        self.settled.set()

    async def send(self, message: Message) -> None:
        if not self.hangs:
            self._handle(Alive())

    def kill(self) -> None:
        self.ended.set()


@pytest.fixture
def worker() -> Worker:
    return Worker()


async def test_a_worker_that_hangs_is_killed_after_the_timeout(
    worker: Worker,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker.become_ready()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, worker, 10)
        await trio.sleep(100)
        assert not worker.ended.is_set()
        worker.hangs = True
        hangs_since = trio.current_time()
    took = trio.current_time() - hangs_since
    assert worker.ended.is_set()
    # The timeout, the time until the next check, and the time for a traceback.
    assert 10 <= took <= 10 + 1 + TRACEBACK_TIME + 0.1
    assert "worker 1 has not responded for 10 s" in caplog.text
    assert "--worker-timeout" in caplog.text


async def test_a_worker_that_takes_long_to_start_is_logged_and_not_killed(
    worker: Worker,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, worker, 10)
        await trio.sleep(100)
        assert caplog.text.count("worker 1 has been starting for 10 s") == 1
        worker.become_ready()
        await trio.sleep(100)
        assert not worker.ended.is_set()
        worker.ended.set()


async def test_a_worker_that_was_told_to_stop_is_not_watched(
    worker: Worker, autojump_clock: trio.testing.MockClock
) -> None:
    worker.become_ready()
    worker.hangs = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, worker, 10)
        await trio.sleep(5)
        worker.is_stopping = True
    assert not worker.ended.is_set()
