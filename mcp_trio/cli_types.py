"""What the commands share: their parser, the kinds of values that flags take, and what a SPEC may be."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable
from typing import NoReturn

from .loading import FORMS, NAMES, did_you_mean
from .protocol.revisions import REVISIONS

PROG = "mcp-trio"
SPEC_HELP = f"{FORMS} (looks for {', '.join(NAMES)}); default: a demo"
DEMO = f"{__package__}.demo"
# What a server of any age understands: to those that open a session it is the newest, others agree on less.
SPOKEN = next(revision.name for revision in reversed(REVISIONS) if revision.opens)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        what, _, words = message.partition(": ")
        if what == "unrecognized arguments":
            message += did_you_mean(words.split()[0].partition("=")[0], self._option_string_actions)
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")


def address(text: str) -> str:
    """[HOST:]PORT."""
    from .serve import address

    try:
        address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def port(text: str) -> int:
    """The number of a port; 0 is any that is free."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is wanted, a number up to 65535 such as 8000, not {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """A number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds is wanted, such as 5 or 0.5, not {text!r}")
    return number


def timeout(text: str) -> float:
    """A number of seconds in which something can be done."""
    if (number := seconds(text)) == 0:
        raise argparse.ArgumentTypeError("a timeout of 0 seconds leaves no time for anything")
    return number


class one_of:
    """One of some words."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def __call__(self, text: str) -> str:
        word = text if text in self.words else text.lower()
        if word not in self.words:
            hint = did_you_mean(text, self.words)
            raise argparse.ArgumentTypeError(f"{' or '.join(self.words)} is wanted, not {text!r}{hint}")
        return word


def switch(text: str) -> bool:
    """Whether something is to be."""
    if (word := text.lower()) not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise argparse.ArgumentTypeError(f"1 or 0 is wanted, not {text!r}")
    return word in ("1", "true", "yes", "on")


def listed(text: str) -> list[str]:
    """Words with commas between them."""
    return text.split(",")


def at_terminal() -> bool:
    """Whether somebody may type."""
    return sys.stdin is not None and sys.stdin.isatty()
