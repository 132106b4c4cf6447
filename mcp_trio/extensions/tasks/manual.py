"""Calls of tools that start their task themselves, with `ctx.start_task()`."""

from collections.abc import Awaitable, Callable
from typing import Any

import outcome
import trio

from ...server.client_requests import Question
from ...server.extension_points import Proceed
from ...server.request import Request
from .record import TaskRecord
from .running import RunningTask


class ManualCall:
    """A call that is a request until its tool starts a task.

    The tool runs in `scope`. `settled` is set when the request can be answered: `task`
    is set, or the tool has ended without starting one, and `outcome` is set.
    """

    def __init__(
        self,
        request: Request,
        become_task: Callable[
            ["ManualCall"], Awaitable[tuple[TaskRecord, RunningTask]]
        ],
    ) -> None:
        self.request = request
        self.scope = trio.CancelScope()
        self.settled = trio.Event()
        self.task: RunningTask | None = None
        self.record: TaskRecord | None = None
        self.outcome: outcome.Outcome[bytes] | None = None
        self._become_task = become_task

    @property
    def has_started(self) -> bool:
        """Whether this is a task now."""
        return self.task is not None

    async def run(self, proceed: Proceed) -> bytes:
        """Run the tool, and store its outcome unless it has become a task."""
        try:
            result = await proceed()
        except trio.Cancelled:
            raise
        except BaseException as failure:  # reraised in the request
            if self.task is not None:
                raise
            self.outcome = outcome.Error(failure)
            return b"null"
        self.outcome = outcome.Value(result)
        return result

    # For the context

    async def start(self) -> None:
        """Become a task. Raises TooManyCalls if the client has too many."""
        if self.task is None:
            self.record, self.task = await self._become_task(self)
            self.settled.set()
            await self.task.slot.acquire()

    async def report(self, message: str) -> None:
        """Set the status message."""
        if self.task is not None:
            await self.task.report(message)

    async def all(self, *questions: Question[Any]) -> list[Any]:
        """Ask the client, and wait for all answers."""
        assert self.task is not None
        return await self.task.all(*questions)
