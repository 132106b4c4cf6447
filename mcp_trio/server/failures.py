"""How a function that serves a request may end other than by returning."""

from __future__ import annotations

from collections.abc import Callable


class ToolError(Exception):
    """A failure that the client and its model are told of, in these words. Any other exception is masked."""


class AskFailed(Exception):
    """The client answered a question with an error, or can no longer answer it."""


class Unanswered(BaseException):
    """Ends a function whose questions have to go out in its `result`. No `except Exception` may stop it."""

    def __init__(self, result: Callable[[], bytes]) -> None:
        self.result = result
