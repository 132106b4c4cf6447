"""TODO"""

from __future__ import annotations

from typing import Any


class RemoteError(Exception):
    """The server answered with an error."""

    def __init__(self, error: Any) -> None:
        error = error if isinstance(error, dict) else {"message": error}
        super().__init__(f"{error.get('message')} ({error.get('code')})")
        self.code: int = error.get("code", 0)
        self.message: str = error.get("message", "")
        self.data: Any = error.get("data")
        self.is_ours: bool = error.get(
            "ours", False
        )  # it was made here, as no answer has come


class ServerGone(Exception):
    """The server ended the conversation while it owed answers."""
