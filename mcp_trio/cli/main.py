"""The entry point of the command line.

An error is one line on standard error and exit code 2.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

import trio

from ..load_spec import UsageError, did_you_mean, what_and_where
from ..server.app import LIFESPAN_FAILED
from ..server.exceptions import ConfigurationError
from .commands import COMMANDS
from .options import PROG, Parser, leaves, looks_like_url

# Hints on what to do next, by words in an error message of a server.
_PASS_A_TOKEN = "; pass a token with --token or MCP_TRIO_TOKEN"
_HINTS = {
    "Bearer TOKEN": _PASS_A_TOKEN,
    "HTTP 401": _PASS_A_TOKEN,
    "status 401": _PASS_A_TOKEN,
    "Nothing is served under this path": "; most endpoints are at a URL ending in /mcp",
}

# signal.SIGPIPE, which Windows does not have.
_SIGPIPE = 13


def main(given: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = list(sys.argv[1:] if given is None else given)
    if sys.stdout is None:
        # Standard output is closed, so discard what commands print.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        try:
            return _main(words)
        finally:
            # A failure at exit could not be handled any more.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed its end, as in `| head`. Python flushes again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + _SIGPIPE


def _main(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if first == "--version":
        words = ["version"]
    elif not words or first.startswith("-"):
        words = ["run", *words]
    try:
        return _run_command(words[0], words[1:])
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        code = report(error)
        if code is None:
            raise
        return code


def _run_command(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        near = did_you_mean(name, COMMANDS).strip(" ()")
        hint = near or f"to serve a file, run: {PROG} run FILE"
        known = ", ".join(COMMANDS)
        raise UsageError(f"expected a command ({known}), got {name!r}; {hint}")
    command = COMMANDS[name]
    parser = Parser(
        prog=f"{PROG} {name}",
        description=command.summary,
        epilog=f"example: {PROG} {name} {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_arguments(parser)
    # For `completion`, which completes the options of every command.
    parser.set_defaults(commands=COMMANDS)
    # The words after `--` are the command line of a server.
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_intermixed_args(words[:end])
    options.command = words[end + 1 :]
    for word in words[:end]:
        if looks_like_url(word):
            _check_url(word)
    return command.run(options)


def _check_url(url: str) -> None:
    """Raise UsageError unless a URL has a host and a possible port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        problem = str(error)
    else:
        if parts.hostname and port != 0:
            return
        problem = "it has no host" if not parts.hostname else "it has port 0"
    raise UsageError(
        f"expected a URL such as http://127.0.0.1:8000/mcp, got {url!r}: {problem}"
    )


def report(error: BaseException) -> int | None:
    """Print an error, one line for each in a group, and return the exit code.

    Returns None, and prints nothing, if an error needs its traceback.
    """
    problems = leaves(error)
    if any(isinstance(problem, KeyboardInterrupt) for problem in problems):
        return 130
    lines: list[str] = []
    for problem in problems:
        line = _describe(problem)
        if line is None:
            return None
        line = re.sub(r"\[Errno \d+\] ", "", line)
        if line not in lines:
            lines.append(line)
    for line in lines:
        print(f"{PROG}: error: {line}{_hint(line)}", file=sys.stderr)
    return 2


def _describe(error: BaseException) -> str | None:
    """Return one line about an error, or None if it needs its traceback."""
    # Imported here to start faster: `run` does not need the client.
    from ..client.errors import NotAMessage, RemoteError, ServerGone

    if LIFESPAN_FAILED in getattr(error, "__notes__", ()):
        return f"{what_and_where(error)}, {LIFESPAN_FAILED}"
    if isinstance(error, RemoteError):
        if error.is_ours:
            return f"no reply from the server: {error.message}"
        return f"the server answered with an error: {error}"
    if isinstance(error, trio.BrokenResourceError):
        cause = error.__cause__ or "the other end closed it"
        return str(error) or f"the connection was lost: {cause}"
    if isinstance(error, UsageError | ConfigurationError):
        return str(error)
    if isinstance(error, NotAMessage | ServerGone | OSError):
        return str(error)
    return None


def _hint(line: str) -> str:
    """Return a hint on what to do next about an error, or an empty string."""
    for words, hint in _HINTS.items():
        if words in line:
            return hint
    return ""


def _overview() -> str:
    lines = [
        f"usage: {PROG} [COMMAND] [OPTION...]",
        "",
        "Serve, inspect, call, record and measure MCP servers.",
        "The default command is `run`.",
        "",
        *(f"  {command.name:<12}{command.summary}" for command in COMMANDS.values()),
        "",
        f"For the options of a command: {PROG} COMMAND --help",
        f"example: {PROG} run server.py",
    ]
    return "\n".join(lines)
