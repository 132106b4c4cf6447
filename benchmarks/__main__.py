"""Measure mcp_trio, its peers and the floors in one run: `python -m benchmarks [--quick]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mcp_trio.load_spec import UsageError

from . import report
from .contenders import CONTENDERS, Roll, call_roll, found
from .ratios import RATIOS, Figures
from .report import WORKLOADS
from .stand import Stand
from .workloads import FULL, QUICK, Pace, Workload

# Letters in a line where there is no terminal that says how many it has.
WIDTH = 140
# What takes minutes to build is left out of a quick run, unless it is there.
SLOW_TO_BUILD = ("go", "cargo")


def main(words: Sequence[str] | None = None) -> int:
    """Build, measure, tell; 1 where a ratio is not reached or a contender fails, as the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="within three minutes: short rounds, no long workloads",
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help=f"a workload; may be repeated: {', '.join(WORKLOADS)}",
    )
    parser.add_argument(
        "--results",
        metavar="FOLDER",
        type=Path,
        help="write RESULTS.md, results.json and charts there",
    )
    options = parser.parse_args(words)
    if unknown := set(options.only) - set(WORKLOADS):
        parser.error(
            f"there is no workload {', '.join(unknown)}, only {', '.join(WORKLOADS)}"
        )
    console = Console(stderr=True)
    pace = QUICK if options.quick else FULL
    wanted = [
        one
        for one in WORKLOADS.values()
        if not options.only and (pace.many or not one.full_only)
    ]
    wanted += [WORKLOADS[name] for name in options.only]
    needed = [
        one
        for one in CONTENDERS
        if any(one.name in workload.contenders for workload in wanted)
    ]
    chosen = [
        one
        for one in needed
        if not options.quick or one.toolchain not in SLOW_TO_BUILD or found(one)
    ]
    roll = call_roll(chosen, console.print)
    roll.left_out |= {
        one.name: "not built before, and --quick does not"
        for one in needed
        if one not in chosen
    }
    for name, reason in roll.left_out.items():
        console.print(f"left out: {name}: {reason}", markup=False)
    figures = measure(wanted, pace, roll, console)
    document = report.Document.of(
        figures, roll, "python -m benchmarks" + " --quick" * options.quick
    )
    document.show(Console(width=None if sys.stdout.isatty() else WIDTH))
    if options.results:
        document.write(options.results)
    return (
        1
        if any(ratio.holds(figures) is False for ratio in RATIOS) or document.failed
        else 0
    )


def measure(
    wanted: Sequence[Workload], pace: Pace, roll: Roll, console: Console
) -> Figures:
    """Each workload in turn. One that fails is told, and the others go on."""
    by_name = {contender.name: contender for contender in CONTENDERS}
    figures: Figures = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        Stand(roll.there) as stand,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        bar = progress.add_task("", total=len(wanted))
        for workload in wanted:
            progress.update(bar, description=workload.title)
            started = time.monotonic()
            contenders = [
                by_name[name] for name in workload.contenders if name in roll.there
            ]
            try:
                figures[workload.name] = workload.measure(stand, contenders, pace)
            except UsageError as problem:
                console.print(f"failed: {workload.title}: {problem}", markup=False)
            console.print(
                f"{time.monotonic() - started:6.1f} s  {workload.title}",
                highlight=False,
            )
            progress.advance(bar)
    return figures


if __name__ == "__main__":
    sys.exit(main())
