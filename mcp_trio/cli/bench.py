"""The command that measures a server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..client.target import is_url, transport_of
from . import arguments as values
from .options import (
    DEMO,
    PROG,
    SPEC_HELP,
    SPOKEN,
    Parser,
    client_arguments,
    seconds,
    timeout,
    token_of,
)
from .output import as_json, bar

if TYPE_CHECKING:
    from rich.table import Table

    from ..bench.load import Run
    from ..bench.report import Report
    from ..bench.target import BenchTarget
    from ..trace.format import Trace

# How many at once, where nothing else is said: over HTTP so many connections, else so many on one.
AT_ONCE = {"http": [1, 16], "sse": [1], "ws": [1, 50], "stdio": [1, 1000]}
# Letters in a line where there is no terminal that says how many it has.
WIDTH = 140
# What the measuring takes of a server's time before any of it counts, as a share of what counts.
WARM_UP = 0.3


def arguments(parser: Parser) -> None:
    """What bench takes."""
    parser.usage = (
        f"{PROG} bench [OPTION...] SPEC|URL [TOOL [KEY=VALUE...]]\n"
        f"       {PROG} bench [OPTION...] [TOOL [KEY=VALUE...]] -- COMMAND..."
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SPEC|URL TOOL KEY=VALUE",
        help=f"what to call (else tools are listed); {SPEC_HELP}",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="send the requests of a trace; of a folder, or of several: a mix of their "
        "conversations",
    )
    parser.add_argument(
        "--think",
        metavar="FACTOR",
        type=seconds,
        default=0.0,
        help="wait before each request of a trace as long as its client did, times "
        "this (0)",
    )
    parser.add_argument(
        "--at-once",
        metavar="N,N",
        type=_numbers,
        help="requests under way, over HTTP each on its own connection (stdio 1,1000; HTTP 1,16; WebSocket 1,50)",
    )
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=timeout,
        default=5.0,
        help="for each number of them (5)",
    )
    client_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="draw a chart")


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(
            f"numbers are wanted, such as 1,16, not {text!r}"
        )
    return numbers


def bench(options: argparse.Namespace) -> int:
    """Measure a server: throughput, latency, start-up, memory.

    The exit code is 1 where calls have failed.
    """
    numbers = options.at_once or AT_ONCE[_way(options)]
    total, spent = len(numbers) * options.seconds * (1 + WARM_UP), 0.0

    def advance(seconds: float) -> None:
        nonlocal spent
        spent += seconds
        tell(round(spent), round(total), "seconds of measuring")

    with bar() as tell:
        report = _measured(options, numbers, advance)
    if options.json:
        print(as_json(report))
    else:
        _print(report)
    if options.svg:  # last: what was measured is not lost where it cannot be drawn
        _draw(report, options.svg)
    return 1 if any(run.errors for run in report.runs) else 0


def _way(options: argparse.Namespace) -> str:
    first = options.words[0] if options.words else ""
    return "stdio" if options.command or not is_url(first) else transport_of(first)


def _measured(
    options: argparse.Namespace, numbers: list[int], tell: Callable[[float], None]
) -> Report:
    """Each number of requests at once, against a server that has just been reached."""

    from ..bench.report import Report
    from ..bench.target import reach
    from ..trace.format import read
    from ..trace.suite import files

    words, way = list(options.words), _way(options)
    spec = " ".join(options.command) or (words.pop(0) if words else DEMO)
    command = options.command or [sys.executable, "-m", "mcp_trio", "run", spec]
    traces = [read(path) for path in files(options.trace)]
    revision = options.revision or (traces and traces[0].header.revision) or SPOKEN
    report = Report(spec, revision)
    for number in numbers:
        connections, window = (number, 1) if way == "http" else (1, number)
        with reach(
            command if way == "stdio" else spec,
            report.revision,
            connections,
            token_of(options),
        ) as server:
            report.server, report.revision = server.name, server.revision
            report.start_up = report.start_up or server.start_up
            report.load, run = _load(server, words, traces, options.think)
            before = server.memory()
            run(window, options.seconds * WARM_UP, tell=tell)
            report.runs.append(run(window, options.seconds, tell=tell))
            report.memory = [*(report.memory or [before])[:1], server.memory()]
    return report


def _load(
    server: BenchTarget, words: list[str], traces: list[Trace], think: float
) -> tuple[str, Callable[..., Run]]:
    """Return the load in words, and what runs it. Raises UsageError."""
    from ..bench.target import conversations, recorded, request

    if len(traces) == 1 and not think:
        requests = recorded(traces[0], server.revision)
        name = f"the requests of {traces[0].path}"
        return name, partial(server.load, requests)
    if traces:
        mix = conversations(traces, server.revision, think)
        name = f"a mix of {len(mix)} of {len(traces)} traces"
        return name, partial(server.load_mix, mix)
    if not words:
        requests = [request("tools/list", {}, server.revision)]
        return "tools/list", partial(server.load, requests)
    tool = values.named(server.tools(), words[0])
    params = {"name": words[0], "arguments": values.arguments(tool, words[1:])}
    requests = [request("tools/call", params, server.revision)]
    return " ".join(words), partial(server.load, requests)


def _print(report: Report) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    title = f"{report.server}: {report.load}, {report.revision}"
    console.print(_table(title, report.rows()))
    if report.method_rows():
        console.print(_table("by method", report.method_rows()))
    for line in report.remarks():
        console.print(line, markup=False, highlight=False)


def _table(title: str, rows: list[list[str]]) -> Table:
    from rich.table import Table

    first, *others = rows
    table = Table(box=None, title=title, title_justify="left")
    for name in first:
        table.add_column(name, justify="right")
    for row in others:
        table.add_row(*row)
    return table


def _draw(report: Report, path: Path) -> None:
    from ..bench.report import chart

    bars = {f"{run.at_once} at once": run.rate for run in report.runs}
    labels = [f"{run.rate:,.0f} a second" for run in report.runs]
    chart(path, f"{report.server}: {report.load}", bars, labels, ours=len(bars) - 1)
