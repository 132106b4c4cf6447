"""Exceptions that a client raises."""

from __future__ import annotations

from typing import Any

from ..protocol.types import Json


class RemoteError(Exception):
    """The server replied to a request with an error.

    `code`, `message` and `data` are those of the error. `is_ours` is True if no reply
    arrived and the error comes from this client.
    """

    def __init__(self, error: object) -> None:
        fields: Json = error if isinstance(error, dict) else {"message": error}
        super().__init__(f"{fields.get('message')} ({fields.get('code')})")
        self.code: int = fields.get("code", 0)
        self.message: str = fields.get("message", "")
        self.data: Any = fields.get("data")
        self.is_ours: bool = fields.get("ours", False)


class ServerGone(Exception):
    """The server ended the conversation before it answered every request."""


class TaskCancelled(Exception):
    """A task was cancelled by another client or the server.

    Its `task_id` is the id of the task.
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(f"the task {task_id} was cancelled")
        self.task_id = task_id


class NotAMessage(Exception):
    """The server sent something that is not a JSON-RPC message.

    The message of the exception shows what was received.
    """

    def __init__(self, received: bytes) -> None:
        shown = received[:60].decode(errors="replace")
        super().__init__(
            f"this is not an MCP server: it wrote {shown!r}, which is not JSON-RPC"
        )
