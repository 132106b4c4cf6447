"""What a benchmark has shown, as a table for people, as JSON, as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..load_spec import UsageError
from .load import Run


class Report(msgspec.Struct):
    """One server, under one load, with one or another number of requests under way."""

    target: str
    revision: str
    server: str = ""
    load: str = ""
    runs: list[Run] = []
    start_up: float | None = None
    memory: list[int | None] = []  # before any load, and after all of it

    def rows(self) -> list[list[str]]:
        """A table: first what its columns are."""
        table = [
            [
                "at once",
                "calls/s",
                "p50",
                "p90",
                "p99",
                "longest",
                "errors",
                "server's share of a core",
            ]
        ]
        for run in self.runs:
            times = [
                duration(time) for time in (run.p50, run.p90, run.p99, run.longest)
            ]
            share = "" if run.server_took is None else f"{run.server_took:.0%}"
            table.append(
                [
                    str(run.at_once),
                    f"{run.rate:,.0f}",
                    *times,
                    f"{sum(run.errors.values()):,}",
                    share,
                ]
            )
        return table

    def remarks(self) -> list[str]:
        """What is to be said below the table."""
        lines = []
        if self.start_up is not None:
            lines.append(f"start to first reply: {duration(self.start_up)}")
        if sizes := [size / 1e6 for size in self.memory if size]:
            lines.append("memory: {:.1f} MB, after the load {:.1f} MB".format(*sizes))
        for run in self.runs:
            lines += [
                f"error, {times:,} of {run.at_once} at once: {error}"
                for error, times in run.errors.items()
            ]
            if run.is_limited:
                lines.append(
                    f"with {run.at_once} at once the load itself took {run.load_took:.0%} of a core: it is the limit"
                )
        return lines


def duration(seconds: float) -> str:
    """A time for people."""
    if math.isnan(seconds):
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def chart(
    path: Path, title: str, bars: Mapping[str, float], labels: Sequence[str], ours: int
) -> None:
    """Write bars as SVG, ours in a colour of its own. Raises UsageError."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "a chart wants matplotlib: pip install 'mcp_trio[charts]'"
        ) from None
    matplotlib.use("svg")
    from matplotlib import pyplot

    # One grey that can be read on white and on black, for a page is one or the other; and letters that stay letters.
    grey = "#7d8590"
    style: Any = {
        "text.color": grey,
        "ytick.color": grey,
        "svg.fonttype": "none",
        "svg.hashsalt": "mcp_trio",
    }
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(
            figsize=(8, 0.6 + 0.36 * len(bars)), layout="constrained"
        )
        colours = [
            "#2f81f7" if number == ours else "#8b949e" for number in range(len(bars))
        ]
        drawn = axes.barh(list(bars), list(bars.values()), color=colours)
        axes.bar_label(drawn, labels, padding=4)
        axes.set_title(title, loc="left")
        axes.invert_yaxis()
        axes.spines[:].set_visible(False)
        axes.tick_params(left=False, bottom=False, labelbottom=False)
        axes.margins(x=0.15)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
