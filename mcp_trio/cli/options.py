"""The parser, the types of options, and the arguments that commands share."""

from __future__ import annotations

import argparse
import errno
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from ..load_spec import FORMS, NAMES, UsageError, did_you_mean
from ..protocol.revisions import REVISIONS
from ..server.limits import read_rate
from ..transports.address import parse_address

PROG = "mcp-trio"
SPEC_HELP = f"{FORMS} (looks for {', '.join(NAMES)}); default: a demo"
TOKEN_HELP = (
    "an access token for a URL; set MCP_TRIO_TOKEN instead to keep it out of the list "
    "of processes"
)
DEMO = "mcp_trio.demo"
# The newest revision that opens a session. All servers support it, because they may
# reply with an older one.
DEFAULT_REVISION = next(
    revision.name for revision in reversed(REVISIONS) if revision.opens
)


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, and keeps its options by name."""

    def __init__(self, **about: Any) -> None:
        self.known_options: dict[str, argparse.Action] = {}
        super().__init__(**about)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with code 2."""
        what, _, words = message.partition(": ")
        if "ignored explicit argument" in message:
            option = what.removeprefix("argument ")
            message = f"{option}: expected no value, got {words.rpartition(' ')[2]}"
        elif what.startswith("argument "):
            message = message.removeprefix("argument ")
        elif what == "unrecognized arguments":
            word, _, _ = words.split()[0].partition("=")
            near = did_you_mean(word, self.known_options)
            message = f"{message}{near}; see {self.prog} --help"
        else:
            message = f"{message}; see {self.prog} --help"
        self.exit(2, f"{PROG}: error: {message}\n")

    def add_argument(self, *names: str, **about: Any) -> argparse.Action:
        """Declare an argument."""
        return self._remember(super().add_argument(*names, **about))

    def add_mutually_exclusive_group(  # type: ignore[override]
        self, **about: Any
    ) -> ExclusiveOptions:
        """Declare options that cannot be combined."""
        group = super().add_mutually_exclusive_group(**about)
        return ExclusiveOptions(group.add_argument, self._remember)

    def _remember(self, action: argparse.Action) -> argparse.Action:
        for word in action.option_strings:
            self.known_options[word] = action
        return action


class ExclusiveOptions(NamedTuple):
    """Options of a Parser that cannot be combined."""

    add: Callable[..., argparse.Action]
    remember: Callable[[argparse.Action], argparse.Action]

    def add_argument(self, *names: str, **about: Any) -> argparse.Action:
        """Declare one of the options."""
        return self.remember(self.add(*names, **about))


# Types of options. argparse prints the message of an ArgumentTypeError.


def checked_by(read: Callable[[str], object]) -> Callable[[str], str]:
    """Return a type that checks text with `read` and returns it unchanged."""

    def convert(text: str) -> str:
        try:
            read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return convert


address = checked_by(parse_address)
rate = checked_by(read_rate)


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def memory_size(text: str) -> int:
    """Parse a number of bytes, such as 256M."""
    found = re.fullmatch(r"([1-9][0-9]{0,11})([KMG]?)", text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(
            f"expected a size such as 256M or 1G, got {text!r}"
        )
    return int(found[1]) * _UNITS[found[2]]


def seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected a number of seconds such as 5 or 0.5, got {text!r}"
        )
    return number


def timeout(text: str) -> float:
    """Parse a number of seconds that is more than 0."""
    number = seconds(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"expected more than 0 seconds, got {text!r}")
    return number


class one_of:
    """A type that accepts certain words, in upper or lower case."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def __call__(self, text: str) -> str:
        """Parse one of the words."""
        for word in (text, text.lower()):
            if word in self.words:
                return word
        known = ", ".join(self.words)
        near = did_you_mean(text, self.words)
        raise argparse.ArgumentTypeError(f"expected one of {known}, got {text!r}{near}")


# Common arguments


def client_arguments(parser: Parser) -> None:
    """Declare the options of commands that connect to a server."""
    parser.add_argument(
        "--revision",
        metavar="DATE",
        type=one_of([revision.name for revision in REVISIONS]),
        help="the protocol revision to use",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help=TOKEN_HELP,
    )


def token_of(options: argparse.Namespace) -> str:
    """Return the access token, or an empty string if there is none."""
    return options.token or os.environ.get("MCP_TRIO_TOKEN", "")


def looks_like_url(word: str | None) -> bool:
    """Return whether a word is the URL of a server rather than a SPEC.

    This is the same as `client.target.is_url`, whose import would slow down `run`.
    """
    schemes = ("http://", "https://", "ws://", "wss://")
    return word is not None and word.startswith(schemes)


def at_terminal() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


# Errors

_WHY_NOT_LISTENING = {
    errno.EADDRINUSE: "the port is in use; choose another one, or 0 for any free port",
    errno.EADDRNOTAVAIL: (
        "this machine does not have that address; leave the host out, or use 0.0.0.0 "
        "for all addresses"
    ),
    errno.EACCES: "permission denied; choose a port of 1024 or higher",
}


@contextmanager
def listening(*places: str) -> Iterator[None]:
    """Report a failure to listen in these places. Raises UsageError."""
    try:
        yield
    except (OSError, BaseExceptionGroup) as error:
        for problem in leaves(error):
            reason = _why_not_listening(problem)
            if reason is not None:
                where = " or ".join(dict.fromkeys(places))
                raise UsageError(f"cannot listen on {where}: {reason}") from None
        raise


def _why_not_listening(error: BaseException) -> str | None:
    if getattr(error, "__notes__", ()):
        # It was raised in the user's lifespan.
        return None
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, OSError) and error.errno is not None:
        return _WHY_NOT_LISTENING.get(error.errno)
    return None


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions in nested groups, each with the notes of its groups."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    found: list[BaseException] = []
    for inner in error.exceptions:
        for note in getattr(error, "__notes__", ()):
            if note not in getattr(inner, "__notes__", ()):
                inner.add_note(note)
        found += leaves(inner)
    return found
