"""Workloads of tasks: created, polled and finished over 16 connections, and what they leave in memory."""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from mcp_trio.bench.load import Run
from mcp_trio.bench.target import BenchTarget, reach, request
from mcp_trio.bench.transports import LoadConnection, LoadRequest
from mcp_trio.load_spec import UsageError
from mcp_trio.protocol.params import VENDOR
from mcp_trio.protocol.types import Json

from .contenders import NEWEST, SOURCES, Contender, environment, free_port
from .ratios import Ratio
from .stand import QUIET, Stand, end, wait_until_it_listens
from .workloads import NUMBERS, Figure, Pace, Workload, median

CONNECTIONS = 16
TASKS = 10_000
QUICK_TASKS = 1_000
# Parts in which the tasks are created, each a round.
PARTS = 10
DECLARED: Json = {f"{VENDOR}clientCapabilities": {"extensions": {f"{VENDOR}tasks": {}}}}
# Seconds for which tasks are kept: longer than a run, or as long as it takes to make and poll them on a slow machine.
LONG = 3600.0
SHORT = 40.0
QUICK_SHORT = 10.0
# Seconds until the server has looked for expired tasks.
TO_FORGET = 4.0


@contextmanager
def server_of_tasks(contender: Contender, ttl: float) -> Iterator[BenchTarget]:
    """A new process, with connections that are open. Raises UsageError."""
    port = free_port()
    program = str(SOURCES / contender.folder / "tasks.py")
    process = subprocess.Popen(
        [sys.executable, program, str(port), str(ttl)],
        stdin=subprocess.DEVNULL,
        stderr=QUIET,
        env=environment(contender),
    )
    try:
        wait_until_it_listens(process, port)
        url = f"http://127.0.0.1:{port}/mcp"
        with reach(url, NEWEST, CONNECTIONS) as server:
            server.pid = process.pid
            yield server
    finally:
        end(process)


def task_request(method: str, params: Json) -> LoadRequest:
    """A request of a client that knows tasks."""
    return request(method, {**params, "_meta": DECLARED}, NEWEST)


def create(server: BenchTarget, number: int) -> list[str]:
    """Create tasks as fast as the server answers; return their ids. Raises UsageError."""
    call = task_request("tools/call", {"name": "job", "arguments": NUMBERS})
    ids: list[str] = []
    sent = 0
    with selectors.DefaultSelector() as selector:
        for wire in server.connections:
            selector.register(wire.read_fd, selectors.EVENT_READ, wire)
            wire.write([(call, sent)])
            sent += 1
        while len(ids) < number:
            ready = selector.select(60)
            if not ready:
                raise UsageError(f"only {len(ids):,} of {number:,} tasks were created")
            for key, _ in ready:
                wire = key.data
                for reply in wire.read():
                    ids.append(task_of(reply)["taskId"])
                    if sent < number:
                        wire.write([(call, sent)])
                        sent += 1
    return ids


def task_of(reply: bytes) -> Json:
    """The task in a reply. Raises UsageError."""
    message = msgspec.json.decode(reply)
    if "error" in message:
        raise UsageError(f"the server refused: {message['error']['message']}")
    task: Json = message["result"]
    return task


def ask(wire: LoadConnection, asked: LoadRequest) -> Json:
    """Send one request, and return what it shows. Raises UsageError."""
    return task_of(wire.ask(asked.message(0), asked.head, id=0))


def polls_of(ids: Sequence[str]) -> list[LoadRequest]:
    """A request for each task."""
    return [task_request("tasks/get", {"taskId": id}) for id in ids]


def release(server: BenchTarget, polls: Sequence[LoadRequest]) -> float:
    """Let all tasks end; return the seconds until the last was done. Raises UsageError."""
    wire = server.connections[0]
    started = time.perf_counter()
    wire.ask(*_plain(task_request("tools/call", {"name": "release", "arguments": {}})))
    # They are worked on in their order.
    while ask(wire, polls[-1])["status"] == "working":
        time.sleep(0.01)
    taken = time.perf_counter() - started
    for one in (polls[0], polls[-1]):
        if ask(wire, one)["status"] != "completed":
            raise UsageError("a task was not completed")
    return taken


