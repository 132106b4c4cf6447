"""How costs grow with the number of calls, tools, listeners and sessions."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from mcp_trio.bench.target import BenchTarget, reach, request
from mcp_trio.bench.transports import HttpLoadConnection
from mcp_trio.load_spec import UsageError

from .contenders.table import NEWEST, OLDER, SOURCES, Contender
from .ratios import Ratio, increase, shorter
from .servers import Servers, Setup, environment
from .workloads import NUMBERS, PEERS, STDIO, Figure, Pace, Workload, in_turn, median

ADD = {"name": "add", "arguments": NUMBERS}
FEW_TOOLS = "10 tools"
MANY_TOOLS = "10,000 tools"
FEW_IN_FLIGHT = "100 in flight"
MANY_IN_FLIGHT = "10,000 in flight"


FEW_CALLS = "1,000 calls"
MANY_CALLS = "100,000 calls"


def memory_after(servers: Servers, contender: Contender, calls: int) -> Figure:
    """Return the resident memory of a new process after a number of calls.

    It includes shared libraries. Raises UsageError.
    """
    with servers.connect(contender, STDIO) as server:
        server.load([request("tools/call", ADD, OLDER)], 100, 600, calls)
        return median([float(server.memory() or 0)])


@dataclass(frozen=True)
class Memory:
    """The memory of a process after 10,000 calls."""

    name = "memory"
    title = "memory after 10,000 calls"
    unit = "B"
    contenders = ("mcp_trio", *PEERS)
    full_only = False

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Measure one contender after another. Raises UsageError."""
        figures = {}
        for contender in contenders:
            # It needs ten seconds for 10,000 calls.
            if contender.name == "fastmcp" and not pace.full:
                continue
            figures[contender.name] = memory_after(servers, contender, 10_000)
        return figures


@dataclass(frozen=True)
class MemoryGrowth:
    """The memory of a process after few calls, and of another one after many."""

    name = "memory_growth"
    title = "memory after 1,000 calls, and after 100,000"
    unit = "B"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Measure two processes. Raises UsageError."""
        return {
            FEW_CALLS: memory_after(servers, contenders[0], 1_000),
            MANY_CALLS: memory_after(servers, contenders[0], 100_000),
        }


@dataclass(frozen=True)
class ManyTools:
    """The time for a call with many tools registered, and with few."""

    name = "many_tools"
    title = "a call with 10,000 tools registered, and with 10"
    unit = "s"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Call a tool of two servers in turn. Raises UsageError."""
        call = [request("tools/call", ADD, OLDER)]
        with ExitStack() as closing:
            measurements = {}
            for name, number in ((FEW_TOOLS, 10), (MANY_TOOLS, 10_000)):
                setup = Setup("stdio", OLDER, tools=number)
                server = closing.enter_context(servers.connect(contenders[0], setup))
                server.load(call, 1000, pace.warm_up)
                measurements[name] = partial(server.load, call, 1000, pace.seconds)
            runs_by_size = in_turn(measurements, 2 * pace.rounds)
        return {
            name: median([1 / run.rate for run in runs])
            for name, runs in runs_by_size.items()
        }


@dataclass(frozen=True)
class InFlight:
    """The time for a call while many calls wait in the server.

    The tool holds its calls until the whole group has arrived.
    """

    name = "in_flight"
    title = "a call with 10,000 in flight, and with 100"
    unit = "s"
    contenders = ("mcp_trio",)
    full_only = False
    calls = 20_000

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Send the same number of calls in small and in large groups, in turn."""
        program = str(SOURCES / "mcp_trio" / "barrier.py")
        env = environment(contenders[0])
        with reach([sys.executable, program], OLDER, env=env) as server:
            measurements = {
                FEW_IN_FLIGHT: partial(self._time_per_call, server, 100),
                MANY_IN_FLIGHT: partial(self._time_per_call, server, 10_000),
            }
            times_by_group = in_turn(measurements, 1 + pace.rounds)
        # The first round is a warm-up.
        return {name: median(times[1:]) for name, times in times_by_group.items()}

    def _time_per_call(self, server: BenchTarget, group: int) -> float:
        params = {"name": "meet", "arguments": {"n": group}}
        call = request("tools/call", params, OLDER)
        started = time.perf_counter()
        for _ in range(self.calls // group):
            server.load([call], group, 60, group)
        return (time.perf_counter() - started) / self.calls


@dataclass(frozen=True)
class FanOut:
    """The time from a change of the tools until all listeners have been notified.

    Each listener has an HTTP connection of its own.
    """

    name = "fan_out"
    title = "fan-out of one list-changed"
    unit = "s"
    contenders = ("mcp_trio",)
    full_only = False
    listeners = (250, 500, 1000)

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Add more and more listeners. Raises UsageError."""
        figures = {}
        setup = Setup("stateless", NEWEST)
        with ExitStack() as closing, selectors.DefaultSelector() as selector:
            caller = closing.enter_context(servers.connect(contenders[0], setup))
            for number in self.listeners:
                missing = number - len(selector.get_map())
                for _ in range(missing):
                    listener = self._listen(caller)
                    closing.callback(listener.close)
                    selector.register(listener.read_fd, selectors.EVENT_READ)
                wait_for(selector, missing, b"acknowledged")
                times = [
                    self._change_tools(caller, selector)
                    for _ in range(1 + 2 * pace.rounds)
                ]
                # The first round is a warm-up.
                figures[f"{number:,} streams"] = median(times[1:])
        return figures

    def _listen(self, caller: BenchTarget) -> HttpLoadConnection:
        """Subscribe to changes of the tools on a new connection."""
        connection = HttpLoadConnection(http_connection(caller).url)
        params = {"notifications": {"toolsListChanged": True}}
        connection.write([(request("subscriptions/listen", params, NEWEST), 1)])
        return connection

    def _change_tools(
        self, caller: BenchTarget, selector: selectors.BaseSelector
    ) -> float:
        """Add a tool. Returns the time until the last listener was notified."""
        connection = http_connection(caller)
        params: dict[str, object] = {"name": "grow", "arguments": {}}
        started = time.perf_counter()
        connection.write([(request("tools/call", params, NEWEST), 1)])
        wait_for(selector, len(selector.get_map()), b"list_changed")
        seconds = time.perf_counter() - started
        while not connection.read():
            time.sleep(0.001)
        return seconds


