"""What it costs to share state: with workers, and with Redis.

The servers are started with the command line, as users start them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mcp_trio.bench.load import Run
from mcp_trio.bench.target import BenchTarget, reach, request

from .compiled import HttpByWrk, LoadRun, figure
from .contenders import (
    NEWEST,
    OLDER,
    SOURCES,
    Contender,
    environment,
    free_port,
    program,
)
from .ratios import Ratio
from .stand import QUIET, Stand, end, wait_until_it_listens
from .workloads import NUMBERS, Figure, Pace, Workload, median

CONNECTIONS = 16
ADD = {"name": "add", "arguments": NUMBERS}

# What is compared, and the options that it takes.
MEMORY = "memory"
PARENT = "the parent's store"
REDIS = "Redis"
WORKERS = {"1 worker": 1, "2 workers": 2}


@contextmanager
def listening(
    command: Sequence[str], port: int, variables: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a program that listens on a port. Yields its process id."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=QUIET, stderr=QUIET, env=variables
    )
    try:
        wait_until_it_listens(process, port)
        yield process.pid
    finally:
        end(process)


@contextmanager
def served(
    contender: Contender, options: Sequence[str], revision: str
) -> Iterator[BenchTarget]:
    """Run the server with these options, and connect to it. Raises UsageError."""
    port = free_port()
    spec = str(SOURCES / "mcp_trio" / "server.py")
    place = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "mcp_trio", "run", spec, "--http", place, *options]
    with (
        listening(command, port, environment(contender)) as pid,
        reach(f"http://{place}/mcp", revision, CONNECTIONS) as server,
    ):
        server.pid = pid
        yield server


@contextmanager
def redis() -> Iterator[str | None]:
    """Run a Redis that writes its data to disk. Yields its URL; None without Redis."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        options += ["--appendonly", "yes", "--save", ""]
        with listening([program, *options], port):
            yield f"redis://127.0.0.1:{port}/0"


@dataclass(frozen=True)
class WithStores:
    """Calls of a tool over HTTP, with each kind of store in turn."""

    name: str
    title: str
    revision: str
    unit = "calls/s"
    contenders = ("mcp_trio",)
    full_only = False

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return the figure of each store; Redis only if it is installed."""
        call = [request("tools/call", ADD, self.revision)]
        with ExitStack() as closing:
            url = closing.enter_context(redis())
            options = {MEMORY: [], PARENT: ["--workers", "1"]}
            if url is not None:
                options[REDIS] = ["--store", url]
            servers = {
                name: closing.enter_context(served(contenders[0], given, self.revision))
                for name, given in options.items()
            }
            rounds: dict[str, list[Run]] = {name: [] for name in servers}
            for server in servers.values():
                server.load(call, 1, pace.warm_up)
            for _ in range(2 * pace.rounds):
                for name, server in servers.items():
                    rounds[name].append(server.load(call, 1, pace.seconds))
            return {name: self._figure(runs) for name, runs in rounds.items()}

    def _figure(self, runs: list[Run]) -> Figure:
        made = median([run.rate for run in runs])
        made.about["errors"] = sum(sum(run.errors.values()) for run in runs)
        made.about["limited_by_the_load"] = any(run.is_limited for run in runs)
        return made


@dataclass(frozen=True)
class Workers(HttpByWrk):
    """A tool that is called over HTTP by wrk, with one worker and with two in turn."""

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Return the figure of each number of workers. Raises UsageError, Unavailable."""
        wrk = program("wrk")
        with ExitStack() as closing, tempfile.TemporaryDirectory() as folder:
            servers = {
                name: closing.enter_context(
                    served(contenders[0], ["--workers", str(number)], NEWEST)
                )
                for name, number in WORKERS.items()
            }
            rounds: dict[str, list[LoadRun]] = {name: [] for name in servers}
            for _ in range(1 + pace.rounds):
                for name, server in servers.items():
                    rounds[name].append(self.run(wrk, server, Path(folder)))
            # The first round warms up.
            return {name: figure(runs[1:]) for name, runs in rounds.items()}


SESSIONS = "shared_sessions"
STATELESS = "shared_stateless"
WORKLOADS: list[Workload] = [
    WithStores(SESSIONS, "calls in a session, by store", OLDER),
    WithStores(STATELESS, "calls without a session, by store", NEWEST),
    Workers("workers", "calls by wrk, by the number of workers", "add", ("mcp_trio",)),
]


def _slower(workload: str, what: str, bound: float) -> list[Ratio]:
    """Compare the throughput with each shared store with that of memory."""
    return [
        Ratio(what, (workload, store), (workload, MEMORY), bound, to_what=store)
        for store in (PARENT, REDIS)
    ]


RATIOS = [
    *_slower(SESSIONS, "calls in a session that is shared", 0.5),
    *_slower(STATELESS, "calls without a session, with a store", 0.97),
    Ratio(
        "two workers",
        ("workers", "2 workers"),
        ("workers", "1 worker"),
        1.4,
        to_what="one worker",
    ),
]
