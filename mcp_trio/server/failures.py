"""How a function that serves a request may end other than by returning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.errors import ProtocolError

if TYPE_CHECKING:
    from .ask import Asking


class ToolError(Exception):
    """A failure that the client and its model are told of, in these words. Any other exception is masked."""


class AskFailed(Exception):
    """The client answered a question with an error, or can no longer answer it."""


class Unanswered(BaseException):
    """Ends a function whose questions have to go out in its result. No `except Exception` may stop it."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def result(self) -> bytes:
        """The result that asks."""
        return self._asking.result()


def expected_failure(problem: BaseException) -> Exception | None:
    """The failure in an exception that is meant for the client, also when a nursery has wrapped it."""
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    return problem if isinstance(problem, ToolError | AskFailed | ProtocolError) else None
