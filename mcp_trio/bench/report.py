"""The report of a benchmark: a table, remarks and a chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..load_spec import UsageError
from .load import MethodRun, Run

_COLUMNS = [
    "at once",
    "calls/s",
    "p50",
    "p90",
    "p99",
    "longest",
    "errors",
    "server's share of a core",
]
_METHOD_COLUMNS = [
    "at once",
    "method",
    "calls",
    "p50",
    "p90",
    "p99",
    "longest",
    "errors",
]
# A gray that is readable on both white and black pages.
_GRAY = "#7d8590"
_BAR = "#8b949e"
_OUR_BAR = "#2f81f7"
_STYLE: Any = {
    "text.color": _GRAY,
    "ytick.color": _GRAY,
    # Keep text as text.
    "svg.fonttype": "none",
    # Write the same file for the same figures.
    "svg.hashsalt": "mcp_trio",
}


class Report(msgspec.Struct):
    """The runs of one load against one server, with different numbers at once."""

    target: str
    revision: str
    server: str = ""
    load: str = ""
    runs: list[Run] = []
    start_up: float | None = None
    memory: list[int | None] = []  # before any load, and after all of it

    def rows(self) -> list[list[str]]:
        """Return the rows of a table, beginning with the column names."""
        return [_COLUMNS, *(_row(run) for run in self.runs)]

    def method_rows(self) -> list[list[str]]:
        """Return the rows of a table by method, beginning with the column names.

        Returns an empty list if all requests have the same method.
        """
        if not any(len(run.methods) > 1 for run in self.runs):
            return []
        rows = [_METHOD_COLUMNS]
        for run in self.runs:
            for method, figures in run.methods.items():
                rows.append(_method_row(run, method, figures))
        return rows

    def remarks(self) -> list[str]:
        """Return the lines below the table."""
        lines = []
        if self.start_up is not None:
            lines.append(f"start to first reply: {duration(self.start_up)}")
        sizes = [size / 1e6 for size in self.memory if size]
        if len(sizes) == 2:
            before, after = sizes
            lines.append(f"memory: {before:.1f} MB, after the load {after:.1f} MB")
        for run in self.runs:
            lines.extend(_run_remarks(run))
        return lines


def _row(run: Run) -> list[str]:
    share = ""
    if run.server_took is not None:
        share = f"{run.server_took:.0%}"
    return [
        str(run.at_once),
        f"{run.rate:,.0f}",
        duration(run.p50),
        duration(run.p90),
        duration(run.p99),
        duration(run.longest),
        f"{sum(run.errors.values()):,}",
        share,
    ]


def _method_row(run: Run, method: str, figures: MethodRun) -> list[str]:
    return [
        str(run.at_once),
        method,
        f"{figures.calls:,}",
        duration(figures.p50),
        duration(figures.p90),
        duration(figures.p99),
        duration(figures.longest),
        f"{figures.errors:,}",
    ]


def _run_remarks(run: Run) -> list[str]:
    lines = [
        f"error, {times:,} of {run.at_once} at once: {error}"
        for error, times in run.errors.items()
    ]
    if run.is_limited:
        lines.append(
            f"with {run.at_once} at once the load itself took {run.load_took:.0%} "
            "of a core: it is the limit"
        )
    return lines


def duration(seconds: float) -> str:
    """Return a time with a suitable unit."""
    if math.isnan(seconds):
        return "-"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds / 1e-3:.3g} ms"
    return f"{seconds * 1e6:.0f} µs"


def chart(
    path: Path, title: str, bars: Mapping[str, float], labels: Sequence[str], ours: int
) -> None:
    """Write a bar chart as SVG, with bar number `ours` highlighted. Raises UsageError.

    `bars` maps names to values, and `labels` are shown at their ends.
    """
    # matplotlib is optional, and slow to import.
    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "a chart needs matplotlib: pip install 'mcp_trio[charts]'"
        ) from None
    matplotlib.use("svg")
    from matplotlib import pyplot

    colors = [_BAR] * len(bars)
    colors[ours] = _OUR_BAR
    height = 0.6 + 0.36 * len(bars)
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
        drawn = axes.barh(list(bars), list(bars.values()), color=colors)
        axes.bar_label(drawn, labels, padding=4)
        axes.set_title(title, loc="left")
        axes.invert_yaxis()
        axes.spines[:].set_visible(False)
        axes.tick_params(left=False, bottom=False, labelbottom=False)
        axes.margins(x=0.15)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
