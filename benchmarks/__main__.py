"""Measure mcp_trio, its peers and the floors in one run: `python -m benchmarks`."""

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
from .contenders.builds import Builds, build_all, find_build
from .contenders.table import CONTENDERS, Contender
from .contenders.toolchains import Unavailable
from .ratios import Figures
from .registry import RATIOS, WORKLOADS
from .servers import Servers
from .workloads import FULL, QUICK, Pace, Workload

# The width of the report if the output is not a terminal.
WIDTH = 140
# Toolchains that take minutes. A quick run uses only their existing builds.
SLOW_TO_BUILD = ("go", "cargo")
# Contenders that take longer than all others. No bound of a quick run needs them.
SLOW_TO_RUN = ("fastmcp",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and measure. Returns 1 if a bound is missed or a call failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="take three minutes: short rounds, no long workloads",
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help=f"run this workload; may be repeated: {', '.join(WORKLOADS)}",
    )
    parser.add_argument(
        "--results",
        metavar="FOLDER",
        type=Path,
        help="write RESULTS.md, results.json and charts there",
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only if name not in WORKLOADS]
    if unknown:
        known = ", ".join(WORKLOADS)
        parser.error(f"--only: expected a workload ({known}), got {unknown[0]!r}")
    if options.results and find_spec("matplotlib") is None:
        parser.error(
            "--results: charts need matplotlib: pip install 'mcp_trio[charts]'"
        )
    console = Console(stderr=True)
    pace = QUICK if options.quick else FULL
    workloads = chosen_workloads(options.only, pace)
    builds = build_contenders(workloads, options.quick, console)
    figures, failed = measure(workloads, pace, builds, console)
    command = "python -m benchmarks"
    if options.quick:
        command += " --quick"
    document = report.Document.of(figures, builds, command, failed)
    if options.results:
        document.write(options.results)
    document.show(Console(width=None if sys.stdout.isatty() else WIDTH))
    missed = any(ratio.holds(figures) is False for ratio in RATIOS)
    return int(missed or bool(document.failed))


def chosen_workloads(names: Sequence[str], pace: Pace) -> list[Workload]:
    """Return the workloads that were named, or all that the pace allows."""
    if names:
        return [WORKLOADS[name] for name in names]
    workloads = list(WORKLOADS.values())
    if pace.full:
        return workloads
    return [workload for workload in workloads if not workload.full_only]


def build_contenders(
    workloads: Sequence[Workload], quick: bool, console: Console
) -> Builds:
    """Build the contenders of some workloads. A quick run leaves out slow builds."""
    needed = {name for workload in workloads for name in workload.contenders}
    chosen = [contender for contender in CONTENDERS if contender.name in needed]
    skipped: dict[str, str] = {}
    for contender in chosen:
        reason = _reason_to_skip(contender)
        if quick and reason:
            skipped[contender.name] = reason
    chosen = [contender for contender in chosen if contender.name not in skipped]
    builds = build_all(chosen, console.print)
    builds.left_out |= skipped
    for name, reason in builds.left_out.items():
        console.print(f"left out: {name}: {reason}", markup=False)
    return builds


def _reason_to_skip(contender: Contender) -> str:
    """Return why a quick run leaves out a contender, or an empty string."""
    if contender.name in SLOW_TO_RUN:
        return "too slow for --quick"
    if contender.toolchain in SLOW_TO_BUILD and find_build(contender) is None:
        return "not built before, and too slow to build for --quick"
    return ""


def measure(
    workloads: Sequence[Workload], pace: Pace, builds: Builds, console: Console
) -> tuple[Figures, list[str]]:
    """Measure each workload in turn. If one fails, the next ones still run.

    Returns the figures, and a line for each workload that failed.
    """
    by_name = {contender.name: contender for contender in CONTENDERS}
    figures: Figures = {}
    failed: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        Servers(builds.built) as servers,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        bar = progress.add_task("", total=len(workloads))
        for workload in workloads:
            progress.update(bar, description=workload.title)
            started = time.monotonic()
            contenders = [
                by_name[name] for name in workload.contenders if name in builds.built
            ]
            try:
                measured = workload.measure(servers, contenders, pace)
            except Unavailable as reason:
                builds.left_out[workload.title] = str(reason)
                console.print(f"left out: {workload.title}: {reason}", markup=False)
            except UsageError as problem:
                failed.append(f"{workload.title}: {problem}")
                console.print(f"failed: {failed[-1]}", markup=False)
            # A bug in one workload must not cost the figures of the others.
            except Exception as problem:
                failed.append(f"{workload.title}: {problem!r}")
                console.print_exception()
            else:
                if measured:
                    figures[workload.name] = measured
            seconds = time.monotonic() - started
            console.print(f"{seconds:6.1f} s  {workload.title}", highlight=False)
            progress.advance(bar)
    return figures, failed


if __name__ == "__main__":
    sys.exit(main())
