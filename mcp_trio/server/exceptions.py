"""Exceptions that a tool, a resource or a prompt may raise or may see."""

from collections.abc import Callable


class ToolError(Exception):
    """A failure whose message is shown to the client and its model.

    The client does not see the message of any other exception.
    """


class TimedOut(ToolError):
    """The function took longer than its timeout."""


class AskFailed(Exception):
    """The client answered a question with an error, or can no longer answer it."""


class Unanswered(BaseException):
    """Ends a function whose questions travel to the client in its `result`.

    It is a BaseException so that no `except Exception` in a tool can stop it.
    """

    def __init__(self, result: Callable[[], bytes]) -> None:
        self.result = result


class ConfigurationError(ValueError):
    """The server cannot start as it was set up. The message says what to change."""
