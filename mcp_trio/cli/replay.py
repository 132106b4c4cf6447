"""The commands for traces: record, replay, show."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ..load_spec import UsageError
from .options import PROG, Parser, one_of, timeout
from .output import bar, in_colour
from .record import TRANSPORTS

if TYPE_CHECKING:
    pass


# replay


def replay_arguments(parser: Parser) -> None:
    """What replay takes."""

    def transports(text: str) -> list[str]:
        return [one_of(TRANSPORTS)(name) for name in text.split(",")]

    parser.usage = f"{PROG} replay [OPTION...] TRACE... [SPEC | URL | -- COMMAND...]"
    parser.add_argument(
        "words",
        nargs="+",
        metavar="TRACE",
        help="a file *.jsonl, or a folder that is searched for them. The last word, where it is neither, is the target;"
        " without one each trace is replayed against the file or module that its header names",
    )
    parser.add_argument(
        "--over",
        metavar="NAMES",
        type=transports,
        default=(),
        help=f"of {','.join(TRANSPORTS)} (all)",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=timeout,
        default=10.0,
        help="for what has to come (10)",
    )
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument(
        "--update",
        action="store_true",
        help="rewrite the traces that differ with what came",
    )
    changes.add_argument(
        "--stabilise",
        action="store_true",
        help="have each trace ignore what differs from one replay to the next",
    )


def replay(options: argparse.Namespace) -> int:
    """Replay traces against a server, and say what is different.

    The exit code is 0 where nothing differs, 1 where something does, 2 where something could not be run.
    """
    from ..trace import suite as runs

    words = list(options.words)
    target = options.command or None
    if target is None and not _is_trace(words[-1]):
        target = words.pop()
    for other in [word for word in words if not _is_trace(word)]:
        raise UsageError(
            f"{other}: a trace is a file *.jsonl, or a folder; a target is the last word, and there is one"
        )
    if not words:
        raise UsageError(
            f"replay wants a trace (*.jsonl, or a folder) before the target {target}"
        )
    paths = runs.files(map(Path, words))
    patient = options.update or options.stabilise
    act = partial(
        runs.replay_all, paths, target, options.over, options.timeout, patient
    )
    logging.getLogger("mcp_trio").addHandler(
        logging.NullHandler()
    )  # the servers', which say what the traces hold

    def replayed() -> list[runs.Result]:
        with (
            redirect_stdout(sys.stderr),
            bar() as tell,
        ):  # what servers in this process print
            return trio.run(act, lambda done, all: tell(done, all, "replays"))

    results = replayed()
    if options.stabilise:
        for first, second in zip(results, replayed(), strict=True):
            for difference in runs.stabilise(first, second):
                print(
                    f"{first.path}: ignores {difference.pointer}: {' or '.join(difference.values())}"
                )
        results = replayed()
    if options.update and (
        updated := [result.path for result in results if runs.update(result)]
    ):
        for path in updated:
            print(f"{path}: updated")
        results = replayed()
    if not any(one.replays or one.problems for one in results):
        raise UsageError(
            "there is nothing to replay: no trace holds on a transport that leads to this target"
        )
    for result in results:
        for line in runs.told(result, colour=in_colour()):
            print(line)
    print(runs.summary(results))
    return (
        2
        if any(one.problems for one in results)
        else 1
        if any(one.findings for one in results)
        else 0
    )


def _is_trace(word: str) -> bool:
    return word.endswith(".jsonl") or os.path.isdir(word)
