"""The figures of the faults, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .load import Figures
from .measures import MIB, Held

Column = tuple[str, int]  # the heading and the width

COLUMNS: list[Column] = [
    ("fault", 26),
    ("calls", 6),
    ("refused", 8),
    ("slowest", 9),
    ("memory (MiB)", 13),
    ("descriptors", 12),
    ("tasks", 8),
    ("threads", 8),
    ("", 7),
]


class Outcome(Struct):
    """How the server survived a fault."""

    fault: str
    figures: Figures
    before: Held
    after: Held
    problems: list[str]


def heading() -> str:
    """Return the line above the table."""
    return line_of(COLUMNS, [name for name, _ in COLUMNS])


def line_of(columns: Sequence[Column], cells: Sequence[str]) -> str:
    """Return a line of a table. The first column is aligned on the left."""
    (_, width), *others = columns
    first, *rest = cells
    text = [f"{cell:>{size}}" for cell, (_, size) in zip(rest, others, strict=True)]
    return f"{first:<{width}}" + "".join(text)


def row(outcome: Outcome) -> str:
    """Return the line of one fault."""
    figures = outcome.figures
    before = outcome.before
    after = outcome.after
    cells = [
        outcome.fault,
        str(figures.calls),
        str(figures.refused),
        f"{1000 * figures.slowest:.0f} ms",
        f"{before.memory // MIB} > {after.memory // MIB}",
        f"{before.descriptors} > {after.descriptors}",
        f"{before.tasks} > {after.tasks}",
        f"{before.threads} > {after.threads}",
        "FAILED" if outcome.problems else "ok",
    ]
    return line_of(COLUMNS, cells)
