"""The start of a server, and idle servers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mcp_trio.bench.target import BenchTarget, reach
from mcp_trio.load_spec import UsageError

from .contenders.table import OLDER, SOURCES, Contender
from .ratios import Ratio, shorter
from .servers import QUIET, Servers, environment
from .workloads import PEERS, STDIO, Figure, Pace, Workload, in_turn, median


def start(
    servers: Servers, contender: Contender, variables: Mapping[str, str] | None = None
) -> AbstractContextManager[BenchTarget]:
    """Start a contender on stdio by its usual command. Raises UsageError."""
    if contender.name != "mcp_trio":
        return servers.connect(contender, STDIO, variables)
    program = str(SOURCES / contender.folder / contender.program)
    command = [sys.executable, "-m", "mcp_trio", "run", program]
    env = {**environment(contender), **(variables or {})}
    return reach(command, OLDER, env=env, stderr=QUIET)


def import_time(variables: Mapping[str, str]) -> float:
    """Return how long a process takes that only imports the libraries."""
    started = time.perf_counter()
    command = [sys.executable, "-c", "import trio, msgspec"]
    subprocess.run(command, check=True, env={**os.environ, **variables})
    return time.perf_counter() - started


@dataclass(frozen=True)
class StartUp:
    """The time from the start of a process to its reply to initialize.

    If `first`, each start is like the first one on a machine: there are no .pyc files,
    not even for the standard library.
    """

    name: str
    title: str
    contenders: tuple[str, ...]
    first: bool = False
    full_only: bool = False
    unit = "s"

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Start the contenders in turn. Raises UsageError."""
        measurements: dict[str, Callable[[], float]] = {}
        for contender in contenders:
            measurements[contender.name] = partial(self._start, servers, contender)
        measurements["floor_import"] = self._import
        rounds = pace.rounds
        if not self.first:
            rounds *= 2
        # The first round fills the system's caches.
        times_by_contender = in_turn(measurements, 1 + rounds)
        return {name: median(times[1:]) for name, times in times_by_contender.items()}

    def _start(self, servers: Servers, contender: Contender) -> float:
        with (
            self._variables() as variables,
            start(servers, contender, variables) as server,
        ):
            return server.start_up or 0

    def _import(self) -> float:
        with self._variables() as variables:
            return import_time(variables)

    @contextmanager
    def _variables(self) -> Iterator[dict[str, str]]:
        """Let Python look for .pyc files in an empty folder, if `first`."""
        if not self.first:
            yield {}
            return
        with tempfile.TemporaryDirectory() as folder:
            yield {"PYTHONPYCACHEPREFIX": folder}


@dataclass(frozen=True)
class IdleServers:
    """Servers that have answered initialize and are idle, as in a desktop host.

    The figure is their memory together. Memory that they share counts once.
    """

    name = "idle"
    title = "twenty idle servers"
    unit = "B"
    # Starting FastMCP so often would take too long.
    contenders = ("mcp_trio", "python_sdk", "tiny", "typescript", "go", "rust")
    full_only = True
    number = 20
    settle_seconds = 1.0
    seconds = 3.0

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Measure one contender after another. Raises UsageError."""
        figures = {}
        for contender in contenders:
            with ExitStack() as closing:
                targets = [
                    closing.enter_context(start(servers, contender))
                    for _ in range(self.number)
                ]
                figures[contender.name] = self._figure(targets)
        return figures

    def _figure(self, targets: Sequence[BenchTarget]) -> Figure:
        pids = [target.pid for target in targets if target.pid is not None]
        time.sleep(self.settle_seconds)
        before = sum(map(wake_ups, pids))
        time.sleep(self.seconds)
        after = sum(map(wake_ups, pids))
        figure = median([float(sum(map(own_memory, pids)))])
        figure.about["wake-ups"] = (after - before) / self.seconds
        return figure


def wake_ups(pid: int) -> int:
    """Return how often the threads of a process have started to wait.

    Raises UsageError.
    """
    total = 0
    for thread in process_folder(pid).glob("task/*"):
        for line in lines_of(thread / "status"):
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def own_memory(pid: int) -> int:
    """Return the memory of a process, including its part of shared memory.

    Raises UsageError.
    """
    for line in lines_of(process_folder(pid) / "smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise UsageError(f"the system does not report the memory of process {pid}")


def process_folder(pid: int) -> Path:
    """Return the folder of a process in /proc. Raises UsageError."""
    folder = Path("/proc") / str(pid)
    if not folder.is_dir():
        raise UsageError(f"{folder} does not exist: idle servers are measured on Linux")
    return folder


def lines_of(file: Path) -> Iterator[str]:
    """Return the lines of a file, none if it does not exist anymore."""
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
        baseline="(absolute)",
        part="wake-ups",
        unit="a second",
    ),
]
