"""Measure mcp_trio, its peers and the floors in one run: `python -m benchmarks [--quick]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mcp_trio.load_spec import UsageError

from . import report
from .contenders import CONTENDERS, Contender, Roll, Unavailable, call_roll, found
from .ratios import Figures
from .registry import RATIOS, WORKLOADS
from .stand import Stand
from .workloads import FULL, QUICK, Pace, Workload

# The width of the report where there is no terminal.
WIDTH = 140
# What takes minutes to build. A quick run leaves it out, unless it is built.
SLOW_TO_BUILD = ("go", "cargo")
# What takes longer than the others together. No bound of a quick run needs it.
SLOW_TO_RUN = ("fastmcp",)


def main(words: Sequence[str] | None = None) -> int:
    """Build and measure. Returns 1 if a bound is missed or a call failed."""
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
    if options.results and find_spec("matplotlib") is None:
        parser.error(
            "--results: charts need matplotlib: pip install 'mcp_trio[charts]'"
        )
    console = Console(stderr=True)
    pace = QUICK if options.quick else FULL
    workloads = chosen_workloads(options.only, pace)
    roll = build_contenders(workloads, options.quick, console)
    figures, failed = measure(workloads, pace, roll, console)
    command = "python -m benchmarks"
    if options.quick:
        command += " --quick"
    document = report.Document.of(figures, roll, command, failed)
    if options.results:
        document.write(options.results)
    document.show(Console(width=None if sys.stdout.isatty() else WIDTH))
    missed = any(ratio.holds(figures) is False for ratio in RATIOS)
    return int(missed or bool(document.failed))


def chosen_workloads(names: Sequence[str], pace: Pace) -> list[Workload]:
    """Return the workloads that were named, or all that the pace allows."""
    if names:
        return [WORKLOADS[name] for name in names]
    return [one for one in WORKLOADS.values() if pace.many or not one.full_only]


def build_contenders(
    workloads: Sequence[Workload], quick: bool, console: Console
) -> Roll:
    """Build the contenders of some workloads. A quick run builds nothing slow."""
    needed = {name for workload in workloads for name in workload.contenders}
    chosen = [contender for contender in CONTENDERS if contender.name in needed]
    skipped: dict[str, str] = {}
    for contender in chosen:
        reason = _reason_to_skip(contender)
        if quick and reason:
            skipped[contender.name] = reason
    chosen = [contender for contender in chosen if contender.name not in skipped]
    roll = call_roll(chosen, console.print)
    roll.left_out |= skipped
    for name, reason in roll.left_out.items():
        console.print(f"left out: {name}: {reason}", markup=False)
    return roll


def _reason_to_skip(contender: Contender) -> str:
    """Return why a quick run leaves a contender out, or nothing."""
    if contender.name in SLOW_TO_RUN:
        return "too slow for --quick"
    if contender.toolchain in SLOW_TO_BUILD and not found(contender):
        return "not built before, and --quick does not"
    return ""


def measure(
    workloads: Sequence[Workload], pace: Pace, roll: Roll, console: Console
) -> tuple[Figures, list[str]]:
    """Measure each workload in turn. If one fails, the others go on.

    Returns the figures, and what went wrong.
    """
    by_name = {contender.name: contender for contender in CONTENDERS}
    figures: Figures = {}
    failed: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        Stand(roll.there) as stand,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        bar = progress.add_task("", total=len(workloads))
        for workload in workloads:
            progress.update(bar, description=workload.title)
            started = time.monotonic()
            contenders = [
                by_name[name] for name in workload.contenders if name in roll.there
            ]
            try:
                measured = workload.measure(stand, contenders, pace)
            except Unavailable as reason:
                roll.left_out[workload.title] = str(reason)
                console.print(f"left out: {workload.title}: {reason}", markup=False)
            except UsageError as problem:
                failed.append(f"{workload.title}: {problem}")
                console.print(f"failed: {failed[-1]}", markup=False)
            except Exception as problem:  # which must not cost the other figures
                failed.append(f"{workload.title}: {problem!r}")
                console.print_exception()
            else:
                if measured:
                    figures[workload.name] = measured
            console.print(
                f"{time.monotonic() - started:6.1f} s  {workload.title}",
                highlight=False,
            )
            progress.advance(bar)
    return figures, failed


if __name__ == "__main__":
    sys.exit(main())
