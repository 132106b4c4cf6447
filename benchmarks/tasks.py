"""Tasks: how fast they are created, polled and finished, and the memory they take."""

from __future__ import annotations

import selectors
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from mcp_trio.bench.load import Run
from mcp_trio.bench.target import BenchTarget, reach, request
from mcp_trio.bench.transports import LoadConnection, LoadRequest
from mcp_trio.load_spec import UsageError
from mcp_trio.protocol.params import VENDOR
from mcp_trio.protocol.types import Json

from .contenders.table import NEWEST, SOURCES, Contender
from .ratios import Ratio, increase
from .servers import Servers, environment, free_port, running_server
from .workloads import NUMBERS, Figure, Pace, Workload, in_turn, median, throughput

CONNECTIONS = 16
TASKS = 10_000
QUICK_TASKS = 1_000
# Tasks are created in this many parts. Each is a round.
PARTS = 10
DECLARED: Json = {f"{VENDOR}clientCapabilities": {"extensions": {f"{VENDOR}tasks": {}}}}
# The time to live of tasks in seconds: longer than a run, or long enough to create and
# poll them on a slow machine.
LONG_TTL = 3600.0
SHORT_TTL = 40.0
QUICK_SHORT_TTL = 10.0
# Seconds until the server has removed tasks that have expired.
CLEANUP = 4.0

# The cases that are compared.
CALL = "a plain call"
WORKING_POLL = "a poll of a working task"
LATER_CALL = "a plain call, later"
FINISHED_POLL = "a poll of a finished task"


@contextmanager
def task_server(contender: Contender, ttl: float) -> Iterator[BenchTarget]:
    """Start a server whose tasks live for `ttl` seconds. Raises UsageError."""
    port = free_port()
    program = str(SOURCES / contender.folder / "tasks.py")
    command = [sys.executable, program, str(port), str(ttl)]
    url = f"http://127.0.0.1:{port}/mcp"
    with (
        running_server(command, port, environment(contender)) as pid,
        reach(url, NEWEST, CONNECTIONS) as server,
    ):
        server.pid = pid
        yield server


def task_request(method: str, params: Json) -> LoadRequest:
    """Return a request of a client that declares the tasks extension."""
    return request(method, {**params, "_meta": DECLARED}, NEWEST)


def create_tasks(server: BenchTarget, number: int) -> list[str]:
    """Create tasks as fast as the server answers. Returns their ids.

    Raises UsageError.
    """
    call = task_request("tools/call", {"name": "job", "arguments": NUMBERS})
    ids: list[str] = []
    sent = 0
    with selectors.DefaultSelector() as selector:
        for connection in server.connections:
            selector.register(connection.read_fd, selectors.EVENT_READ, connection)
            connection.write([(call, sent)])
            sent += 1
        while len(ids) < number:
            ready = selector.select(60)
            if not ready:
                raise UsageError(f"only {len(ids):,} of {number:,} tasks were created")
            for key, _ in ready:
                connection = key.data
                for reply in connection.read():
                    ids.append(task_in(reply)["taskId"])
                    if sent < number:
                        connection.write([(call, sent)])
                        sent += 1
    return ids


def task_in(reply: bytes) -> Json:
    """Return the task in a reply. Raises UsageError."""
    message = msgspec.json.decode(reply)
    if "error" in message:
        raise UsageError(f"the server refused: {message['error']['message']}")
    task: Json = message["result"]
    return task


def poll_requests(ids: Sequence[str]) -> list[LoadRequest]:
    """Return a request for the state of each task."""
    return [task_request("tasks/get", {"taskId": id}) for id in ids]


def ask(connection: LoadConnection, load_request: LoadRequest) -> bytes:
    """Send one request and return the reply."""
    return connection.ask(load_request.message(0), load_request.head, id=0)


def finish_tasks(server: BenchTarget, polls: Sequence[LoadRequest]) -> float:
    """Let all tasks finish. Returns how long the last one took. Raises UsageError."""
    connection = server.connections[0]
    release = task_request("tools/call", {"name": "release", "arguments": {}})
    started = time.perf_counter()
    ask(connection, release)
    # The tasks run in the order of their creation.
    while task_in(ask(connection, polls[-1]))["status"] == "working":
        time.sleep(0.01)
    seconds = time.perf_counter() - started
    for poll in (polls[0], polls[-1]):
        if task_in(ask(connection, poll))["status"] != "completed":
            raise UsageError("a task was not completed")
    return seconds


