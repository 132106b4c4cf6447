"""The interface between a function's context and the task that it runs as.

The tasks extension implements it.
"""

from typing import Any, Protocol

from msgspec import Struct


class TaskOptions(Struct, frozen=True):
    """The task options of `Server.tool`. Durations are in seconds.

    None means the default of the extension.
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
        """Whether it is a task now. Until then it is an ordinary request."""

    async def start(self) -> None:
        """Become a task, if the client supports tasks."""

    async def report(self, message: str) -> None:
        """Set the status message."""

    async def all(self, *questions: Any) -> list[Any]:  # noqa: ANN401 (Questions)
        """Ask the client, and wait for all answers."""


class NeverATask:
    """A call of a tool with `task=`, by a client that does not support tasks."""

    has_started = False

    async def start(self) -> None:
        """Continue as a request."""

    async def report(self, message: str) -> None:
        """Do nothing."""

    async def all(self, *questions: Any) -> list[Any]:  # noqa: ANN401 (Questions)
        """Do nothing."""
        return []
