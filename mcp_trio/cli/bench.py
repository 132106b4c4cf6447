"""The command `bench`: measure a server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..bench.load import Run
from ..bench.report import Report, chart
from ..bench.target import BenchTarget, conversations, reach, recorded, request
from ..client.target import is_url, transport_of
from ..load_spec import UsageError
from ..trace.format import Trace, read
from ..trace.suite import files
from .arguments import find_tool, read_arguments
from .options import (
    DEFAULT_REVISION,
    DEMO,
    PROG,
    SPEC_HELP,
    Parser,
    client_arguments,
    seconds,
    timeout,
    token_of,
)
from .output import as_json, progress_bar

if TYPE_CHECKING:
    from rich.table import Table

# The default numbers of concurrent requests. Over HTTP, each has its own connection.
AT_ONCE = {"http": [1, 16], "sse": [1], "ws": [1, 50], "stdio": [1, 1000]}
# The width of the table without a terminal.
WIDTH = 140
# The time for warming up, as a fraction of the measured time.
WARM_UP = 0.3


def bench_arguments(parser: Parser) -> None:
    """Declare the arguments of `bench`."""
    parser.usage = (
        f"{PROG} bench [OPTION...] SPEC|URL [TOOL [KEY=VALUE...]]\n"
        f"       {PROG} bench [OPTION...] [TOOL [KEY=VALUE...]] -- COMMAND..."
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SPEC|URL TOOL KEY=VALUE",
        help=f"the server, and the call to measure; default: tools/list; {SPEC_HELP}",
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="send the requests of this trace; with a folder, or if repeated, a mix of "
        "the conversations",
    )
    parser.add_argument(
        "--think",
        metavar="FACTOR",
        type=seconds,
        default=0.0,
        help="wait before each request as long as the client in the trace did, "
        "multiplied by FACTOR (0)",
    )
    parser.add_argument(
        "--at-once",
        metavar="N,N",
        type=_numbers,
        help="the numbers of concurrent requests to measure; over HTTP, each request "
        "has its own connection (stdio 1,1000; HTTP 1,16; WebSocket 1,50)",
    )
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=timeout,
        default=5.0,
        help="how long to measure each number of concurrent requests (5)",
    )
    client_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument(
        "--svg", metavar="FILE", type=Path, help="write a chart to this file"
    )


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers such as 1,16, got {text!r}")
    return numbers


def bench(options: argparse.Namespace) -> int:
    """Measure a server's throughput, latency, start-up time and memory.

    The exit code is 1 if calls failed.
    """
    if options.svg and find_spec("matplotlib") is None:
        raise UsageError("--svg needs: pip install 'mcp_trio[charts]'")
    plan = _plan(options)
    total = len(plan.numbers) * plan.seconds * (1 + WARM_UP)
    spent = 0.0
    with progress_bar() as show:

        def advance(seconds: float) -> None:
            nonlocal spent
            spent += seconds
            show(round(spent), round(total), "seconds of measuring")

        report = _measure(plan, advance)
    if options.json:
        print(as_json(report))
    else:
        _print(report)
    if options.svg:
        # Last, so that a failure to draw does not lose the figures.
        _draw(report, options.svg)
    return 1 if any(run.errors for run in report.runs) else 0


class Plan(NamedTuple):
    """What to measure, and how."""

    spec: str
    # What to connect to: a URL, or the command that starts the server.
    target: str | list[str]
    transport: str
    revision: str
    token: str
    # The tool to call and its KEY=VALUE pairs, if any.
    words: list[str]
    traces: list[Trace]
    # The factor by which the pauses in the traces are multiplied.
    think: float
    numbers: list[int]
    seconds: float


def _plan(options: argparse.Namespace) -> Plan:
    words = list(options.words)
    target: str | list[str]
    transport = "stdio"
    if options.command:
        spec = " ".join(options.command)
        target = options.command
    else:
        spec = words.pop(0) if words else DEMO
        target = [sys.executable, "-m", "mcp_trio", "run", spec]
        if is_url(spec):
            target = spec
            transport = transport_of(spec)
    traces = [read(path) for path in files(options.trace)]
    revision = options.revision
    if traces:
        revision = revision or traces[0].header.revision
    return Plan(
        spec=spec,
        target=target,
        transport=transport,
        revision=revision or DEFAULT_REVISION,
        token=token_of(options),
        words=words,
        traces=traces,
        think=options.think,
        numbers=options.at_once or AT_ONCE[transport],
        seconds=options.seconds,
    )


def _measure(plan: Plan, advance: Callable[[float], None]) -> Report:
    """Measure each number of concurrent requests, each with a newly started server."""
    report = Report(plan.spec, plan.revision)
    for number in plan.numbers:
        connections = 1
        window = number
        if plan.transport == "http":
            connections = number
            window = 1
        with reach(plan.target, report.revision, connections, plan.token) as server:
            report.server = server.name
            report.revision = server.revision
            report.start_up = report.start_up or server.start_up
            report.load, run = _load(server, plan)
            memory_before = server.memory()
            run(window, plan.seconds * WARM_UP, report_progress=advance)
            report.runs.append(run(window, plan.seconds, report_progress=advance))
            if not report.memory:
                report.memory = [memory_before]
            # The first server before the load, and the last one after it.
            report.memory = [report.memory[0], server.memory()]
    return report


def _load(server: BenchTarget, plan: Plan) -> tuple[str, Callable[..., Run]]:
    """Return a description of the load, and the function that runs it.

    Raises UsageError.
    """
    if len(plan.traces) == 1 and not plan.think:
        [trace] = plan.traces
        requests = recorded(trace, server.revision)
        return f"the requests of {trace.path}", partial(server.load, requests)
    if plan.traces:
        mix = conversations(plan.traces, server.revision, plan.think)
        description = f"a mix of {len(mix)} of {len(plan.traces)} traces"
        return description, partial(server.load_mix, mix)
    if not plan.words:
        requests = [request("tools/list", {}, server.revision)]
        return "tools/list", partial(server.load, requests)
    name, *pairs = plan.words
    tool = find_tool(server.tools(), name)
    params = {"name": name, "arguments": read_arguments(tool, pairs)}
    requests = [request("tools/call", params, server.revision)]
    return " ".join(plan.words), partial(server.load, requests)


def _print(report: Report) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    title = f"{report.server}: {report.load}, {report.revision}"
    console.print(_table(title, report.rows()))
    by_method = report.method_rows()
    if by_method:
        console.print(_table("by method", by_method))
    for line in report.remarks():
        console.print(line, markup=False, highlight=False)


def _table(title: str, rows: list[list[str]]) -> Table:
    from rich.table import Table

    titles, *others = rows
    table = Table(box=None, title=title, title_justify="left")
    for column in titles:
        table.add_column(column, justify="right")
    for row in others:
        table.add_row(*row)
    return table


def _draw(report: Report, path: Path) -> None:
    bars = {f"{run.at_once} at once": run.rate for run in report.runs}
    labels = [f"{run.rate:,.0f} a second" for run in report.runs]
    chart(path, f"{report.server}: {report.load}", bars, labels, ours=len(bars) - 1)
