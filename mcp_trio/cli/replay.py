"""The command `replay`: compare a server with recorded traces."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ..client.target import is_url
from ..load_spec import UsageError
from .options import (
    PROG,
    TOKEN_HELP,
    Parser,
    at_terminal,
    one_of,
    seconds,
    timeout,
    token_of,
)
from .output import in_color, progress_bar
from .record import TRANSPORTS

if TYPE_CHECKING:
    from ..trace.suite import Result
    from ..trace.targets import Credentials

    # Replays all traces, and returns their results.
    ReplayAll = Callable[[], list[Result]]

# The most tools that are named in the warning before they are called.
_MAX_TOOLS = 5
_MAX_JOBS = 64
# The most rounds of replays in which `--stabilise` looks for values that differ.
_MAX_ROUNDS = 4
# Seconds after which a time in seconds has changed.
_CLOCK_STEP = 1.1


def replay_arguments(parser: Parser) -> None:
    """Add the arguments of `replay`."""
    parser.usage = f"{PROG} replay [OPTION...] TRACE... [SPEC | URL | -- COMMAND...]"
    parser.add_argument(
        "words",
        nargs="+",
        metavar="TRACE",
        help="a file *.jsonl, or a folder with such files; the target is last; "
        "default: each trace is replayed against the file or module that it names",
    )
    parser.add_argument(
        "--over",
        metavar="NAMES",
        type=_transports,
        default=(),
        help=f"the transports to use: {','.join(TRANSPORTS)} (all)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=timeout,
        default=10.0,
        help="how long to wait for each line of the trace (10)",
    )
    parser.add_argument(
        "--settle",
        metavar="SECONDS",
        type=seconds,
        default=0.0,
        help="how long to wait after the last line for messages that are not in the "
        "trace (0.05)",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=_jobs,
        help="the number of concurrent replays (8; 1 for a command or a URL)",
    )
    parser.add_argument("--token", metavar="TOKEN", help=TOKEN_HELP)
    parser.add_argument(
        "--header",
        metavar="'NAME: VALUE'",
        type=_header,
        action="append",
        default=[],
        help="a header for a URL; may be repeated",
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask for confirmation"
    )
    parser.add_argument(
        "--report",
        metavar="FILE.md",
        type=Path,
        help="write a report in Markdown, for a pull request",
    )
    parser.add_argument(
        "--junit", metavar="FILE.xml", type=Path, help="write the results as JUnit XML"
    )
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument(
        "--update",
        action="store_true",
        help="show the differences and rewrite the traces; at a terminal, ask first",
    )
    changes.add_argument(
        "--stabilise",
        action="store_true",
        help="replay repeatedly, and expect patterns for values that vary",
    )


def _transports(text: str) -> list[str]:
    read = one_of(TRANSPORTS)
    return [read(name) for name in text.split(",")]


def _jobs(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_JOBS:
        raise argparse.ArgumentTypeError(
            f"expected a number from 1 to {_MAX_JOBS}, got {text!r}"
        )
    return int(text)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not text.isprintable() or not text.isascii():
        raise argparse.ArgumentTypeError(f"expected 'NAME: VALUE', got {text!r}")
    return name.strip(), value.strip()


def replay(options: argparse.Namespace) -> int:
    """Replay traces against a server and report every difference.

    The exit code is 0 if nothing differs, 1 if something does, and 2 if a trace could
    not be replayed.
    """
    from ..trace import suite

    traces, target = _traces_and_target(options)
    paths = suite.files(traces)
    if not _may_call(paths, target, options.yes):
        print("Nothing was replayed.", file=sys.stderr)
        return 2
    # Do not print the log of servers in this process: traces contain it.
    logging.getLogger("mcp_trio").addHandler(logging.NullHandler())
    run = partial(
        suite.replay_all,
        paths,
        target,
        options.over,
        options.timeout,
        patient=options.update or options.stabilise,
        settle=options.settle,
        credentials=_credentials(options, target),
        at_once=_at_once(options, target),
    )
    replay_all = partial(_with_progress, run)
    results = replay_all()
    if options.stabilise:
        results = _stabilise(results, replay_all)
    if options.update and _update(results, options.yes):
        results = replay_all()
    _write_reports(results, options)
    return _report(results)


def _traces_and_target(
    options: argparse.Namespace,
) -> tuple[list[Path], str | list[str] | None]:
    """Return the traces and the target, if one is given. Raises UsageError."""
    words: list[str] = list(options.words)
    target: str | list[str] | None = options.command or None
    if target is None and not _is_trace(words[-1]):
        target = words.pop()
    for word in words:
        if not _is_trace(word):
            raise UsageError(
                f"{word}: expected a trace, which is a file *.jsonl or a folder; "
                "only the last word can be a target"
            )
    if not words:
        raise UsageError(
            f"expected a trace (*.jsonl, or a folder) before the target {target}"
        )
    return [Path(word) for word in words], target


def _credentials(
    options: argparse.Namespace, target: str | list[str] | None
) -> Credentials:
    """Return the credentials for a URL. Raises UsageError."""
    from ..trace.targets import Credentials

    if isinstance(target, str) and is_url(target):
        return Credentials(token_of(options), options.header)
    if options.token or options.header:
        raise UsageError("--token and --header: expected a URL as the target")
    return Credentials()


def _at_once(options: argparse.Namespace, target: str | list[str] | None) -> int:
    """Return the number of concurrent replays.

    Replays against a command or a URL may share the server's state, so by default they
    run one after another.
    """
    from ..trace.suite import AT_ONCE

    if options.jobs:
        jobs: int = options.jobs
        return jobs
    is_loaded_here = target is None or (isinstance(target, str) and not is_url(target))
    return AT_ONCE if is_loaded_here else 1


def _is_trace(word: str) -> bool:
    return word.endswith(".jsonl") or os.path.isdir(word)


# Asking first


def _may_call(paths: Sequence[Path], target: str | list[str] | None, yes: bool) -> bool:
    """Warn that replays repeat the calls of traces. At a terminal, ask the user.

    The calls may change data of a server at a URL, or of a command. There is no warning
    for a SPEC, which is loaded again for each replay.
    """
    from ..trace.suite import tools_called

    if isinstance(target, str) and not is_url(target):
        return True
    if target is None:
        return True
    calls = tools_called(paths)
    if not calls:
        return True
    names = list(calls)
    named = ", ".join(names[:_MAX_TOOLS])
    if len(names) > _MAX_TOOLS:
        named += f" and {len(names) - _MAX_TOOLS} more"
    place = target if isinstance(target, str) else " ".join(target)
    warning = f"Each replay repeats every call of its trace ({named}) against {place}"
    if yes or not _can_ask():
        print(f"{warning}.", file=sys.stderr)
        return True
    print(f"{warning}. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _can_ask() -> bool:
    """Return whether a user can read a question and type the answer."""
    return at_terminal() and sys.stderr.isatty()


# Running


def _with_progress(run: Callable[..., Awaitable[list[Result]]]) -> list[Result]:
    """Replay all traces with a progress bar, and return the results."""
    # Standard output is for the report, and not for what servers here print.
    with redirect_stdout(sys.stderr), progress_bar() as show_progress:

        def progress(done: int, total: int) -> None:
            show_progress(done, total, "replays")

        return trio.run(partial(run, progress=progress))


def _stabilise(results: list[Result], replay_all: ReplayAll) -> list[Result]:
    """Replay until no more values vary between runs. Returns the last results.

    Two runs are not enough: if the client repeats such a value, the trace must first
    say where the value comes from.
    """
    from ..trace import suite
    from ..trace.diagram import printable

    has_waited = False
    for _ in range(_MAX_ROUNDS):
        found = False
        latest = replay_all()
        for first, second in zip(results, latest, strict=True):
            for volatile in suite.stabilise(first, second):
                found = True
                print(f"{first.path}:{volatile.line}: {printable(str(volatile))}")
            for method in suite.make_optional(first, second):
                found = True
                print(f"{first.path}: {method}: optional from now on")
        if found:
            results = replay_all()
        elif has_waited or not any(result.findings for result in latest):
            return latest
        else:
            # Quick replays may have seen the same time, to the second.
            has_waited = True
            time.sleep(_CLOCK_STEP)
            results = latest
    return results


def _update(results: list[Result], yes: bool) -> bool:
    """Show the changes to the traces that differ, and rewrite them.

    At a terminal, ask about each change. Returns whether a trace was rewritten.
    """
    from ..trace import suite

    is_updated = False
    review = _Review(asks=_can_ask() and not yes)
    for result in results:
        replay = suite.update_source(result)
        if replay is None:
            continue
        accepted = [
            finding
            for finding in replay.findings
            if review.accepts(f"{result.path}: {finding.as_change()}")
        ]
        if accepted and suite.update(result, accepted.__contains__):
            print(f"{result.path}: updated")
            is_updated = True
    return is_updated


class _Review:
    """Shows changes, and asks the user about each one."""

    def __init__(self, asks: bool) -> None:
        self._asks = asks
        # Whether changes are accepted without asking.
        self._accepts = True

    def accepts(self, change: str) -> bool:
        """Show a change. Returns whether it is accepted."""
        if not self._asks:
            if self._accepts:
                print(change)
            return self._accepts
        print(change, file=sys.stderr)
        question = "  Accept it? [y]es, [n]o, [a]ll, [q]uit: "
        print(question, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip().lower()
        if answer in ("a", "all"):
            self._asks = False
            return True
        if answer in ("q", "quit", ""):
            self._asks = False
            self._accepts = False
            return False
        return answer in ("y", "yes")


# Reporting


def _write_reports(results: list[Result], options: argparse.Namespace) -> None:
    """Write the reports that the options name."""
    from ..trace import report

    if options.report:
        options.report.write_text(report.markdown(results), encoding="utf-8")
    if options.junit:
        options.junit.write_bytes(report.junit(results))


def _report(results: list[Result]) -> int:
    """Print all differences and a summary. Returns the exit code."""
    from ..trace import suite

    if not any(result.replays or result.problems for result in results):
        raise UsageError(
            "nothing to replay: no trace can be replayed over a transport of this "
            "target; choose other transports with --over"
        )
    for result in results:
        for row in suite.report_lines(result, color=in_color()):
            print(row)
        for remark in suite.remarks(result):
            print(remark)
    print(suite.summary(results))
    if any(result.problems for result in results):
        return 2
    if any(result.findings for result in results):
        return 1
    return 0
