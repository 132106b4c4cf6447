"""The commands for traces: record, replay, show."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .cli_types import DEMO, PROG, SPEC_HELP, Parser, address, listening, one_of, timeout
from .client import is_url, ungrouped
from .loading import Problem
from .terminal import bar, in_colour

if TYPE_CHECKING:
    from .trace.format import Trace
    from .trace.record import Recorder

TRANSPORTS = ("stdio", "http", "sse", "ws")
ENDS = b'"ends":true}'  # a line of a trace on which no message is


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
    parser.add_argument("--over", metavar="NAMES", type=transports, default=(), help=f"of {','.join(TRANSPORTS)} (all)")
    parser.add_argument("--timeout", metavar="SECONDS", type=timeout, default=10.0, help="for what has to come (10)")
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument("--update", action="store_true", help="rewrite the traces that differ with what came")
    changes.add_argument(
        "--stabilise", action="store_true", help="have each trace ignore what differs from one replay to the next"
    )


def replay(options: argparse.Namespace) -> int:
    """Replay traces against a server, and say what is different.

    The exit code is 0 where nothing differs, 1 where something does, 2 where something could not be run.
    """
    from .trace import runs

    words = list(options.words)
    target = options.command or None
    if target is None and not _is_trace(words[-1]):
        target = words.pop()
    for other in [word for word in words if not _is_trace(word)]:
        raise Problem(f"{other}: a trace is a file *.jsonl, or a folder; a target is the last word, and there is one")
    if not words:
        raise Problem(f"replay wants a trace (*.jsonl, or a folder) before the target {target}")
    paths = runs.files(map(Path, words))
    patient = options.update or options.stabilise
    act = partial(runs.replay_all, paths, target, options.over, options.timeout, patient)
    logging.getLogger("mcp_trio").addHandler(logging.NullHandler())  # the servers', which say what the traces hold

    def replayed() -> list[runs.Result]:
        with redirect_stdout(sys.stderr), bar() as tell:  # what servers in this process print
            return trio.run(act, lambda done, all: tell(done, all, "replays"))

    results = replayed()
    if options.stabilise:
        for first, second in zip(results, replayed(), strict=True):
            for difference in runs.stabilise(first, second):
                print(f"{first.path}: ignores {difference.pointer}: {' or '.join(difference.values())}")
        results = replayed()
    if options.update and (updated := [result.path for result in results if runs.update(result)]):
        for path in updated:
            print(f"{path}: updated")
        results = replayed()
    if not any(one.replays or one.problems for one in results):
        raise Problem("there is nothing to replay: no trace holds on a transport that leads to this target")
    for result in results:
        for line in runs.told(result, colour=in_colour()):
            print(line)
    print(runs.summary(results))
    return 2 if any(one.problems for one in results) else 1 if any(one.findings for one in results) else 0


def _is_trace(word: str) -> bool:
    return word.endswith(".jsonl") or os.path.isdir(word)


# show


def show_arguments(parser: Parser) -> None:
    """What show takes."""
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file *.jsonl")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write it as a page that needs no network")


def show(options: argparse.Namespace) -> int:
    """Show a trace as a sequence picture.

    Of one that is cut off it is what there is, with exit code 2.
    """
    import shutil

    from .trace import format, picture

    def draw(trace: Trace) -> None:
        if options.html:
            options.html.write_text(picture.as_html(trace), encoding="utf-8")
        else:
            print(picture.in_terminal(trace, shutil.get_terminal_size().columns, in_colour()))

    try:
        draw(format.read(options.trace))
    except format.BadTrace as bad:
        if bad.whole:
            draw(bad.whole)
        raise
    return 0


# record


def record_arguments(parser: Parser) -> None:
    """What record takes."""
    parser.usage = f"{PROG} record -o FILE [OPTION...] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="the trace; if taken, FILE-2")
    parser.add_argument("--listen", metavar="[HOST:]PORT", type=address, help="stand there, before an HTTP server")
    parser.add_argument("--title", metavar="TEXT", default="", help="what the trace holds")
    parser.add_argument("--client", metavar="NAME", default="", help="who speaks to the server")


def record(options: argparse.Namespace) -> int:
    """Write a trace of what passes between a client and a server.

    The exit code is the server's.
    """
    from .trace.record import Recorder, create, record_stdio
    from .trace.taps import public

    spec: str = options.spec or DEMO
    url = spec if is_url(spec) and not options.command else ""
    spec = public(url) or spec
    if url and not options.listen:
        raise Problem(f"--listen [HOST:]PORT is wanted: where clients find what stands before {spec}")
    if options.command and options.listen:
        raise Problem("a command is recorded on standard input and output, so that --listen is out of place")
    if options.output.is_dir():
        raise Problem(f"{options.output} is a folder; name a file")
    about = {"server": " ".join(options.command) or spec, "client": options.client, "title": options.title}
    path = None
    try:
        path = create(options.output)
        recorder = Recorder(path, **about)
        if not options.listen:
            command = options.command or [sys.executable, "-m", "mcp_trio", "run", spec]
            return trio.run(record_stdio, command, recorder)
        with listening(options.listen):
            trio.run(_record_network, url, spec, options.listen, recorder)
        return 0
    except (OSError, ValueError) as error:
        raise Problem(f"nothing can be recorded: {error}") from None
    finally:
        if path and path.exists() and all(line.endswith(ENDS) for line in path.read_bytes().splitlines()[1:]):
            path.unlink()  # nobody has said anything


async def _record_network(url: str, spec: str, listen: str, recorder: Recorder) -> None:
    """Until a signal comes."""
    from .trace.hosts import on_a_port
    from .trace.record import record_network

    with ungrouped(), trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with nullcontext() if url else on_a_port(spec) as here, trio.open_nursery() as nursery:
            where = await nursery.start(record_network, url or here, listen, recorder)
            print(f"Recording {spec} on {where}", file=sys.stderr)
            await anext(signals)
            nursery.cancel_scope.cancel()
