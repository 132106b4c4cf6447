"""Workloads other than loads: memory, many tools, many calls, listeners and sessions."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from mcp_trio.bench.target import BenchTarget, reach, request
from mcp_trio.bench.transports import HttpLoadConnection
from mcp_trio.load_spec import UsageError

from .contenders import NEWEST, OLDER, SOURCES, Contender, environment
from .ratios import Ratio, shorter
from .stand import Stand, Way
from .workloads import NUMBERS, PEERS, STDIO, Figure, Pace, Workload, median

ADD = {"name": "add", "arguments": NUMBERS}


def memory_after(stand: Stand, contender: Contender, calls: int) -> Figure:
    """Resident memory, with what the shared libraries take, as the system tells it."""
    with stand.reached(contender, STDIO) as server:
        server.load([request("tools/call", ADD, OLDER)], 100, 600, calls)
        return median([float(server.memory() or 0)])


@dataclass(frozen=True)
class Memory:
    """What a process holds after 10,000 calls."""

    name = "memory"
    title = "memory after 10,000 calls"
    unit = "B"
    contenders = ("mcp_trio", *PEERS)
    full_only = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """One contender after the other."""
        figures = {}
        for one in contenders:
            if one.name == "fastmcp" and not pace.many:
                continue  # 10,000 calls take it ten seconds
            figures[one.name] = memory_after(stand, one, 10_000)
        return figures


@dataclass(frozen=True)
class MemoryGrowth:
    """What a process holds after few calls, and another one after many."""

    name = "memory_growth"
    title = "memory after 1,000 calls, and after 100,000"
    unit = "B"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Two processes."""
        return {
            f"{calls:,} calls": memory_after(stand, contenders[0], calls)
            for calls in (1_000, 100_000)
        }


