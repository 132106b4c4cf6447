"""Ratios of two figures of one run, and the bounds that they must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .workloads import Figure

# Workload -> case -> figure. A case is usually a contender.
Figures = dict[str, dict[str, Figure]]

# Contender -> bound. If it is None, the ratio is shown without a bound.
Bounds = Mapping[str, float | None]


class Row(NamedTuple):
    """A ratio as the report shows it."""

    title: str
    baseline: str
    ratio: str
    bound: str
    reached: str


@dataclass(frozen=True)
class Ratio:
    """One figure as a multiple of another, and its bound.

    `of` and `to` are each a workload and a case of it. If `to` is None, the bound
    applies to the figure itself, which is shown in `unit`. `baseline` is the name of
    `to` in the report. `part` chooses what is compared: the value of a figure, or a key
    of its `about`, such as p99.
    """

    title: str
    of: tuple[str, str]
    to: tuple[str, str] | None
    bound: float | None
    at_most: bool = False
    baseline: str = ""
    part: str = "value"
    unit: str = ""

    def value(self, figures: Figures) -> float | None:
        """Return the ratio, or None if one of its figures was not measured."""
        amount = self._amount(figures, self.of)
        if self.to is None or amount is None:
            return amount
        base = self._amount(figures, self.to)
        if not base:
            return None
        return amount / base

    def _amount(self, figures: Figures, key: tuple[str, str]) -> float | None:
        """Return the compared part of a figure, or None if it was not measured."""
        workload, case = key
        figure = figures.get(workload, {}).get(case)
        if figure is None:
            return None
        if self.part == "value":
            return figure.value
        amount = figure.about.get(self.part)
        if amount is None:
            return None
        return float(str(amount))

    def holds(self, figures: Figures) -> bool | None:
        """Return whether the bound is kept, or None if there is nothing to check."""
        value = self.value(figures)
        if value is None or self.bound is None:
            return None
        if self.at_most:
            return value <= self.bound
        return value >= self.bound

    def row(self, figures: Figures) -> Row:
        """Return the ratio as the report shows it."""
        value = self.value(figures)
        shown = "not measured"
        if value is not None:
            shown = self._show(value)
        bound = ""
        if self.bound is not None:
            sign = "at most" if self.at_most else "at least"
            bound = f"{sign} {self._show(self.bound)}"
        reached = {True: "yes", False: "NO", None: ""}[self.holds(figures)]
        return Row(self.title, self.baseline, shown, bound, reached)

    def _show(self, value: float) -> str:
        """Return the text of a ratio, or of a figure with its unit."""
        if self.to is None and self.unit == "s":
            return f"{value * 1e3:.3g} ms"
        return f"{value:.3g} {self.unit}".strip()


def faster(
    workload: str, title: str, bounds: Bounds, ours: str = "mcp_trio"
) -> list[Ratio]:
    """Compare mcp_trio's throughput with that of other contenders."""
    return [
        Ratio(title, (workload, ours), (workload, name), bound, baseline=name)
        for name, bound in bounds.items()
    ]


def shorter(
    workload: str, title: str, bounds: Bounds, part: str = "value"
) -> list[Ratio]:
    """Compare mcp_trio's time or memory with that of other contenders."""
    return [
        Ratio(
            title,
            (workload, "mcp_trio"),
            (workload, name),
            bound,
            at_most=True,
            baseline=name,
            part=part,
        )
        for name, bound in bounds.items()
    ]


def increase(
    workload: str, title: str, case: str, base: str, bound: float, baseline: str
) -> Ratio:
    """Limit how much more one case of a workload costs than another."""
    return Ratio(
        title,
        (workload, case),
        (workload, base),
        bound,
        at_most=True,
        baseline=baseline,
    )
