"""The cost of shared state: with worker processes, and with Redis.

The servers are started by the command line, as users start them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from mcp_trio.bench.load import BUSY
from mcp_trio.bench.target import BenchTarget, reach, request

from .compiled import WrkLoad
from .contenders.table import NEWEST, OLDER, SOURCES, Contender
from .ratios import Ratio
from .servers import Servers, environment, free_port, running_server
from .workloads import HTTP_NEWEST, NUMBERS, Figure, Pace, Workload, in_turn, throughput

CONNECTIONS = 16
ADD = {"name": "add", "arguments": NUMBERS}

# The cases that are compared.
MEMORY = "memory"
PARENT = "the parent's store"
REDIS = "Redis"
WORKERS = {"1 worker": 1, "2 workers": 2}
# The connections of wrk to them. The fewer there are, the more often a worker finds
# only one or two requests when it wakes up.
WORKER_CONNECTIONS = (16, 64, 256)
# One machine does not need several workers for a few connections.
MANY_CONNECTIONS = WORKER_CONNECTIONS[-1]
# The name of the load with a larger result. The load itself takes a smaller share of the
# processor then, which it shares with the workers.
LARGER = "workers_list"
LARGER_CONNECTIONS = 64


@contextmanager
def serve(
    contender: Contender, options: Sequence[str], revision: str
) -> Iterator[BenchTarget]:
    """Run the server with some options, and connect to it. Raises UsageError."""
    port = free_port()
    spec = str(SOURCES / "mcp_trio" / "server.py")
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "mcp_trio", "run", spec]
    command += ["--http", address, *options]
    with (
        running_server(command, port, environment(contender)) as pid,
        reach(f"http://{address}/mcp", revision, CONNECTIONS) as server,
    ):
        server.pid = pid
        yield server


@contextmanager
def redis() -> Iterator[str | None]:
    """Run a Redis that writes to disk. Yields its URL, or None without Redis."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        options += ["--appendonly", "yes", "--save", ""]
        with running_server([program, *options], port):
            yield f"redis://127.0.0.1:{port}/0"


@dataclass(frozen=True)
class StoreLoad:
    """Calls of a tool over HTTP, with each kind of store in turn."""

    name: str
    title: str
    revision: str
    unit = "calls/s"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return a figure for each store. Redis is left out if it is not installed."""
        call = [request("tools/call", ADD, self.revision)]
        with ExitStack() as closing:
            url = closing.enter_context(redis())
            options = {MEMORY: [], PARENT: ["--workers", "1"]}
            if url is not None:
                options[REDIS] = ["--store", url]
            targets = {
                name: closing.enter_context(serve(contenders[0], given, self.revision))
                for name, given in options.items()
            }
            for target in targets.values():
                target.load(call, 1, pace.warm_up)
            measurements = {
                name: partial(target.load, call, 1, pace.seconds)
                for name, target in targets.items()
            }
            runs_by_store = in_turn(measurements, 2 * pace.rounds)
        return {name: throughput(runs) for name, runs in runs_by_store.items()}


@dataclass(frozen=True)
class WorkerLoad(WrkLoad):
    """Calls of a tool by wrk, with one worker process and with two in turn."""

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return a figure for each number of workers.

        Raises UsageError and Unavailable.
        """
        with ExitStack() as closing:
            targets = {
                name: closing.enter_context(
                    serve(contenders[0], ["--workers", str(number)], NEWEST)
                )
                for name, number in WORKERS.items()
            }
            figures = self.load_in_turn(targets, pace)
        for figure in figures.values():
            note_busy_cores(figure, os.cpu_count() or 1)
        return figures


def note_busy_cores(figure: Figure, cores: int) -> None:
    """Note whether the load and the server have used all cores between them."""
    load = figure.about["load_took"]
    server = figure.about["server_took"]
    assert isinstance(load, float)
    assert isinstance(server, float)
    figure.about["limited_by_the_cores"] = load + server > BUSY * cores


SESSIONS = "shared_sessions"
STATELESS = "shared_stateless"
WORKLOADS: list[Workload] = [
    StoreLoad(SESSIONS, "calls in a session, by store", OLDER),
    StoreLoad(STATELESS, "calls without a session, by store", NEWEST),
    *(
        WorkerLoad(
            f"workers_{connections}",
            f"calls by wrk on {connections} connections, by the number of workers",
            "add",
            ("mcp_trio",),
            setup=replace(HTTP_NEWEST, connections=connections),
        )
        for connections in WORKER_CONNECTIONS
    ),
    WorkerLoad(
        LARGER,
        f"calls by wrk on {LARGER_CONNECTIONS} connections, a list of 100 Structs, by "
        "the number of workers",
        "users",
        ("mcp_trio",),
        setup=replace(HTTP_NEWEST, connections=LARGER_CONNECTIONS),
    ),
]


def _compare_with_memory(workload: str, title: str, bound: float) -> list[Ratio]:
    """Compare the throughput of each shared store with that of memory."""
    return [
        Ratio(title, (workload, store), (workload, MEMORY), bound, baseline=store)
        for store in (PARENT, REDIS)
    ]


RATIOS = [
    *_compare_with_memory(SESSIONS, "calls in a shared session", 0.5),
    *_compare_with_memory(STATELESS, "calls without a session, with a store", 0.97),
    *(
        Ratio(
            f"two workers, {connections} connections",
            (f"workers_{connections}", "2 workers"),
            (f"workers_{connections}", "1 worker"),
            1.4 if connections == MANY_CONNECTIONS else None,
            baseline="one worker",
        )
        for connections in WORKER_CONNECTIONS
    ),
    Ratio(
        "two workers, a list of 100 Structs",
        (LARGER, "2 workers"),
        (LARGER, "1 worker"),
        1.4,
        baseline="one worker",
    ),
]
