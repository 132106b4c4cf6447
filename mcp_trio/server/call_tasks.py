"""Tasks for calls that are expected to wait, which are used again.

A new task with its cancel scope takes a third of the instructions of a call that waits
once. Where many such calls follow one another, throughput over stdio is 1.4 times what
it is with a new task for each call.
"""

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from ..protocol.session import Call
from .app import Server
from .runner import SPOILED, innermost_scope, log

# Tasks of one server that may be idle. Each takes some 3 KB.
MOST_IDLE = 1000
# Calls that may be about to begin. When there are as many, they begin before more
# messages are read, while what they use is in the processor's caches. With a thousand
# calls in flight, a call that waits once takes half of the time that it takes without
# this bound.
MOST_ABOUT_TO_BEGIN = 50


class CallTasks:
    """Runs calls of one conversation in tasks of their own.

    Calls begin in their order, whichever task trio runs first.
    """

    def __init__(
        self,
        server: Server,
        nursery: trio.Nursery,
        run: Callable[[Call, trio.CancelScope], Awaitable[None]],
    ) -> None:
        self._server = server
        self._nursery = nursery
        self._run = run
        self._calls: deque[Call] = deque()  # that have not begun
        self._idle = trio.lowlevel.ParkingLot()
        self._is_closed = False

    @property
    def has_calls(self) -> bool:
        """Whether there are calls that have not begun."""
        return len(self._calls) > 0

    @property
    def is_full(self) -> bool:
        """Whether calls should begin before there are more of them."""
        return len(self._calls) >= MOST_ABOUT_TO_BEGIN

    def begin(self, call: Call) -> None:
        """Let a call begin in an idle task, or in a new one."""
        self._calls.append(call)
        if self._idle:
            self._idle.unpark()
        else:
            self._nursery.start_soon(self._run_calls)

    def close(self) -> None:
        """End each task as soon as it has no call."""
        self._is_closed = True
        self._idle.unpark_all()

    async def _run_calls(self) -> None:
        """Run one call after the other, unless one is cancelled or spoils the task."""
        task = trio.lowlevel.current_task()
        context = task.context
        try:
            with trio.CancelScope() as scope:
                clean = innermost_scope(task)
                while self._calls and not scope.cancel_called:
                    await self._run(self._calls.popleft(), scope)
                    # A call leaves its own context in the task.
                    task.context = context
                    if clean is None or innermost_scope(task) is not clean:
                        break
                    await self._wait_for_calls()
        except* RuntimeError:
            log.exception(SPOILED)

    async def _wait_for_calls(self) -> None:
        """Be idle until there are calls; return at once to end this task."""
        if self._is_closed or self._server.idle_tasks >= MOST_IDLE:
            return
        self._server.idle_tasks += 1
        try:
            await self._idle.park()
        finally:
            self._server.idle_tasks -= 1
