"""Worker threads for functions that may block."""

from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any

import outcome
import trio
from msgspec import Struct

from .limits import busy

# Threads, which is how many functions may block at a time.
MOST = 64
# Seconds after which a thread that has nothing to do ends.
IDLE = 10.0


class Job(Struct, eq=False):
    """One call, and the task that waits for it."""

    call: Callable[[], Any]
    task: trio.lowlevel.Task | None  # None once the task was cancelled
    context: Context
    result: outcome.Outcome[Any] | None = None


class WorkerThreads:
    """Runs calls in trio's threads.

    A thread that has finished a call takes the next one itself, without going through
    the loop. trio hands each call to a thread and waits for it separately, which is
    most of the cost of a short call.
    """

    def __init__(self, most: int) -> None:
        self._most = most  # calls, including those that were abandoned
        self._token = trio.lowlevel.current_trio_token()
        self._limiter = trio.CapacityLimiter(MOST)
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._done: deque[Job] = deque()
        self._is_loop_notified = False
        self._threads = 0
        self._calls = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run a call in a thread and return its result.

        A call cannot be stopped. If this is cancelled, the call is abandoned and ends
        by itself. Raises TooManyCalls if too many are waiting or were abandoned.
        """
        if self._calls >= self._most:
            raise busy(self._most, "blocking calls")
        job = Job(call, trio.lowlevel.current_task(), copy_context())
        self._calls += 1
        self._jobs.put(job)
        self._start_thread()

        def abort(raise_cancel: object) -> trio.lowlevel.Abort:
            job.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def _start_thread(self) -> None:
        """Start another thread if a call needs one and there are not too many."""
        if self._threads < min(self._calls, MOST):
            self._threads += 1
            trio.lowlevel.spawn_system_task(self._run_thread)

    async def _run_thread(self) -> None:
        await trio.to_thread.run_sync(
            self._work, abandon_on_cancel=True, limiter=self._limiter
        )
        self._threads -= 1
        # Calls may have been added while this thread was about to end.
        self._start_thread()

    def _work(self) -> None:
        """In a thread: run calls until there has been none for a while."""
        try:
            while True:
                job = self._jobs.get(timeout=IDLE)
                if job.task is not None:
                    job.result = outcome.capture(job.context.run, job.call)
                self._done.append(job)
                if not self._is_loop_notified:
                    self._is_loop_notified = True
                    self._token.run_sync_soon(self._deliver)
        except (Empty, trio.RunFinishedError):
            pass

    def _deliver(self) -> None:
        """In the loop: give the results of all calls that are done to their tasks."""
        # Before looking, so that whatever is done from now on notifies the loop again.
        self._is_loop_notified = False
        while self._done:
            job = self._done.popleft()
            self._calls -= 1
            if job.task is not None and job.result is not None:
                trio.lowlevel.reschedule(job.task, job.result)
