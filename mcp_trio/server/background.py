"""What a function sees of the task that it runs as.

The tasks extension provides it. Functions use it through their context.
"""

from typing import Any, Protocol

from msgspec import Struct


class TaskOptions(Struct, frozen=True):
    """How calls of a tool become tasks: the options of `Server.tool`, in seconds.

    None means the server's value.
    """

    is_required: bool
    ttl: float | None
    poll_interval: float | None
    retry: bool
    manual_start: bool


class BackgroundTask(Protocol):
    """A call of a tool that is a task, or may become one."""

    @property
    def has_started(self) -> bool:
        """Whether it is a task now. Until then it is a request as any other."""

    async def start(self) -> None:
        """Become a task, if the client lets the call do so."""

    async def report(self, message: str) -> None:
        """Say in the status what the task is doing."""

    async def all(self, *questions: Any) -> list[Any]:  # noqa: ANN401 (Questions)
        """Ask the client, and wait for its answers."""


class NeverATask:
    """A call of a tool that could be a task, by a client that does not know tasks."""

    has_started = False

    async def start(self) -> None:
        """Go on as a request."""

    async def report(self, message: str) -> None:
        """Do nothing."""

    async def all(self, *questions: Any) -> list[Any]:  # noqa: ANN401 (Questions)
        """Do nothing."""
        return []