@dataclass(frozen=True)
class ManyTools:
    """A call with many tools registered, in turn with one with few."""

    name = "many_tools"
    title = "a call with 10,000 tools registered, and with 10"
    unit = "s"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Two servers, round by round."""
        call = [request("tools/call", ADD, OLDER)]
        sizes = {"10 tools": 10, "10,000 tools": 10_000}
        with ExitStack() as closing:
            reached = {
                name: closing.enter_context(
                    stand.reached(contenders[0], Way("stdio", OLDER, tools=number))
                )
                for name, number in sizes.items()
            }
            for server in reached.values():
                server.load(call, 1000, pace.warm_up)
            rounds: dict[str, list[float]] = {name: [] for name in reached}
            for _ in range(2 * pace.rounds):
                for name, server in reached.items():
                    rounds[name].append(1 / server.load(call, 1000, pace.seconds).rate)
        return {name: median(times) for name, times in rounds.items()}


@dataclass(frozen=True)
class InFlight:
    """What a call costs where many wait in the server together: a tool holds them until all are there."""

    name = "in_flight"
    title = "a call with 10,000 in flight, and with 100"
    unit = "s"
    contenders = ("mcp_trio",)
    full_only = False
    calls = 20_000

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """As many calls, in groups of 100 and of 10,000, in turn."""
        program = SOURCES / "mcp_trio" / "barrier.py"
        rounds: dict[str, list[float]] = {"100 in flight": [], "10,000 in flight": []}
        with reach(
            [sys.executable, str(program)], OLDER, env=environment(contenders[0])
        ) as server:
            for _ in range(1 + pace.rounds):
                for name, number in zip(rounds, (100, 10_000), strict=True):
                    meet = [
                        request(
                            "tools/call",
                            {"name": "meet", "arguments": {"n": number}},
                            OLDER,
                        )
                    ]
                    started = time.perf_counter()
                    for _ in range(self.calls // number):
                        server.load(meet, number, 60, number)
                    rounds[name].append((time.perf_counter() - started) / self.calls)
        return {name: median(times[1:]) for name, times in rounds.items()}


@dataclass(frozen=True)
class FanOut:
    """From a change of the tools until the last of many listeners has heard of it, over HTTP."""

    name = "fan_out"
    title = "fan-out of one list-changed"
    unit = "s"
    contenders = ("mcp_trio",)
    full_only = False
    listeners = (250, 500, 1000)

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """More and more of them, each on a connection of its own."""
        figures = {}
        with ExitStack() as closing, selectors.DefaultSelector() as selector:
            caller = closing.enter_context(
                stand.reached(contenders[0], Way("stateless", NEWEST))
            )
            for number in self.listeners:
                new = [
                    self._listen(caller, closing, selector)
                    for _ in range(number - len(selector.get_map()))
                ]
                wait_for(selector, len(new), b"acknowledged")
                rounds = [
                    self._change(caller, selector) for _ in range(1 + 2 * pace.rounds)
                ]
                figures[f"{number:,} streams"] = median(rounds[1:])
        return figures

    def _listen(
        self, caller: BenchTarget, closing: ExitStack, selector: selectors.BaseSelector
    ) -> HttpLoadConnection:
        """Ask for news of the tools, on a connection of its own; the answer is a stream that does not end."""
        wire = HttpLoadConnection(wire_of(caller).url)
        closing.callback(wire.close)
        wire.write(
            [
                (
                    request(
                        "subscriptions/listen",
                        {"notifications": {"toolsListChanged": True}},
                        NEWEST,
                    ),
                    1,
                )
            ]
        )
        selector.register(wire.read_fd, selectors.EVENT_READ)
        return wire

    def _change(self, caller: BenchTarget, selector: selectors.BaseSelector) -> float:
        """From the call of a tool that adds one, to the last listener."""
        started = time.perf_counter()
        wire_of(caller).write(
            [(request("tools/call", {"name": "grow", "arguments": {}}, NEWEST), 1)]
        )
        wait_for(selector, len(selector.get_map()), b"list_changed")
        taken = time.perf_counter() - started
        while not wire_of(caller).read():
            time.sleep(0.001)
        return taken


def wire_of(server: BenchTarget) -> HttpLoadConnection:
    """The connection over which a server was reached."""
    wire = server.connections[0]
    assert isinstance(wire, HttpLoadConnection)
    return wire


def wait_for(selector: selectors.BaseSelector, number: int, word: bytes) -> None:
    """Read until a word has come on so many connections. Raises UsageError."""
    heard: set[int] = set()
    while len(heard) < number:
        ready = selector.select(60)
        if not ready:
            raise UsageError(
                f"only {len(heard)} of {number} streams have brought {word.decode()} within 60 s"
            )
        heard.update(key.fd for key, _ in ready if word in os.read(key.fd, 2**16))


@dataclass(frozen=True)
class Sessions:
    """Sessions opened and left: what each holds of the server's memory."""

    name = "sessions"
    title = "a session opened and left"
    unit = "B"
    contenders = ("mcp_trio", *PEERS)
    full_only = True
    number = 10_000
    seconds = 10.0

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """One after the other, so many or for so long."""
        figures = {}
        for one in contenders:
            with stand.reached(one, Way("http", OLDER)) as server:
                wire, before, started, opened = (
                    wire_of(server),
                    server.memory() or 0,
                    time.perf_counter(),
                    0,
                )
                with suppress(UsageError):  # some take no more after so many
                    while (
                        opened < self.number
                        and time.perf_counter() - started < self.seconds
                    ):
                        wire.session_headers = b""
                        server.open(OLDER)
                        opened += 1
                taken = time.perf_counter() - started
                figures[one.name] = median(
                    [((server.memory() or 0) - before) / max(opened, 1)]
                )
                figures[one.name].about = {
                    "sessions": opened,
                    "a second": opened / taken,
                }
        return figures


WORKLOADS: list[Workload] = [
    Memory(),
    MemoryGrowth(),
    ManyTools(),
    InFlight(),
    FanOut(),
    Sessions(),
]

RATIOS = [
    *shorter("memory", "memory after 10,000 calls", {"python_sdk": 0.4, "tiny": 0.65}),
    Ratio(
        "memory after 100,000 calls",
        ("memory_growth", "100,000 calls"),
        ("memory_growth", "1,000 calls"),
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
        "fan-out to 1,000 streams",
        ("fan_out", "1,000 streams"),
        None,
        0.05,
        at_most=True,
        to_what="in itself",
        unit="s",
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
