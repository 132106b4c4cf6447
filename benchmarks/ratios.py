"""The ratios that are to be reached: each is of two figures of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .workloads import Figure

Figures = dict[str, dict[str, Figure]]


@dataclass(frozen=True)
class Ratio:
    """One figure as a multiple of another, and what it has to be."""

    what: str
    of: tuple[str, str]  # a workload, and a contender or what else it tells apart
    to: tuple[str, str] | None  # None: the bound is of the figure itself
    bound: float | None  # None: told, without being bound
    at_most: bool = False
    to_what: str = ""

    def value(self, figures: Figures) -> float | None:
        """The ratio; None where one of the two was not measured."""
        try:
            above = figures[self.of[0]][self.of[1]].value
            return above / (figures[self.to[0]][self.to[1]].value if self.to else 1)
        except KeyError:
            return None

    def holds(self, figures: Figures) -> bool | None:
        """Whether it is what it has to be; None where it was not measured."""
        value = self.value(figures)
        if value is None or self.bound is None:
            return None
        return value <= self.bound if self.at_most else value >= self.bound

    def told(self, figures: Figures) -> tuple[str, str, str, str, str]:
        """A row: the workload, what it is compared with, the ratio, the bound, whether it holds."""
        value, holds = self.value(figures), self.holds(figures)
        sign = "at most" if self.at_most else "at least"
        shown = (
            "not measured"
            if value is None
            else f"{value:.3g}"
            if self.to
            else f"{value * 1e3:.3g} ms"
        )
        bound = (
            ""
            if self.bound is None
            else f"{sign} {self.bound:g}"
            if self.to
            else f"{sign} {self.bound * 1e3:g} ms"
        )
        return (
            self.what,
            self.to_what,
            shown,
            bound,
            "" if holds is None else "yes" if holds else "NO",
        )


def faster(
    workload: str, what: str, others: Mapping[str, float | None], ours: str = "mcp_trio"
) -> list[Ratio]:
    """Our throughput to others'."""
    return [
        Ratio(what, (workload, ours), (workload, name), bound, to_what=name)
        for name, bound in others.items()
    ]


def shorter(workload: str, what: str, others: dict[str, float]) -> list[Ratio]:
    """Our time or memory to others'."""
    return [
        Ratio(
            what,
            (workload, "mcp_trio"),
            (workload, name),
            bound,
            at_most=True,
            to_what=name,
        )
        for name, bound in others.items()
    ]


# The bound is of the Python SDK as it comes. With its switch for JSON it is shown beside it.
HTTP = {
    "python_sdk_streams": 20,
    "python_sdk": None,
    "typescript": 10,
    "go": 4,
    "rust": 1.2,
    "tiny": 3,
}
HTTP_AND_FLOOR = {**HTTP, "floor_httptools": 0.4}
# Whoever is ahead of every peer is at least as fast as each.
AHEAD = {
    "python_sdk": 1,
    "fastmcp": 1,
    "typescript": 1,
    "go": 1,
    "rust": 1,
    "tiny": 3,
}
STRUCTURED = {"python_sdk": 60, "typescript": 1.3, "rust": 4, "tiny": 3}


def of_text(workload: str, what: str) -> Ratio:
    """Compare our throughput with structured results to that with text."""
    return Ratio(
        what,
        (workload, "mcp_trio"),
        ("stdio_async", "mcp_trio"),
        0.6,
        to_what="mcp_trio, a text",
    )


RATIOS = [
    *faster(
        "stdio_async",
        "stdio pipelined, async tool",
        {"python_sdk": 60, "typescript": 1.2, "tiny": 3, "floor_loop": 0.18},
    ),
    *faster(
        "stdio_waits",
        "stdio pipelined, a tool that waits once",
        {"python_sdk": 25, "typescript": 1.2, "rust": 1.2, "tiny": 2},
    ),
    *faster(
        "stdio_thread",
        "stdio pipelined, thread tool",
        {"python_sdk": 8, "tiny": 3},
    ),
    *faster("stdio_integer", "stdio pipelined, an integer", STRUCTURED),
    of_text("stdio_integer", "stdio pipelined, an integer"),
    *faster("stdio_object", "stdio pipelined, an object", STRUCTURED),
    of_text("stdio_object", "stdio pipelined, an object"),
    *faster("stdio_objects", "stdio pipelined, a list of 100 objects", AHEAD),
    *faster("http_object", "HTTP, 2026-07-28, an object", HTTP),
    *faster(
        "megabyte",
        "stdio, 1 MB in and out",
        {"rust": 1.1, "python_sdk": 1.5, "tiny": 3},
    ),
    *faster(
        "progress",
        "stdio, 100 progress messages a call",
        {"go": 1.1, "typescript": 2, "tiny": 3},
    ),
    *shorter(
        "stdio_one",
        "stdio one at a time, p50",
        {"floor_blocking": 1.25, "python_sdk": 0.15},
    ),
    *faster("http_session", "HTTP, 2025-11-25 with a session", HTTP_AND_FLOOR),
    *faster("http_sessionless", "HTTP, 2025-11-25 without a session", HTTP_AND_FLOOR),
    *faster("http_newest", "HTTP, 2026-07-28", HTTP_AND_FLOOR),
    *faster(
        "http_hypercorn",
        "HTTP under hypercorn",
        {"python_sdk_streams": 2, "python_sdk": None, "floor_hypercorn": 0.8},
        ours="mcp_trio_hypercorn",
    ),
    *faster("websocket", "WebSocket, 50 at once", {"floor_websocket": 0.8}),
    *shorter(
        "start_up",
        "spawn to initialize reply",
        {"python_sdk": 0.22, "typescript": 0.9, "tiny": 0.6, "floor_import": 1.25},
    ),
    *shorter("memory", "memory after 10,000 calls", {"python_sdk": 0.4, "tiny": 0.65}),
    Ratio(
        "memory after 100,000 calls",
        ("memory_100000", "mcp_trio"),
        ("memory_1000", "mcp_trio"),
        1.02,
        at_most=True,
        to_what="after 1,000",
    ),
    Ratio(
        "a call with 10,000 tools",
        ("many_tools", "10,000 tools"),
        ("many_tools", "10 tools"),
        1.1,
        at_most=True,
        to_what="with 10",
    ),
    Ratio(
        "a call with 10,000 in flight",
        ("in_flight", "10,000 in flight"),
        ("in_flight", "100 in flight"),
        1.3,
        at_most=True,
        to_what="with 100",
    ),
    Ratio(
        "a poll of a task that works",
        ("tasks", "a plain call"),
        ("tasks", "a poll of a working task"),
        1.3,
        at_most=True,
        to_what="a plain call",
    ),
    Ratio(
        "a poll of a task that is finished",
        ("tasks", "a plain call, then"),
        ("tasks", "a poll of a finished task"),
        1.3,
        at_most=True,
        to_what="a plain call",
    ),
    Ratio(
        "fan-out to 1,000 streams",
        ("fan_out", "1,000 streams"),
        None,
        0.05,
        at_most=True,
        to_what="in itself",
    ),
    Ratio(
        "fan-out to 1,000 streams",
        ("fan_out", "1,000 streams"),
        ("fan_out", "250 streams"),
        5.0,
        at_most=True,
        to_what="to 250: linear is 4",
    ),
]
