"""What a run has shown: printed, and as RESULTS.md, results.json and charts."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from mcp_trio.bench.report import chart, duration

from .contenders import CONTENDERS, Roll, versions
from .ratios import Figures
from .registry import RATIOS, WORKLOADS
from .workloads import Figure

CHARTS = {
    "stdio_async": "chart-stdio.svg",
    "http_newest": "chart-http.svg",
    "start_up": "chart-start-up.svg",
    "memory": "chart-memory.svg",
}
# A title, a key of a figure's `about`, and how its value is shown.
Column = tuple[str, str, Callable[[float], str]]
COLUMNS: list[Column] = [
    ("p50", "p50", duration),
    ("p99", "p99", duration),
    ("load, cores", "load_took", "{:.2f}".format),
    ("server, cores", "server_took", "{:.2f}".format),
    ("wake-ups a second", "wake-ups", "{:.3g}".format),
]
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
    def of(
        cls, figures: Figures, roll: Roll, command: str, failed: Sequence[str] = ()
    ) -> Document:
        """Describe a run that has just ended on this machine.

        `failed` says which workloads failed, and why.
        """
        failed_calls = [
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
            [*failed, *failed_calls],
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
        self._write_json(folder / "results.json")
        drawn = [name for name in CHARTS if name in self.figures]
        self._write_markdown(folder / "RESULTS.md", drawn)
        for name in drawn:
            self._draw(folder / CHARTS[name], name)

    def _write_json(self, path: Path) -> None:
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
        path.write_bytes(
            msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n"
        )

    def _write_markdown(self, path: Path, drawn: Sequence[str]) -> None:
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
        path.write_text("\n".join(lines), encoding="utf-8")

    def _tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        held = [
            list(ratio.row(self.figures))
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
        unit = WORKLOADS[name].unit
        first = {"s": "time", "B": "memory"}.get(unit, unit)
        columns = [title for title, _, _ in self._columns(name)]
        return ["", first, *columns, "mcp_trio to it", "rounds from, to"]

    def _columns(self, name: str) -> list[Column]:
        """Return the columns for which there is something in the figures."""
        keys: set[str] = set()
        for figure in self.figures[name].values():
            keys.update(figure.about)
        return [column for column in COLUMNS if column[1] in keys]

    def _rows(self, name: str, figures: dict[str, Figure]) -> list[list[str]]:
        unit = WORKLOADS[name].unit
        ours = next(iter(figures.values())).value
        rows = []
        for contender, figure in figures.items():
            first = amount(figure.value, unit)
            if figure.about.get("limited_by_the_load"):
                first += " (the load is the limit)"
            details = []
            for _, key, show in self._columns(name):
                details.append(show(float(str(figure.about.get(key, "nan")))))
            ratio = ""
            if figure.value:
                ratio = f"{ours / figure.value:.3g}"
            spread = ""
            if len(figure.rounds) > 1:
                low = amount(min(figure.rounds), unit)
                high = amount(max(figure.rounds), unit)
                spread = f"{low}, {high}"
            rows.append([contender, first, *details, ratio, spread])
        return rows

    def _remarks(self) -> list[str]:
        lines = [
            f"- left out: {name}: {' '.join(reason.split())}"
            for name, reason in self.roll.left_out.items()
        ]
        lines += [f"- failed: {what}" for what in self.failed]
        reached = 0
        missed = []
        for ratio in RATIOS:
            holds = ratio.holds(self.figures)
            if holds is True:
                reached += 1
            elif holds is False:
                row = ratio.row(self.figures)
                missed.append(
                    f"- missed: {row.what} to {row.to_what}: {row.ratio}, {row.bound}"
                )
        lines.append(f"- {reached} of {reached + len(missed)} bounds reached")
        return lines + missed

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
