"""A command of the command line, which is loaded when it is used."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

if TYPE_CHECKING:
    from .options import Parser


class Command(NamedTuple):
    """A command.

    The module of this package with the same name implements it: the function NAME runs
    the command and returns the exit code, and may be async. The function NAME_arguments
    declares the arguments.
    """

    name: str
    summary: str
    example: str = ""

    def add_arguments(self, parser: Parser) -> None:
        """Declare the arguments of the command."""
        self._load(f"{self.name}_arguments")(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Run the command and return its exit code."""
        function = self._load(self.name)
        code: int
        if inspect.iscoroutinefunction(function):
            code = trio.run(function, options)
        else:
            code = function(options)
        return code

    def _load(self, function: str) -> Callable[..., Any]:
        module = importlib.import_module(f".{self.name}", __package__)
        found: Callable[..., Any] = getattr(module, function)
        return found