def plain_call() -> LoadRequest:
    """Return a call that does not create a task."""
    return task_request("tools/call", {"name": "add", "arguments": NUMBERS})


@dataclass(frozen=True)
class TaskRates:
    """How fast tasks are created, polled and finished, compared with plain calls."""

    name = "tasks"
    title = "tasks, HTTP, 16 connections"
    unit = "calls/s"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return the rates. Polls and plain calls take turns. Raises UsageError."""
        number = TASKS if pace.full else QUICK_TASKS
        with task_server(contenders[0], LONG_TTL) as server:
            call = plain_call()
            server.load([call], 1, pace.warm_up)
            ids, rates = self._create(server, number)
            polls = poll_requests(ids)
            figures = {f"{number:,} tasks created": median(rates)}
            figures |= self._in_turn(server, {CALL: [call], WORKING_POLL: polls}, pace)
            finished = number / finish_tasks(server, polls)
            figures |= self._in_turn(
                server, {LATER_CALL: [call], FINISHED_POLL: polls}, pace
            )
            figures[f"{number:,} tasks finished"] = median([finished])
        return figures

    def _create(
        self, server: BenchTarget, number: int
    ) -> tuple[list[str], list[float]]:
        """Create the tasks. Returns their ids, and the rate of each part."""
        ids: list[str] = []
        rates = []
        part = number // PARTS
        for _ in range(PARTS):
            started = time.perf_counter()
            ids += create_tasks(server, part)
            rates.append(part / (time.perf_counter() - started))
        return ids, rates

    def _in_turn(
        self, server: BenchTarget, loads: dict[str, list[LoadRequest]], pace: Pace
    ) -> dict[str, Figure]:
        """Send the loads in turn."""
        measurements = {
            name: partial(server.load, requests, 1, pace.seconds)
            for name, requests in loads.items()
        }
        runs_by_load: dict[str, list[Run]] = in_turn(measurements, 1 + 2 * pace.rounds)
        # The first round is a warm-up.
        return {name: throughput(runs[1:]) for name, runs in runs_by_load.items()}


@dataclass(frozen=True)
class TaskMemory:
    """Resident memory before, with and after many tasks."""

    name = "tasks_memory"
    title = "memory of tasks, polled, finished and expired"
    unit = "B"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Create, poll and finish tasks, and let them expire. Raises UsageError."""
        number = TASKS if pace.full else QUICK_TASKS
        ttl = SHORT_TTL if pace.full else QUICK_SHORT_TTL
        with task_server(contenders[0], ttl) as server:
            server.load([plain_call()], 1, pace.warm_up)
            before = server.memory() or 0
            polls = poll_requests(create_tasks(server, number))
            server.load(polls, 1, ttl, number)
            finish_tasks(server, polls)
            finished = server.memory() or 0
            self._wait_for_expiry(server.connections[0], polls[-1], ttl)
            after = server.memory() or 0
        sizes = {
            "before the first task": before,
            f"{number:,} tasks finished": finished,
            "all expired": after,
        }
        return {name: median([float(size)]) for name, size in sizes.items()}

    def _wait_for_expiry(
        self, connection: LoadConnection, poll: LoadRequest, ttl: float
    ) -> None:
        """Wait until the last task does not exist anymore. Raises UsageError."""
        deadline = time.monotonic() + 2 * ttl
        while b'"error"' not in ask(connection, poll):
            if time.monotonic() > deadline:
                raise UsageError(f"a task has not expired within {2 * ttl:g} s")
            time.sleep(0.2)
        time.sleep(CLEANUP)


WORKLOADS: list[Workload] = [TaskRates(), TaskMemory()]
RATIOS: list[Ratio] = [
    increase("tasks", "a poll of a working task", CALL, WORKING_POLL, 1.3, CALL),
    increase(
        "tasks", "a poll of a finished task", LATER_CALL, FINISHED_POLL, 1.3, CALL
    ),
]
