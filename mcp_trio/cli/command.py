"""What a command of the command line is."""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from .options import Parser


class Command(NamedTuple):
    """One command: what it takes, and what it does, as its docstring says, in the loop or not: to its exit code."""

    arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], Any]
    example: str

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        return (self.run.__doc__ or "").partition("\n")[0]
