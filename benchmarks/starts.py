"""Servers that start, and servers that have nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from mcp_trio.bench.target import BenchTarget, reach
from mcp_trio.load_spec import UsageError

from .contenders import OLDER, SOURCES, Contender, environment
from .ratios import Ratio, shorter
from .stand import QUIET, Stand
from .workloads import PEERS, STDIO, Figure, Pace, Workload, median


def started(
    stand: Stand, contender: Contender, variables: Mapping[str, str] | None = None
) -> AbstractContextManager[BenchTarget]:
    """Start a contender on stdio by its usual command. Raises UsageError."""
    if contender.name != "mcp_trio":
        return stand.reached(contender, STDIO, variables)
    program = str(SOURCES / contender.folder / contender.program)
    command = [sys.executable, "-m", "mcp_trio", "run", program]
    surroundings = {**environment(contender), **(variables or {})}
    return reach(command, OLDER, env=surroundings, stderr=QUIET)


def import_time(variables: Mapping[str, str]) -> float:
    """Return the seconds of a process that only imports the libraries."""
    begun = time.perf_counter()
    command = [sys.executable, "-c", "import trio, msgspec"]
    subprocess.run(command, check=True, env={**os.environ, **variables})
    return time.perf_counter() - begun


@dataclass(frozen=True)
class StartUp:
    """From the start of a process until it has answered initialize.

    If `first`, every start is the first one of its kind: there are no .pyc files, of
    the standard library neither.
    """

    name: str
    title: str
    contenders: tuple[str, ...]
    first: bool = False
    full_only: bool = False
    unit = "s"

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Start each in turn. The first round fills the system's caches."""
        rounds: dict[str, list[float]] = {one.name: [] for one in contenders}
        rounds["floor_import"] = []
        count = pace.rounds if self.first else 2 * pace.rounds
        for _ in range(1 + count):
            for one in contenders:
                with tempfile.TemporaryDirectory() as folder:
                    variables = self._variables(folder)
                    with started(stand, one, variables) as server:
                        rounds[one.name].append(server.start_up or 0)
            with tempfile.TemporaryDirectory() as folder:
                rounds["floor_import"].append(import_time(self._variables(folder)))
        return {name: median(times[1:]) for name, times in rounds.items()}

    def _variables(self, folder: str) -> dict[str, str]:
        """Return what makes Python look for .pyc files in an empty folder."""
        if not self.first:
            return {}
        return {"PYTHONPYCACHEPREFIX": folder}


@dataclass(frozen=True)
class IdleServers:
    """Servers that were opened and have nothing to do, as a desktop host keeps them.

    The figure is the memory of all of them. Memory that they share counts once.
    """

    name = "idle"
    title = "twenty idle servers"
    unit = "B"
    # To start FastMCP so often takes too long.
    contenders = ("mcp_trio", "python_sdk", "tiny", "typescript", "go", "rust")
    full_only = True
    servers = 20
    settle = 1.0
    seconds = 3.0

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Start the servers of one contender after another."""
        figures = {}
        for one in contenders:
            with ExitStack() as closing:
                servers = [
                    closing.enter_context(started(stand, one))
                    for _ in range(self.servers)
                ]
                figures[one.name] = self._figure(servers)
        return figures

    def _figure(self, servers: Sequence[BenchTarget]) -> Figure:
        pids = [server.pid for server in servers if server.pid is not None]
        time.sleep(self.settle)
        before = sum(map(wake_ups, pids))
        time.sleep(self.seconds)
        after = sum(map(wake_ups, pids))
        figure = median([float(sum(map(own_memory, pids)))])
        figure.about["wake-ups"] = (after - before) / self.seconds
        return figure


def wake_ups(pid: int) -> int:
    """Return how often the threads of a process have begun to wait. Raises UsageError."""
    total = 0
    for thread in process_folder(pid).glob("task/*"):
        for line in lines_of(thread / "status"):
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def own_memory(pid: int) -> int:
    """Return the bytes of a process, with its part of what others share with it."""
    for line in lines_of(process_folder(pid) / "smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise UsageError(f"the system does not say how much memory process {pid} has")


def process_folder(pid: int) -> Path:
    """Return what the system tells about a process. Raises UsageError."""
    folder = Path("/proc") / str(pid)
    if not folder.is_dir():
        raise UsageError("idle servers are measured on Linux, while they run")
    return folder


def lines_of(file: Path) -> Iterator[str]:
    """Return the lines of a file, none if it has gone."""
    try:
        return iter(file.read_text().splitlines())
    except OSError:
        return iter(())


WORKLOADS: list[Workload] = [
    StartUp("start_up", "spawn to initialize reply", ("mcp_trio", *PEERS)),
    StartUp(
        "first_start",
        "spawn to initialize reply, without .pyc files",
        ("mcp_trio", "python_sdk", "tiny", "typescript"),
        first=True,
        full_only=True,
    ),
    IdleServers(),
]

RATIOS = [
    *shorter(
        "start_up",
        "spawn to initialize reply",
        {"python_sdk": 0.22, "typescript": 0.9, "tiny": 0.6, "floor_import": 1.25},
    ),
    *shorter(
        "first_start",
        "spawn to initialize reply, without .pyc files",
        {"python_sdk": None, "typescript": None, "tiny": 0.6, "floor_import": None},
    ),
    *shorter("idle", "twenty idle servers", {"python_sdk": None, "tiny": 0.65}),
    Ratio(
        "wake-ups of twenty idle servers",
        ("idle", "mcp_trio"),
        None,
        0,
        at_most=True,
        to_what="in itself",
        part="wake-ups",
        unit="a second",
    ),
]
