"""WorkerThreads for functions that may block."""

from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any

import outcome
import trio
from msgspec import Struct

from .limits import busy

# How many functions may block at a time.
MOST = 64
# Seconds after which a thread that has nothing to do ends.
IDLE = 10.0


class Job(Struct, eq=False):
    """One call, and the task that waits for it; None: it does no more."""

    call: Callable[[], Any]
    task: trio.lowlevel.Task | None
    context: Context
    result: outcome.Outcome[Any] | None = None


class WorkerThreads:
    """Runs calls in threads of trio's. One that is done with a call takes the next at once, without the loop.

    That is what it is for: trio hands each call to a thread, and waits for it, by itself, which for a short one is most
    of what it costs.
    """

    def __init__(self, most: int) -> None:
        self._most = most  # calls, those among them that nobody waits for any more
        self._token = trio.lowlevel.current_trio_token()
        self._limiter = trio.CapacityLimiter(MOST)
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._done: deque[Job] = deque()
        self._told = False  # whether the loop knows that something is done
        self._number = self._under_way = 0  # of threads, of calls

    async def run(self, call: Callable[[], Any]) -> Any:
        """What a call returns. It cannot be stopped: on cancellation it is left to end by itself.

        Raises TooManyCalls where too many are left so, or wait.
        """
        if self._under_way >= self._most:
            raise busy(self._most, "blocking calls")
        job = Job(call, trio.lowlevel.current_task(), copy_context())
        self._under_way += 1
        self._jobs.put(job)
        self._start()

        def abort(raise_cancel: object) -> trio.lowlevel.Abort:
            job.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def _start(self) -> None:
        if self._number < min(self._under_way, MOST):
            self._number += 1
            trio.lowlevel.spawn_system_task(self._run)

    async def _run(self) -> None:
        await trio.to_thread.run_sync(
            self._work, abandon_on_cancel=True, limiter=self._limiter
        )
        self._number -= 1
        self._start()  # for what came while this one was about to end

    def _work(self) -> None:
        try:
            while True:
                job = self._jobs.get(timeout=IDLE)
                if job.task is not None:
                    job.result = outcome.capture(job.context.run, job.call)
                self._done.append(job)
                if not self._told:
                    self._told = True
                    self._token.run_sync_soon(self._deliver)
        except (Empty, trio.RunFinishedError):
            pass

    def _deliver(self) -> None:
        self._told = False  # first: what is done from now on is told again
        while self._done:
            job = self._done.popleft()
            self._under_way -= 1
            if job.task is not None and job.result is not None:
                trio.lowlevel.reschedule(job.task, job.result)
