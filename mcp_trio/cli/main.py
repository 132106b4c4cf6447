"""TODO"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trio

from ..client.errors import NotAMessage, RemoteError, ServerGone
from ..client.target import is_url
from ..load_spec import UsageError, did_you_mean, what_and_where
from ..server.app import LIFESPAN_FAILED
from . import bench as cli_bench
from . import completion as cli_completion
from . import config as cli_config
from . import token as cli_access
from .call import CALL, call, call_arguments
from .command import Command
from .inspect import inspect as inspect_command
from .inspect import inspect_arguments
from .mock import mock, mock_arguments
from .options import (
    PROG,
    Parser,
    leaves,
)
from .record import record, record_arguments
from .replay import replay, replay_arguments
from .run import _run_arguments, _serve
from .show import show, show_arguments
from .version import _version

if TYPE_CHECKING:
    pass
# What to do about what a server says.
WANTS_TOKEN = "; give one with --token, or in MCP_TRIO_TOKEN"
HINTS = dict.fromkeys(("Bearer TOKEN is wanted", "HTTP 401", "status 401"), WANTS_TOKEN)
HINTS["Nothing is served under this path"] = (
    "; the URL of an endpoint mostly ends in /mcp"
)


def main(given: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    sys.stdout = sys.stdout or os.fdopen(
        os.open(os.devnull, os.O_WRONLY), "w"
    )  # closed: nobody wants to read
    try:
        try:
            return _main(list(sys.argv[1:] if given is None else given))
        finally:
            sys.stdout.flush()  # while what comes of it can be told
    except BrokenPipeError:  # whoever reads has had enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _main(words: list[str]) -> int:
    if words and words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[:1] == ["--version"]:
        words = ["version"]
    if not words or words[0].startswith("-"):
        words.insert(0, "run")
    try:
        return _run(words[0], words[1:])
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        if (code := _failed(error)) is None:
            raise
        return code


def _run(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        hint = (
            did_you_mean(name, COMMANDS).strip(" ()")
            or f"to serve a file: {PROG} run FILE"
        )
        raise UsageError(
            f"there is no command {name!r}, only {', '.join(COMMANDS)}; {hint}"
        )
    command = COMMANDS[name]
    parser = Parser(
        prog=f"{PROG} {name}",
        description=command.summary,
        epilog=f"example: {PROG} {name} {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.arguments(parser)
    parser.set_defaults(commands=COMMANDS)
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_intermixed_args(words[:end])
    for word in words[:end]:
        _must_lead_somewhere(word)
    options.command = words[end + 1 :]
    waits = inspect.iscoroutinefunction(command.run)
    code: int = trio.run(command.run, options) if waits else command.run(options)
    return code


def _must_lead_somewhere(word: str) -> None:
    """A URL, where a word is one, has a host, and a port that there is. Raises UsageError."""
    try:
        parts = urlsplit(word) if is_url(word) else None
        wrong = (
            ""
            if parts is None or (parts.hostname and parts.port != 0)
            else "it has no host, or no port"
        )
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise UsageError(
            f"{word} is no URL of a server: {wrong}; one such as http://127.0.0.1:8000/mcp is wanted"
        )


def _failed(error: BaseException) -> int | None:
    """The exit code for exceptions that are told in a line each; None where one needs its traceback."""
    problems = leaves(error)
    if any(isinstance(problem, KeyboardInterrupt) for problem in problems):
        return 130
    lines = [_line(problem) for problem in problems]
    if None in lines:
        return None
    for line in dict.fromkeys(lines):
        told = re.sub(r"\[Errno \d+\] ", "", line or "")
        hint = next((hint for words, hint in HINTS.items() if words in told), "")
        print(f"{PROG}: {told}{hint}", file=sys.stderr)
    return 2


def _line(error: BaseException) -> str | None:
    """An exception in one line; None where it needs its traceback."""
    if LIFESPAN_FAILED in getattr(error, "__notes__", ()):
        return f"{what_and_where(error)}, {LIFESPAN_FAILED}"
    if isinstance(error, RemoteError) and error.is_ours:
        return f"no answer from the server: {error.message}"
    if isinstance(error, RemoteError):
        return f"the server answered with an error: {error}"
    if isinstance(error, trio.BrokenResourceError):
        return (
            str(error)
            or f"the connection broke: {error.__cause__ or 'the other end has closed it'}"
        )
    return (
        str(error)
        if isinstance(error, UsageError | NotAMessage | ServerGone | OSError)
        else None
    )


def _overview() -> str:
    lines = "".join(
        f"  {name:<12}{command.summary}\n" for name, command in COMMANDS.items()
    )
    return (
        f"usage: {PROG} [COMMAND] [...]   ({PROG} COMMAND --help says more)\n\n"
        f"Serves, shows and calls MCP servers. Without a command it is `run`.\n\n{lines}\n"
        f"example: {PROG} run server.py"
    )


COMMANDS = {
    "run": Command(_run_arguments, _serve, "server.py --grace 2"),
    "inspect": Command(inspect_arguments, inspect_command, "-- npx some-server"),
    "call": Command(call_arguments, call, CALL),
    "record": Command(record_arguments, record, "-o new.jsonl server.py"),
    "replay": Command(replay_arguments, replay, "traces/ server.py"),
    "show": Command(show_arguments, show, "new.jsonl"),
    "mock": Command(mock_arguments, mock, "new.jsonl --http 8000"),
    "bench": Command(cli_bench.arguments, cli_bench.bench, "server.py add a=1 b=2"),
    "token": Command(cli_access.arguments, cli_access.token, "alice --scope admin"),
    "config": Command(
        cli_config.arguments, cli_config.config, "server.py --into .cursor/mcp.json"
    ),
    "completion": Command(cli_completion.arguments, cli_completion.completion, "bash"),
    "version": Command(lambda parser: None, _version, ""),
}
