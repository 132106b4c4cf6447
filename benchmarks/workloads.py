"""What is measured, and how: every workload gives a figure a contender."""

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
NUMBERS = {"a": 1, "b": 2}


@dataclass
class Figure:
    """What one contender has shown: the median of some rounds, and each of them."""

    value: float
    rounds: list[float]
    about: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Pace:
    """How long is measured."""

    rounds: int
    seconds: float  # a round
    warm_up: float
    many: bool  # whether also what takes long is done


QUICK = Pace(rounds=3, seconds=0.3, warm_up=0.5, many=False)
FULL = Pace(rounds=5, seconds=0.8, warm_up=1.5, many=True)


class Workload(Protocol):
    """What all workloads have."""

    @property
    def name(self) -> str:
        """By which it is asked for."""

    @property
    def title(self) -> str:
        """For people."""

    @property
    def unit(self) -> str:
        """Of its figures: calls/s, s or B."""

    @property
    def contenders(self) -> tuple[str, ...]:
        """Those who can be measured."""

    @property
    def full_only(self) -> bool:
        """Whether it takes too long for a quick run."""

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Every contender's figure. Raises UsageError."""


@dataclass(frozen=True)
class Loaded:
    """A tool called as fast as it answers, by all contenders in turn, round after round."""

    name: str
    title: str
    way: Way
    contenders: tuple[str, ...]
    tool: str = "add"
    window: int = 1
    unit: str = "calls/s"
    size: int = 0  # of a text to be echoed
    full_only: bool = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Every contender's figure. Raises UsageError."""
        with ExitStack() as closing:
            reached = {
                one.name: closing.enter_context(stand.reached(one, self.way))
                for one in contenders
            }
            load = self._request()
            for one, server in reached.items():
                server.load([self._asked(load, one)], self.window, pace.warm_up)
            rounds: dict[str, list[Run]] = {name: [] for name in reached}
            for _ in range(pace.rounds):
                for one, server in reached.items():
                    rounds[one].append(
                        server.load([self._asked(load, one)], self.window, pace.seconds)
                    )
            return {name: self._figure(runs) for name, runs in rounds.items()}

    def _request(self) -> LoadRequest:
        if not self.tool:
            return request("tools/list", {}, self.way.revision)
        arguments: dict[str, object] = (
            {"text": "x" * self.size} if self.size else dict(NUMBERS)
        )
        params: dict[str, object] = {"name": self.tool, "arguments": arguments}
        if self.tool == "progress":
            params |= {"arguments": {"n": STEPS}, "_meta": {"progressToken": "p"}}
        return request("tools/call", params, self.way.revision)

    def _asked(self, load: LoadRequest, contender: str) -> LoadRequest:
        """An echo gives no result, which is what it is to be counted by."""
        return msgspec.structs.replace(load, fails=contender == "floor_websocket")

    def _figure(self, runs: list[Run]) -> Figure:
        values = [run.p50 if self.unit == "s" else run.rate for run in runs]
        about: dict[str, object] = {
            name: statistics.median(getattr(run, name) or 0 for run in runs)
            for name in ("p50", "p99", "load_took", "server_took")
        }
        about["errors"] = sum(sum(run.errors.values()) for run in runs)
        about["limited_by_the_load"] = any(run.is_limited for run in runs)
        return Figure(statistics.median(values), values, about)


# The tool that tells of its progress does so this often.
STEPS = 100


STDIO = Way("stdio", OLDER)
ANY_STDIO = ("mcp_trio", *PEERS, "floor_loop")
ANY_HTTP = ("mcp_trio", "python_sdk_streams", *PEERS, "floor_httptools")
LOADED = [
    Loaded("stdio_async", "stdio pipelined, async tool", STDIO, ANY_STDIO, window=1000),
    Loaded(
        "stdio_waits",
        "stdio pipelined, a tool that waits once",
        STDIO,
        ("mcp_trio", *PEERS),
        "wait",
        1000,
    ),
    Loaded(
        "stdio_thread",
        "stdio pipelined, thread tool",
        STDIO,
        ("mcp_trio", *PYTHON),
        "block",
        1000,
    ),
    Loaded(
        "stdio_integer",
        "stdio pipelined, an integer with an output schema",
        STDIO,
        ("mcp_trio", *PEERS),
        "total",
        1000,
    ),
    Loaded(
        "stdio_object",
        "stdio pipelined, an object with an output schema",
        STDIO,
        ("mcp_trio", *PEERS),
        "user",
        1000,
    ),
    Loaded(
        "stdio_objects",
        "stdio pipelined, a list of 100 objects with an output schema",
        STDIO,
        ("mcp_trio", *PEERS),
        "users",
        50,
    ),
    Loaded(
        "http_object",
        "HTTP, 16 connections, 2026-07-28, an object with an output schema",
        Way("stateless", NEWEST, 16),
        ("mcp_trio", "python_sdk_streams", *PEERS),
        "user",
    ),
    Loaded(
        "stdio_one",
        "stdio one at a time, p50",
        STDIO,
        (*ANY_STDIO, "floor_blocking"),
        unit="s",
    ),
    Loaded(
        "http_session",
        "HTTP, 16 connections, 2025-11-25 with a session",
        Way("http", OLDER, 16),
        ANY_HTTP,
    ),
    Loaded(
        "http_sessionless",
        "HTTP, 16 connections, 2025-11-25 without a session",
        Way("stateless", OLDER, 16, session=False),
        ANY_HTTP,
    ),
    Loaded(
        "http_newest",
        "HTTP, 16 connections, 2026-07-28",
        Way("stateless", NEWEST, 16),
        ANY_HTTP,
    ),
    Loaded(
        "http_hypercorn",
        "HTTP under hypercorn, 16 connections, 2025-11-25",
        Way("http", OLDER, 16),
        (
            "mcp_trio_hypercorn",
            "python_sdk_streams",
            "python_sdk",
            "python_sdk_trio",
            "floor_hypercorn",
        ),
    ),
    Loaded(
        "websocket",
        "WebSocket, 50 at once",
        Way("ws", OLDER),
        ("mcp_trio", "floor_websocket"),
        window=50,
    ),
    Loaded(
        "http_1",
        "HTTP, 1 connection, 2026-07-28",
        Way("stateless", NEWEST),
        ANY_HTTP,
        full_only=True,
    ),
    Loaded(
        "http_64",
        "HTTP, 64 connections, 2026-07-28",
        Way("stateless", NEWEST, 64),
        ANY_HTTP,
        full_only=True,
    ),
    Loaded(
        "list_tools",
        "stdio, a list of 1,000 tools",
        Way("stdio", OLDER, tools=1000),
        ANY_STDIO,
        tool="",
        window=4,
        full_only=True,
    ),
    Loaded(
        "megabyte",
        "stdio, 1 MB in and out",
        STDIO,
        ANY_STDIO,
        tool="echo",
        size=10**6,
        window=2,
        full_only=True,
    ),
    Loaded(
        "progress",
        f"stdio, {STEPS} progress messages a call",
        STDIO,
        ANY_STDIO,
        "progress",
        window=4,
        full_only=True,
    ),
]
