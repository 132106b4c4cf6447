"""The figures of the faults, as a table."""

from __future__ import annotations

from msgspec import Struct

from .load import Figures
from .measures import MIB, Held

COLUMNS = (
    ("fault", 26),
    ("calls", 6),
    ("refused", 8),
    ("slowest", 9),
    ("memory (MiB)", 13),
    ("descriptors", 12),
    ("tasks", 8),
    ("threads", 8),
    ("", 7),
)


class Outcome(Struct):
    """How the server survived a fault."""

    fault: str
    figures: Figures
    before: Held
    after: Held
    problems: list[str]


def heading() -> str:
    """Return the line above the table."""
    (fault, width), *others = COLUMNS
    cells = [f"{name:>{size}}" for name, size in others]
    return f"{fault:<{width}}" + "".join(cells)


def row(outcome: Outcome) -> str:
    """Return the line of one fault."""
    figures = outcome.figures
    before = outcome.before
    after = outcome.after
    cells = [
        str(figures.calls),
        str(figures.refused),
        f"{1000 * figures.slowest:.0f} ms",
        f"{before.memory // MIB} > {after.memory // MIB}",
        f"{before.descriptors} > {after.descriptors}",
        f"{before.tasks} > {after.tasks}",
        f"{before.threads} > {after.threads}",
        "FAILED" if outcome.problems else "ok",
    ]
    (_, width), *others = COLUMNS
    text = [f"{cell:>{size}}" for cell, (_, size) in zip(cells, others, strict=True)]
    return f"{outcome.fault:<{width}}" + "".join(text)
