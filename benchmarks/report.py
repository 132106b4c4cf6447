"""What a run has shown: printed, and as RESULTS.md, results.json and charts."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from mcp_trio.bench.report import chart, duration

from .contenders import CONTENDERS, Roll, versions
from .ratios import RATIOS, Figures
from .specials import SPECIALS
from .tasks import TASK_WORKLOADS
from .workloads import LOADED, Figure, Workload

ALL: list[Workload] = [*LOADED, *SPECIALS, *TASK_WORKLOADS]
WORKLOADS = {workload.name: workload for workload in ALL}
CHARTS = {
    "stdio_async": "chart-stdio.svg",
    "http_newest": "chart-http.svg",
    "start_up": "chart-start-up.svg",
    "memory": "chart-memory.svg",
}
WHAT = {contender.name: contender.what for contender in CONTENDERS}
OURS = "mcp_trio"


@dataclass
class Document:
    """A whole run."""

    figures: Figures
    roll: Roll
    command: str
    machine: str
    date: str
    failed: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, figures: Figures, roll: Roll, command: str) -> Document:
        """A run that has just ended on this machine."""
        failed = [
            f"{name}, {contender}: {figure.about['errors']} calls failed"
            for name, by_contender in figures.items()
            for contender, figure in by_contender.items()
            if figure.about.get("errors")
        ]
        return cls(
            figures,
            roll,
            command,
            machine(),
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            failed,
        )

    def show(self, console: Console) -> None:
        """Print it for people."""
        for title, header, rows in self._tables()[
            :-1
        ]:  # who they are stands in the file
            table = Table(title=title, title_justify="left", box=None)
            for column, name in enumerate(header):
                table.add_column(name, justify="left" if column == 0 else "right")
            for row in rows:
                table.add_row(*row)
            console.print(table)
            console.print()
        for line in self._remarks():
            console.print(line, markup=False, highlight=False)

    def write(self, folder: Path) -> None:
        """RESULTS.md, the figures as JSON, and the charts."""
        folder.mkdir(parents=True, exist_ok=True)
        drawn = [name for name in CHARTS if name in self.figures]
        for name in drawn:
            self._draw(folder / CHARTS[name], name)
        lines = [
            "# Results",
            "",
            f"`{self.command}`, {self.date}, on {self.machine}.",
            "",
            *self._remarks(),
            "",
        ]
        lines += [f"![{WORKLOADS[name].title}]({CHARTS[name]})\n" for name in drawn]
        for title, header, rows in self._tables():
            lines += [
                f"## {title}",
                "",
                markdown(header),
                markdown(["---", *["---:"] * (len(header) - 1)]),
            ]
            lines += [*map(markdown, rows), ""]
        (folder / "RESULTS.md").write_text("\n".join(lines), encoding="utf-8")
        raw: dict[str, object] = {
            "command": self.command,
            "date": self.date,
            "machine": self.machine,
            "versions": self._versions(),
        }
        raw |= {"left_out": self.roll.left_out, "figures": self.figures}
        raw["ratios"] = [
            {
                "what": ratio.what,
                "to": ratio.to_what,
                "value": ratio.value(self.figures),
                "bound": ratio.bound,
            }
            for ratio in RATIOS
        ]
        (folder / "results.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n"
        )

    def _tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        held = [
            list(ratio.told(self.figures))
            for ratio in RATIOS
            if ratio.of[0] in self.figures
        ]
        tables = [
            ("Ratios", ["workload", "mcp_trio to", "ratio", "bound", "reached"], held)
        ]
        for name, figures in self.figures.items():
            tables.append(
                (WORKLOADS[name].title, self._header(name), self._rows(name, figures))
            )
        there = [
            [name, WHAT[name], stands_on]
            for name, stands_on in self._versions().items()
        ]
        tables.append(("Contenders", ["name", "what it is", "stands on"], there))
        return tables

    def _header(self, name: str) -> list[str]:
        first = {"s": "time", "B": "memory"}.get(
            WORKLOADS[name].unit, WORKLOADS[name].unit
        )
        timed = (
            ["p50", "p99"]
            if any("p50" in figure.about for figure in self.figures[name].values())
            else []
        )
        return ["", first, *timed, "mcp_trio to it", "rounds from, to"]

    def _rows(self, name: str, figures: dict[str, Figure]) -> list[list[str]]:
        unit, ours = WORKLOADS[name].unit, next(iter(figures.values()), None)
        rows = []
        for contender, figure in figures.items():
            times = [
                duration(float(str(figure.about[key])))
                for key in ("p50", "p99")
                if key in figure.about
            ]
            ratio = f"{ours.value / figure.value:.3g}" if ours and figure.value else ""
            low, high = (
                amount(value, unit)
                for value in (min(figure.rounds), max(figure.rounds))
            )
            mark = (
                " (the load is the limit)"
                if figure.about.get("limited_by_the_load")
                else ""
            )
            spread = f"{low}, {high}" if len(figure.rounds) > 1 else ""
            rows.append(
                [contender, amount(figure.value, unit) + mark, *times, ratio, spread]
            )
        return rows

    def _remarks(self) -> list[str]:
        lines = [
            f"- left out: {name}: {' '.join(reason.split())}"
            for name, reason in self.roll.left_out.items()
        ]
        lines += [f"- failed: {what}" for what in self.failed]
        missed = [
            " to ".join(ratio.told(self.figures)[:2])
            for ratio in RATIOS
            if ratio.holds(self.figures) is False
        ]
        reached = sum(ratio.holds(self.figures) is True for ratio in RATIOS)
        bound = sum(ratio.bound is not None for ratio in RATIOS)
        lines.append(
            f"- {reached} of {bound} ratios reached"
            + "".join(f"; missed: {what}" for what in missed)
        )
        return lines

    def _versions(self) -> dict[str, str]:
        there = [
            contender for contender in CONTENDERS if contender.name in self.roll.there
        ]
        return {
            one.name: ", ".join(
                [
                    self.roll.there[one.name].tools,
                    *(f"{name} {version}" for name, version in versions(one).items()),
                ]
            )
            for one in there
        }

    def _draw(self, path: Path, name: str) -> None:
        unit, figures = WORKLOADS[name].unit, self.figures[name]
        shown = {
            one: figure.value
            for one, figure in figures.items()
            if not one.startswith("floor")
        }
        ordered = dict(
            sorted(shown.items(), key=lambda pair: pair[1], reverse=unit == "calls/s")
        )
        bars = {WHAT[one].partition(",")[0]: value for one, value in ordered.items()}
        labels = [amount(value, unit) for value in ordered.values()]
        chart(path, WORKLOADS[name].title, bars, labels, ours=list(ordered).index(OURS))


def markdown(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def amount(value: float, unit: str) -> str:
    """A figure for people."""
    if unit == "s":
        return duration(value)
    if unit == "B":
        return f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"
    return f"{value:,.0f} {unit}"


def machine() -> str:
    """What this machine is."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(
                (
                    line.partition(":")[2].strip()
                    for line in file
                    if line.startswith("model name")
                ),
                model,
            )
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
