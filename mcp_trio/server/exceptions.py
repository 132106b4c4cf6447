"""Exceptions that tools, resources and prompts may raise or catch."""

from collections.abc import Callable


class ToolError(Exception):
    """An error whose message is sent to the client and its model.

    The client does not see the message of any other exception.
    """


class TimedOut(ToolError):
    """The function took longer than its timeout."""


class AskFailed(Exception):
    """The client answered a question with an error, or can no longer answer."""


class Unanswered(BaseException):
    """Ends a function that has open questions, which are sent in `result`.

    It is a BaseException so that a tool's `except Exception` does not catch it.
    """

    def __init__(self, result: Callable[[], bytes]) -> None:
        self.result = result


class ConfigurationError(ValueError):
    """The server cannot start as configured. The message says what to change."""
