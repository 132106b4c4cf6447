"""The commands of the command line, each loaded when it is used."""

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

    Its module in this folder has its name, and so does the function that runs it, which
    returns the exit code and may be async. `NAME_arguments` declares its arguments.
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


_ALL = [
    Command(
        "run",
        "Serve an MCP server, on standard input and output by default.",
        "server.py --grace 2",
    ),
    Command(
        "inspect",
        "List the tools, resources and prompts of a server.",
        "-- npx some-server",
    ),
    Command("call", "Call a tool and print its result.", "server.py add a=1 b=2"),
    Command(
        "record",
        "Record a conversation between a client and a server.",
        "-o new.jsonl server.py",
    ),
    Command(
        "replay",
        "Replay recorded conversations and report differences.",
        "traces/ server.py",
    ),
    Command("show", "Draw a recorded conversation as a diagram.", "new.jsonl"),
    Command(
        "bench",
        "Measure throughput, latency, start-up time and memory.",
        "server.py add a=1 b=2",
    ),
    Command(
        "token",
        "Create an access token and its line for --token-file.",
        "alice --scope admin",
    ),
    Command(
        "config",
        "Write the entry for a server in a host's configuration.",
        "server.py --into .cursor/mcp.json",
    ),
    Command("completion", "Print a completion script for a shell.", "bash"),
    Command("version", "Print the versions of mcp_trio and of the protocol."),
]
COMMANDS = {command.name: command for command in _ALL}
