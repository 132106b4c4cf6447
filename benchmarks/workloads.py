"""The interface of a workload, and the most common kind: calls of one tool."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from mcp_trio.bench.load import Run
from mcp_trio.bench.target import request
from mcp_trio.bench.transports import LoadRequest

from .contenders.table import NEWEST, OLDER, Contender
from .servers import Servers, Setup

PYTHON = ("python_sdk", "fastmcp", "tiny")
PEERS = (*PYTHON, "typescript", "go", "rust")
# The arguments of the tools that add.
NUMBERS = {"a": 1, "b": 2}
# How many messages the tool `progress` sends for a call.
STEPS = 100

STDIO = Setup("stdio", OLDER)
HTTP_NEWEST = Setup("stateless", NEWEST, 16)

# The result of one round.
Result = TypeVar("Result")


@dataclass
class Figure:
    """The result for one contender: the median of its rounds, and each of them."""

    value: float
    rounds: list[float]
    about: dict[str, object] = field(default_factory=dict)


def in_turn(
    measurements: Mapping[str, Callable[[], Result]], rounds: int
) -> dict[str, list[Result]]:
    """Take all measurements in turn, round after round. Returns the results of each.

    Other activity on the machine then affects all of them.
    """
    results: dict[str, list[Result]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            results[name].append(measure())
    return results


def median(rounds: Sequence[float]) -> Figure:
    """Return the figure for some rounds."""
    return Figure(statistics.median(rounds), list(rounds))


def throughput(runs: Sequence[Run]) -> Figure:
    """Return the calls per second of some loads, and whether they can be trusted."""
    figure = median([run.rate for run in runs])
    add_errors(figure, runs)
    return figure


def add_errors(figure: Figure, runs: Sequence[Run]) -> None:
    """Add how many calls failed, and whether the load was the bottleneck."""
    figure.about["errors"] = sum(sum(run.errors.values()) for run in runs)
    figure.about["limited_by_the_load"] = any(run.is_limited for run in runs)


@dataclass(frozen=True)
class Pace:
    """How long a workload is measured."""

    rounds: int
    seconds: float  # for each round
    warm_up: float
    full: bool  # whether to include workloads that take long


QUICK = Pace(rounds=3, seconds=0.2, warm_up=0.3, full=False)
FULL = Pace(rounds=5, seconds=0.5, warm_up=0.6, full=True)


class Workload(Protocol):
    """The interface of all workloads."""

    @property
    def name(self) -> str:
        """The name of the workload on the command line."""

    @property
    def title(self) -> str:
        """The name of the workload in the report."""

    @property
    def unit(self) -> str:
        """The unit of its figures: calls/s, s or B."""

    @property
    def contenders(self) -> tuple[str, ...]:
        """The names of the contenders that it measures."""

    @property
    def full_only(self) -> bool:
        """Whether it takes too long for a quick run."""

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return a figure for each contender. Raises UsageError."""


@dataclass(frozen=True)
class ToolLoad:
    """Calls of one tool, as fast as the contender answers.

    If `tool` is empty, the requests are tools/list.
    """

    name: str
    title: str
    setup: Setup
    contenders: tuple[str, ...]
    tool: str = "add"
    arguments: dict[str, object] = field(default_factory=lambda: dict(NUMBERS))
    window: int = 1
    unit: str = "calls/s"
    full_only: bool = False

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Load the contenders in turn. Raises UsageError."""
        with ExitStack() as closing:
            targets = {
                contender.name: closing.enter_context(
                    servers.connect(contender, self.setup)
                )
                for contender in contenders
            }
            measurements: dict[str, Callable[[], Run]] = {}
            for name, target in targets.items():
                requests = [self.request(name)]
                target.load(requests, self.window, pace.warm_up)
                measurements[name] = partial(
                    target.load, requests, self.window, pace.seconds
                )
            runs_by_contender = in_turn(measurements, pace.rounds)
        return {name: self._figure(runs) for name, runs in runs_by_contender.items()}

    def request(self, contender: str) -> LoadRequest:
        """Return the request for a contender."""
        if not self.tool:
            return request("tools/list", {}, self.setup.revision)
        params: dict[str, object] = {"name": self.tool, "arguments": self.arguments}
        if self.tool == "progress":
            params["_meta"] = {"progressToken": "p"}
        call = request("tools/call", params, self.setup.revision)
        # An echo has no result, which would otherwise count as a failure.
        return msgspec.structs.replace(call, fails=contender == "floor_websocket")

    def _figure(self, runs: Sequence[Run]) -> Figure:
        values = [run.rate for run in runs]
        if self.unit == "s":
            values = [run.p50 for run in runs]
        figure = median(values)
        for name in ("p50", "p99", "load_took", "server_took"):
            amounts = [getattr(run, name) or 0 for run in runs]
            figure.about[name] = statistics.median(amounts)
        add_errors(figure, runs)
        return figure
