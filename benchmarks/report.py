"""The report of a run: printed, and as RESULTS.md, results.json and charts."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich import table
from rich.console import Console, JustifyMethod

from mcp_trio.bench.report import chart, duration

from .contenders.builds import Builds, versions
from .contenders.table import CONTENDERS
from .ratios import Figures
from .registry import RATIOS, WORKLOADS
from .workloads import Figure

CHARTS = {
    "stdio_async": "chart-stdio.svg",
    "http_newest": "chart-http.svg",
    "start_up": "chart-start-up.svg",
    "memory": "chart-memory.svg",
}
OURS = "mcp_trio"


class Column(NamedTuple):
    """A column for a detail of the figures."""

    title: str
    key: str  # of a figure's `about`
    format: Callable[[float], str]


COLUMNS = [
    Column("p50", "p50", duration),
    Column("p99", "p99", duration),
    Column("load (cores)", "load_took", "{:.2f}".format),
    Column("server (cores)", "server_took", "{:.2f}".format),
    Column("wake-ups per second", "wake-ups", "{:.3g}".format),
]
TITLES = {contender.name: contender.title for contender in CONTENDERS}


class Table(NamedTuple):
    """A table of the report."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass
class Document:
    """The report of a whole run."""

    figures: Figures
    builds: Builds
    command: str
    machine: str
    date: str
    failed: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, figures: Figures, builds: Builds, command: str, failed: Sequence[str] = ()
    ) -> Document:
        """Return the report of a run that has just ended on this machine.

        `failed` has a line for each workload that failed.
        """
        failures = list(failed)
        for workload, by_case in figures.items():
            for case, figure in by_case.items():
                errors = figure.about.get("errors")
                if errors:
                    failures.append(f"{workload}, {case}: {errors} calls failed")
        date = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        return cls(figures, builds, command, machine(), date, failures)

    def show(self, console: Console) -> None:
        """Print the ratios, the figures and the remarks."""
        for shown in [self._ratios(), *self._workloads()]:
            printed = table.Table(title=shown.title, title_justify="left", box=None)
            for column, name in enumerate(shown.header):
                justify: JustifyMethod = "left" if column == 0 else "right"
                printed.add_column(name, justify=justify)
            for row in shown.rows:
                printed.add_row(*row)
            console.print(printed)
            console.print()
        for line in self._remarks():
            console.print(line, markup=False, highlight=False)

    def write(self, folder: Path) -> None:
        """Write RESULTS.md, the figures as JSON, and the charts into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        data = msgspec.json.format(msgspec.json.encode(self._data()), indent=1)
        (folder / "results.json").write_bytes(data + b"\n")
        text = "\n".join(self._markdown())
        (folder / "RESULTS.md").write_text(text, encoding="utf-8")
        for name, file in CHARTS.items():
            if name in self.figures:
                self._draw(folder / file, name)

    def _markdown(self) -> list[str]:
        """Return the lines of RESULTS.md."""
        title = f"`{self.command}`, {self.date}, on {self.machine}."
        lines = ["# Results", "", title, "", *self._remarks(), ""]
        for name, file in CHARTS.items():
            if name in self.figures:
                lines += [f"![{WORKLOADS[name].title}]({file})", ""]
        for shown in [self._ratios(), *self._workloads(), self._contenders()]:
            rule = ["---", *["---:"] * (len(shown.header) - 1)]
            lines += [f"## {shown.title}", ""]
            lines += [markdown(shown.header), markdown(rule)]
            lines += [markdown(row) for row in shown.rows]
            lines.append("")
        return lines

    def _data(self) -> dict[str, object]:
        """Return the content of results.json."""
        ratios = [
            {
                "title": ratio.title,
                "baseline": ratio.baseline,
                "value": ratio.value(self.figures),
                "bound": ratio.bound,
            }
            for ratio in RATIOS
        ]
        return {
            "command": self.command,
            "date": self.date,
            "machine": self.machine,
            "versions": self._versions(),
            "left_out": self.builds.left_out,
            "figures": self.figures,
            "ratios": ratios,
        }

    def _ratios(self) -> Table:
        rows = []
        for ratio in RATIOS:
            workload, _ = ratio.of
            if workload in self.figures:
                rows.append(list(ratio.row(self.figures)))
        header = ["workload", "compared with", "ratio", "bound", "reached"]
        return Table("Ratios", header, rows)

    def _workloads(self) -> list[Table]:
        """Return a table for each workload."""
        tables = []
        for name, figures in self.figures.items():
            title = WORKLOADS[name].title
            tables.append(Table(title, self._header(name), self._rows(name, figures)))
        return tables

    def _contenders(self) -> Table:
        rows = []
        for name, libraries in self._versions().items():
            rows.append([name, TITLES[name], libraries])
        return Table("Contenders", ["name", "description", "versions"], rows)

    def _header(self, name: str) -> list[str]:
        unit = WORKLOADS[name].unit
        first = {"s": "time", "B": "memory"}.get(unit, unit)
        details = [column.title for column in self._columns(name)]
        return ["", first, *details, "mcp_trio ÷ this", "minimum, maximum"]

    def _columns(self, name: str) -> list[Column]:
        """Return the columns that are not empty."""
        keys: set[str] = set()
        for figure in self.figures[name].values():
            keys.update(figure.about)
        return [column for column in COLUMNS if column.key in keys]

    def _rows(self, name: str, figures: dict[str, Figure]) -> list[list[str]]:
        unit = WORKLOADS[name].unit
        ours = next(iter(figures.values())).value
        rows = []
        for case, figure in figures.items():
            value = amount(figure.value, unit)
            if figure.about.get("limited_by_the_load"):
                value += " (the load is the bottleneck)"
            elif figure.about.get("limited_by_the_cores"):
                value += " (the load and the server use all cores)"
            details = []
            for column in self._columns(name):
                detail = float(str(figure.about.get(column.key, "nan")))
                details.append(column.format(detail))
            ratio = ""
            if figure.value:
                ratio = f"{ours / figure.value:.3g}"
            spread = ""
            if len(figure.rounds) > 1:
                low = amount(min(figure.rounds), unit)
                high = amount(max(figure.rounds), unit)
                spread = f"{low}, {high}"
            rows.append([case, value, *details, ratio, spread])
        return rows

    def _remarks(self) -> list[str]:
        lines = []
        for name, reason in self.builds.left_out.items():
            lines.append(f"- left out: {name}: {' '.join(reason.split())}")
        lines += [f"- failed: {failure}" for failure in self.failed]
        reached = 0
        missed = []
        for ratio in RATIOS:
            holds = ratio.holds(self.figures)
            if holds is True:
                reached += 1
            elif holds is False:
                row = ratio.row(self.figures)
                missed.append(
                    f"- missed: {row.title}, compared with {row.baseline}: "
                    f"{row.ratio}, {row.bound}"
                )
        lines.append(f"- {reached} of {reached + len(missed)} bounds reached")
        return lines + missed

    def _versions(self) -> dict[str, str]:
        """Return the versions of each contender's language and libraries."""
        texts = {}
        for contender in CONTENDERS:
            if contender.name in self.builds.built:
                names = [self.builds.built[contender.name].language]
                for library, version in versions(contender).items():
                    names.append(f"{library} {version}")
                texts[contender.name] = ", ".join(names)
        return texts

    def _draw(self, path: Path, name: str) -> None:
        """Draw a chart of a workload, the best contender first."""
        unit = WORKLOADS[name].unit
        values = {}
        for case, figure in self.figures[name].items():
            if not case.startswith("floor"):
                values[case] = figure.value
        more_is_better = unit == "calls/s"
        ordered = sorted(values, key=values.__getitem__, reverse=more_is_better)
        bars = {TITLES[case].partition(",")[0]: values[case] for case in ordered}
        labels = [amount(values[case], unit) for case in ordered]
        chart(path, WORKLOADS[name].title, bars, labels, ours=ordered.index(OURS))


def markdown(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def amount(value: float, unit: str) -> str:
    """Return a figure as text, with its unit."""
    if unit == "s":
        return duration(value)
    if unit != "B":
        return f"{value:,.0f} {unit}"
    if value >= 1e6:
        return f"{value / 1e6:.1f} MB"
    return f"{value / 1e3:.1f} kB"


def machine() -> str:
    """Return a description of this machine."""
    system = f"{platform.system()} {platform.release()}"
    python = f"Python {platform.python_version()}"
    return f"{processor()}, {os.cpu_count()} cores, {system}, {python}"


def processor() -> str:
    """Return the model of the processor, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
