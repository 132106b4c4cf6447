"""What a workload is, and the most common kind: a tool that is called again and again."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from mcp_trio.bench.load import Run
from mcp_trio.bench.target import request
from mcp_trio.bench.transports import LoadRequest

from .contenders import NEWEST, OLDER, Contender
from .stand import Stand, Way

PYTHON = ("python_sdk", "fastmcp", "tiny")
PEERS = (*PYTHON, "typescript", "go", "rust")
# The arguments of the tools that add.
NUMBERS = {"a": 1, "b": 2}
# The messages that the tool `progress` sends for a call.
STEPS = 100

STDIO = Way("stdio", OLDER)
HTTP_NEWEST = Way("stateless", NEWEST, 16)


@dataclass
class Figure:
    """What was measured of one contender: the median of some rounds, and each of them."""

    value: float
    rounds: list[float]
    about: dict[str, object] = field(default_factory=dict)


def median(rounds: Sequence[float]) -> Figure:
    """Return the figure of some rounds."""
    return Figure(statistics.median(rounds), list(rounds))


@dataclass(frozen=True)
class Pace:
    """How long a workload is measured."""

    rounds: int
    seconds: float  # of a round
    warm_up: float
    many: bool  # whether workloads that take long are included


QUICK = Pace(rounds=3, seconds=0.2, warm_up=0.3, many=False)
FULL = Pace(rounds=5, seconds=0.5, warm_up=0.6, many=True)


class Workload(Protocol):
    """What all workloads have."""

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
        """The names of the contenders that can be measured."""

    @property
    def full_only(self) -> bool:
        """Whether it takes too long for a quick run."""

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return the figure of each contender. Raises UsageError."""


@dataclass(frozen=True)
class Loaded:
    """A tool that is called as fast as it answers, of each contender in turn.

    Without a tool, the tools are listed.
    """

    name: str
    title: str
    way: Way
    contenders: tuple[str, ...]
    tool: str = "add"
    arguments: dict[str, object] = field(default_factory=lambda: dict(NUMBERS))
    window: int = 1
    unit: str = "calls/s"
    full_only: bool = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return the figure of each contender. Raises UsageError."""
        with ExitStack() as closing:
            reached = {
                one.name: closing.enter_context(stand.reached(one, self.way))
                for one in contenders
            }
            for one, server in reached.items():
                server.load([self.request(one)], self.window, pace.warm_up)
            rounds: dict[str, list[Run]] = {name: [] for name in reached}
            for _ in range(pace.rounds):
                for one, server in reached.items():
                    run = server.load([self.request(one)], self.window, pace.seconds)
                    rounds[one].append(run)
            return {name: self._figure(runs) for name, runs in rounds.items()}

    def request(self, contender: str) -> LoadRequest:
        """Return the request that is sent to a contender."""
        if not self.tool:
            return request("tools/list", {}, self.way.revision)
        params: dict[str, object] = {"name": self.tool, "arguments": self.arguments}
        if self.tool == "progress":
            params["_meta"] = {"progressToken": "p"}
        made = request("tools/call", params, self.way.revision)
        # An echo has no result, which otherwise would count as a failure.
        return msgspec.structs.replace(made, fails=contender == "floor_websocket")

    def _figure(self, runs: list[Run]) -> Figure:
        if self.unit == "s":
            values = [run.p50 for run in runs]
        else:
            values = [run.rate for run in runs]
        figure = median(values)
        for name in ("p50", "p99", "load_took", "server_took"):
            amounts = [getattr(run, name) or 0 for run in runs]
            figure.about[name] = statistics.median(amounts)
        figure.about["errors"] = sum(sum(run.errors.values()) for run in runs)
        figure.about["limited_by_the_load"] = any(run.is_limited for run in runs)
        return figure
