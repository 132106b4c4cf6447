"""Ratios of two figures of one run, and the bounds that they have to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .workloads import Figure

# Workload -> contender, or what else the workload compares -> figure.
Figures = dict[str, dict[str, Figure]]

# A bound for each contender. None: the ratio is shown, without a bound.
Bounds = Mapping[str, float | None]


class Row(NamedTuple):
    """A ratio as it is shown."""

    what: str
    to_what: str
    ratio: str
    bound: str
    reached: str


@dataclass(frozen=True)
class Ratio:
    """One figure as a multiple of another, and its bound.

    `of` and `to` are each a workload and a contender of it. If `to` is None, the bound
    applies to the figure itself, which is shown in `unit`. `part` chooses what is
    compared: the value of a figure, or a key of its `about`, such as p99.
    """

    what: str
    of: tuple[str, str]
    to: tuple[str, str] | None
    bound: float | None
    at_most: bool = False
    to_what: str = ""
    part: str = "value"
    unit: str = ""

    def value(self, figures: Figures) -> float | None:
        """Return the ratio, or None if one of its figures was not measured."""
        above = self._amount(figures, self.of)
        if self.to is None or above is None:
            return above
        below = self._amount(figures, self.to)
        if not below:
            return None
        return above / below

    def _amount(self, figures: Figures, of: tuple[str, str]) -> float | None:
        """Return one of the two figures."""
        workload, contender = of
        figure = figures.get(workload, {}).get(contender)
        if figure is None:
            return None
        if self.part == "value":
            return figure.value
        amount = figure.about.get(self.part)
        if amount is None:
            return None
        return float(str(amount))

    def holds(self, figures: Figures) -> bool | None:
        """Return whether the bound is reached, or None if that is not known."""
        value = self.value(figures)
        if value is None or self.bound is None:
            return None
        if self.at_most:
            return value <= self.bound
        return value >= self.bound

    def row(self, figures: Figures) -> Row:
        """Return the ratio as it is shown."""
        value = self.value(figures)
        shown = "not measured"
        if value is not None:
            shown = self._show(value)
        bound = ""
        if self.bound is not None:
            sign = "at most" if self.at_most else "at least"
            bound = f"{sign} {self._show(self.bound)}"
        reached = {True: "yes", False: "NO", None: ""}[self.holds(figures)]
        return Row(self.what, self.to_what, shown, bound, reached)

    def _show(self, value: float) -> str:
        """Return a ratio, or a figure with its unit."""
        if self.to is None and self.unit == "s":
            return f"{value * 1e3:.3g} ms"
        return f"{value:.3g} {self.unit}".strip()


def faster(
    workload: str, what: str, others: Bounds, ours: str = "mcp_trio"
) -> list[Ratio]:
    """Compare our throughput with that of others."""
    return [
        Ratio(what, (workload, ours), (workload, name), bound, to_what=name)
        for name, bound in others.items()
    ]


def shorter(
    workload: str, what: str, others: Bounds, part: str = "value"
) -> list[Ratio]:
    """Compare our time or memory with that of others."""
    return [
        Ratio(
            what,
            (workload, "mcp_trio"),
            (workload, name),
            bound,
            at_most=True,
            to_what=name,
            part=part,
        )
        for name, bound in others.items()
    ]