def _plain(asked: LoadRequest) -> tuple[bytes, bytes, int]:
    return asked.message(0), asked.head, 0


@dataclass(frozen=True)
class TaskRates:
    """Tasks created, polled and finished, in turn with plain calls of a tool."""

    name = "tasks"
    title = "tasks, HTTP, 16 connections"
    unit = "calls/s"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Polls and plain calls take turns, round after round. Raises UsageError."""
        number = TASKS if pace.many else QUICK_TASKS
        with server_of_tasks(contenders[0], LONG) as server:
            plain = task_request("tools/call", {"name": "add", "arguments": NUMBERS})
            server.load([plain], 1, pace.warm_up)
            ids, created = self._create(server, number)
            polls = polls_of(ids)
            loads = {"a plain call": [plain], "a poll of a working task": polls}
            runs = self._in_turn(server, loads, pace)
            finished = number / release(server, polls)
            loads = {"a plain call, then": [plain], "a poll of a finished task": polls}
            runs |= self._in_turn(server, loads, pace)
        figures = {f"{number:,} tasks created": median(created)}
        figures |= {name: self._figure(some) for name, some in runs.items()}
        return figures | {f"{number:,} tasks finished": median([finished])}

    def _create(
        self, server: BenchTarget, number: int
    ) -> tuple[list[str], list[float]]:
        """All tasks, and the rate of each part."""
        ids: list[str] = []
        rates = []
        for _ in range(PARTS):
            started = time.perf_counter()
            ids += create(server, number // PARTS)
            rates.append(number / PARTS / (time.perf_counter() - started))
        return ids, rates

    def _in_turn(
        self, server: BenchTarget, loads: dict[str, list[LoadRequest]], pace: Pace
    ) -> dict[str, list[Run]]:
        runs: dict[str, list[Run]] = {name: [] for name in loads}
        for _ in range(1 + 2 * pace.rounds):
            for name, load in loads.items():
                runs[name].append(server.load(load, 1, pace.seconds))
        return {name: some[1:] for name, some in runs.items()}

    def _figure(self, runs: list[Run]) -> Figure:
        made = median([run.rate for run in runs])
        made.about["errors"] = sum(sum(run.errors.values()) for run in runs)
        made.about["limited_by_the_load"] = any(run.is_limited for run in runs)
        return made


@dataclass(frozen=True)
class TaskMemory:
    """Resident memory before the first task, with all of them, and after the last has expired."""

    name = "tasks_memory"
    title = "memory of tasks, polled, finished and expired"
    unit = "B"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Make, poll and finish them before the first expires, and wait for the last. Raises UsageError."""
        number = TASKS if pace.many else QUICK_TASKS
        ttl = SHORT if pace.many else QUICK_SHORT
        with server_of_tasks(contenders[0], ttl) as server:
            plain = task_request("tools/call", {"name": "add", "arguments": NUMBERS})
            server.load([plain], 1, pace.warm_up)
            before = server.memory() or 0
            polls = polls_of(create(server, number))
            server.load(polls, 1, ttl, number)
            release(server, polls)
            held = server.memory() or 0
            self._wait_for_expiry(server.connections[0], polls[-1], ttl)
            after = server.memory() or 0
        sizes = {
            "before the first task": before,
            f"{number:,} tasks finished": held,
            "the last expired": after,
        }
        return {name: median([float(size)]) for name, size in sizes.items()}

    def _wait_for_expiry(
        self, wire: LoadConnection, poll: LoadRequest, ttl: float
    ) -> None:
        """Wait until the last task does not exist any more. Raises UsageError."""
        until = time.monotonic() + 2 * ttl
        while b'"error"' not in wire.ask(*_plain(poll)):
            if time.monotonic() > until:
                raise UsageError(f"a task has not expired within {2 * ttl:g} s")
            time.sleep(0.2)
        time.sleep(TO_FORGET)


WORKLOADS: list[Workload] = [TaskRates(), TaskMemory()]
RATIOS = [
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
]