def http_connection(server: BenchTarget) -> HttpLoadConnection:
    """Return the first connection to a server."""
    connection = server.connections[0]
    assert isinstance(connection, HttpLoadConnection)
    return connection


def wait_for(selector: selectors.BaseSelector, number: int, word: bytes) -> None:
    """Read until a word has arrived on so many connections. Raises UsageError."""
    arrived: set[int] = set()
    while len(arrived) < number:
        ready = selector.select(60)
        if not ready:
            raise UsageError(
                f"only {len(arrived)} of {number} streams have sent "
                f"{word.decode()} within 60 s"
            )
        for key, _ in ready:
            if word in os.read(key.fd, 2**16):
                arrived.add(key.fd)


@dataclass(frozen=True)
class Sessions:
    """The memory that the server keeps for a session after its client has left."""

    name = "sessions"
    title = "a session opened and left"
    unit = "B"
    contenders = ("mcp_trio", *PEERS)
    full_only = True
    number = 10_000
    seconds = 10.0

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Measure one contender after another. Raises UsageError."""
        figures = {}
        for contender in contenders:
            with servers.connect(contender, Setup("http", OLDER)) as server:
                figures[contender.name] = self._figure(server)
        return figures

    def _figure(self, server: BenchTarget) -> Figure:
        before = server.memory() or 0
        started = time.perf_counter()
        opened = self._open_sessions(server)
        seconds = time.perf_counter() - started
        after = server.memory() or 0
        figure = median([(after - before) / max(opened, 1)])
        figure.about = {"sessions": opened, "a second": opened / seconds}
        return figure

    def _open_sessions(self, server: BenchTarget) -> int:
        """Open sessions until there are enough or the time is up. Returns how many."""
        connection = http_connection(server)
        deadline = time.perf_counter() + self.seconds
        opened = 0
        # Some contenders refuse sessions when they have many.
        with suppress(UsageError):
            while opened < self.number and time.perf_counter() < deadline:
                connection.session_headers = b""
                server.open(OLDER)
                opened += 1
        return opened


WORKLOADS: list[Workload] = [
    Memory(),
    MemoryGrowth(),
    ManyTools(),
    InFlight(),
    FanOut(),
    Sessions(),
]

LARGE_FAN_OUT = "1,000 streams"
SMALL_FAN_OUT = "250 streams"

RATIOS = [
    *shorter("memory", "memory after 10,000 calls", {"python_sdk": 0.4, "tiny": 0.65}),
    increase(
        "memory_growth",
        "memory after 100,000 calls",
        MANY_CALLS,
        FEW_CALLS,
        1.02,
        FEW_CALLS,
    ),
    increase(
        "many_tools", "a call with 10,000 tools", MANY_TOOLS, FEW_TOOLS, 1.1, FEW_TOOLS
    ),
    increase(
        "in_flight",
        "a call with 10,000 in flight",
        MANY_IN_FLIGHT,
        FEW_IN_FLIGHT,
        1.3,
        FEW_IN_FLIGHT,
    ),
    Ratio(
        "fan-out to 1,000 streams",
        ("fan_out", LARGE_FAN_OUT),
        None,
        0.05,
        at_most=True,
        baseline="(absolute)",
        unit="s",
    ),
    increase(
        "fan_out",
        "fan-out to 1,000 streams",
        LARGE_FAN_OUT,
        SMALL_FAN_OUT,
        5.0,
        "250 streams (linear: 4)",
    ),
]
