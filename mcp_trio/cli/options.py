"""What the commands share: their parser, the kinds of values that flags take, and what a SPEC may be."""

from __future__ import annotations

import argparse
import errno
import math
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from ..load_spec import FORMS, NAMES, UsageError, did_you_mean
from ..protocol.revisions import REVISIONS
from ..server.limits import read_rate
from ..transports.address import parse_address

PROG = "mcp-trio"
SPEC_HELP = f"{FORMS} (looks for {', '.join(NAMES)}); default: a demo"
DEMO = "mcp_trio.demo"
# What a server of any age understands: to those that open a session it is the newest, others agree on less.
SPOKEN = next(revision.name for revision in reversed(REVISIONS) if revision.opens)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        what, _, words = message.partition(": ")
        if what == "unrecognized arguments":
            message += did_you_mean(
                words.split()[0].partition("=")[0], self._option_string_actions
            )
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")


def readable(read: Callable[[str], Any]) -> Callable[[str], str]:
    """What can be read so; a ValueError says what is wrong with other text."""

    def convert(text: str) -> str:
        try:
            read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return convert


address, rate = readable(parse_address), readable(read_rate)


def seconds(text: str) -> float:
    """A number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(
            f"a number of seconds is wanted, such as 5 or 0.5, not {text!r}"
        )
    return number


def timeout(text: str) -> float:
    """A number of seconds in which something can be done."""
    if (number := seconds(text)) == 0:
        raise argparse.ArgumentTypeError(
            "a timeout of 0 seconds leaves no time for anything"
        )
    return number


class one_of:
    """One of some words."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def __call__(self, text: str) -> str:
        word = text if text in self.words else text.lower()
        if word not in self.words:
            hint = did_you_mean(text, self.words)
            raise argparse.ArgumentTypeError(
                f"{' or '.join(self.words)} is wanted, not {text!r}{hint}"
            )
        return word


def client_arguments(parser: Parser) -> None:
    """What a command takes that is a client."""
    parser.add_argument(
        "--revision",
        metavar="DATE",
        type=one_of([r.name for r in REVISIONS]),
        help="to be spoken",
    )
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="for a URL; better in MCP_TRIO_TOKEN, where nobody sees it",
    )


def token_of(options: argparse.Namespace) -> str:
    """The token that is given; nothing where none is."""
    return options.token or os.environ.get("MCP_TRIO_TOKEN", "")


def at_terminal() -> bool:
    """Whether somebody may type."""
    return sys.stdin is not None and sys.stdin.isatty()


# What keeps one from listening, and what to do about it.
WHY_NOT = {
    errno.EADDRINUSE: "is taken already; give another port, or 0 for any that is free",
    errno.EADDRNOTAVAIL: "is no address of this machine; leave the host out, or give 0.0.0.0 for all addresses",
    errno.EACCES: "is not yours to take; give a port from 1024 on",
}


@contextmanager
def listening(*places: str) -> Iterator[None]:
    """While something begins to listen in these places; why it cannot is told with them. Raises UsageError."""
    try:
        yield
    except (OSError, BaseExceptionGroup) as error:
        for leaf in leaves(error):
            why = (
                "names no host that is known"
                if isinstance(leaf, socket.gaierror)
                else None
            )
            if (
                isinstance(leaf, OSError)
                and not leaf.__notes__
                and (why := why or WHY_NOT.get(leaf.errno or 0))
            ):
                raise UsageError(
                    f"{' or '.join(dict.fromkeys(places))} {why}"
                ) from None
        raise


def leaves(error: BaseException, notes: Sequence[str] = ()) -> list[BaseException]:
    """What groups are made of; what was noted on a group is noted on each."""
    error.__notes__ = [*notes, *getattr(error, "__notes__", ())]
    if isinstance(error, BaseExceptionGroup):
        return [
            leaf
            for inner in error.exceptions
            for leaf in leaves(inner, error.__notes__)
        ]
    return [error]
