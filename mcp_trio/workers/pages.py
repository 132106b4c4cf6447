"""Adds up the metrics of several processes, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

# Gauges that are 0 or 1. They are 1 for all processes together if they are for each.
CONDITIONS = frozenset({"mcp_store_available"})


class _Family(Struct):
    """A metric: its kind, and a value for each name and set of labels."""

    head: list[str]
    kind: str = "gauge"
    samples: dict[str, float] = field(default_factory=dict)


class MetricsSum:
    """The sum of the metrics of some processes."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def add(self, page: bytes, *, without_gauges: bool = False) -> None:
        """Add the page of a process.

        For a process that has ended, gauges are omitted. Its counters are kept, because
        counters must not decrease.
        """
        for name, family in _parse(page).items():
            if without_gauges and family.kind == "gauge":
                continue
            known = self._families.setdefault(name, _Family(family.head, family.kind))
            for sample, value in family.samples.items():
                before = known.samples.get(sample)
                known.samples[sample] = _together(name, before, value)

    def render(self) -> bytes:
        """Return the page of all processes."""
        lines: list[str] = []
        for family in self._families.values():
            lines += family.head
            lines += [f"{sample} {value}" for sample, value in family.samples.items()]
        return "".join(f"{line}\n" for line in lines).encode()


def add_up(pages: Iterable[bytes], ended: bytes = b"") -> bytes:
    """Return the page of several processes. `ended` is that of processes that ended."""
    total = MetricsSum()
    for page in pages:
        total.add(page)
    total.add(ended, without_gauges=True)
    return total.render()


def _together(name: str, before: float | None, value: float) -> float:
    if before is None:
        return value
    if name in CONDITIONS:
        return min(before, value)
    return before + value


def _parse(page: bytes) -> dict[str, _Family]:
    """Parse a page. Each metric begins with its HELP and TYPE."""
    families: dict[str, _Family] = {}
    family = _Family([])
    for line in page.decode().splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            family = families[name] = _Family([line])
        elif line.startswith("# TYPE "):
            family.head.append(line)
            family.kind = line.rpartition(" ")[2]
        else:
            sample, _, number = line.rpartition(" ")
            family.samples[sample] = _number(number)
    return families


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)
