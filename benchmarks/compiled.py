"""Loads from compiled programs, for rows in which the load in Python may be the limit.

Over stdio it is a small program in Go (`contenders/load_go`), over HTTP it is wrk.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mcp_trio.bench.load import BUSY
from mcp_trio.bench.target import BenchTarget, request
from mcp_trio.bench.transports import HttpLoadConnection, LoadRequest
from mcp_trio.load_spec import UsageError

from .contenders import Contender, build, program
from .ratios import Ratio, faster, shorter
from .stand import QUIET, Stand
from .workloads import HTTP_NEWEST, NUMBERS, STDIO, Figure, Pace, Workload, median

# Built like a contender, but not one.
GO_LOAD = Contender("load_go", "the load in Go", "load_go", "go", {})

# Contenders that are fast enough to be held back by a load in Python.
FAST = ("mcp_trio", "tiny", "typescript", "go", "rust")

# The shortest time that wrk can measure, in seconds.
WRK_SECONDS = 1
WRK_SCRIPT = """
wrk.method = "POST"
wrk.body = [==[%s]==]
%s
done = function(summary, latency, requests)
  io.write(string.format(
    'figures: {"requests":%%d,"microseconds":%%d,"errors":%%d,"p50":%%d,"p99":%%d}\\n',
    summary.requests, summary.duration,
    summary.errors.status + summary.errors.connect + summary.errors.read
      + summary.errors.write + summary.errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


class LoadRun(msgspec.Struct):
    """The figures of one round: times in seconds, processor use in cores."""

    rate: float
    p50: float
    p99: float
    errors: int
    load_took: float
    server_took: float


def figure(runs: Sequence[LoadRun]) -> Figure:
    """Return the figure of some rounds."""
    made = median([run.rate for run in runs])
    for name in ("p50", "p99", "load_took", "server_took"):
        made.about[name] = statistics.median(getattr(run, name) for run in runs)
    made.about["errors"] = sum(run.errors for run in runs)
    made.about["limited_by_the_load"] = any(
        run.load_took > BUSY > run.server_took for run in runs
    )
    return made


def tool_call(tool: str, revision: str) -> LoadRequest:
    """Return the request that the loads send."""
    params = {"name": tool, "arguments": NUMBERS}
    return request("tools/call", params, revision)


@contextmanager
def server_time(pid: int) -> Iterator[list[float]]:
    """Measure the cores that a server takes: one number, when the block is over."""
    server = BenchTarget([], pid=pid)
    taken: list[float] = []
    before = server.cpu_time() or 0.0
    begun = time.perf_counter()
    yield taken
    seconds = time.perf_counter() - begun
    taken.append(((server.cpu_time() or 0.0) - before) / seconds)


class GoLoad:
    """The load in Go, with a server that it has started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._pid = 0

    def run(self, seconds: float) -> LoadRun:
        """Load the server for some seconds. Raises UsageError."""
        assert self._process.stdin is not None
        with server_time(self._pid) as taken:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            found = self._read()
        self._pid = found["pid"]
        return LoadRun(
            rate=found["rate"],
            p50=found["p50"],
            p99=found["p99"],
            errors=found["errors"],
            load_took=found["took"],
            server_took=taken[0],
        )

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UsageError("the load in Go has ended")
        figures: dict[str, Any] = json.loads(line)
        return figures


@contextmanager
def go_load(
    command: Sequence[str], variables: Mapping[str, str], tool: str, window: int
) -> Iterator[GoLoad]:
    """Start a server under the load in Go. Raises Unavailable."""
    built = build(GO_LOAD)
    opening = {
        "protocolVersion": STDIO.revision,
        "capabilities": {},
        "clientInfo": {"name": "load_go", "version": "1"},
    }
    initialize = request("initialize", opening, STDIO.revision).message(0).decode()
    start = tool_call(tool, STDIO.revision).start.decode()
    words = [*built.start, str(window), initialize, start, *command]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=QUIET,
        env=variables,
        text=True,
    )
    with process:
        # At the end of the block its input ends; then it does, and so does the server.
        yield GoLoad(process)


@dataclass(frozen=True)
class StdioByGo:
    """A tool that is called over stdio by the load in Go."""

    name: str
    title: str
    tool: str
    contenders: tuple[str, ...]
    window: int = 1000
    full_only: bool = True
    unit = "calls/s"

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Load all contenders in turn. Raises UsageError, Unavailable."""
        with ExitStack() as closing:
            loads = {}
            for one in contenders:
                command, variables = stand.command(one)
                loads[one.name] = closing.enter_context(
                    go_load(command, variables, self.tool, self.window)
                )
            for load in loads.values():
                load.run(pace.warm_up)
            rounds: dict[str, list[LoadRun]] = {name: [] for name in loads}
            for _ in range(pace.rounds):
                for name, load in loads.items():
                    rounds[name].append(load.run(pace.seconds))
            return {name: figure(runs) for name, runs in rounds.items()}


@dataclass(frozen=True)
class HttpByWrk:
    """A tool that is called over HTTP by wrk."""

    name: str
    title: str
    tool: str
    contenders: tuple[str, ...]
    full_only: bool = True
    unit = "calls/s"
    way = HTTP_NEWEST

    def measure(
        self, stand: Stand, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Load all contenders in turn. Raises UsageError, Unavailable."""
        wrk = program("wrk")
        with ExitStack() as closing, tempfile.TemporaryDirectory() as folder:
            servers = {
                one.name: closing.enter_context(stand.reached(one, self.way))
                for one in contenders
            }
            rounds: dict[str, list[LoadRun]] = {name: [] for name in servers}
            for _ in range(1 + pace.rounds):
                for name, server in servers.items():
                    rounds[name].append(self.run(wrk, server, Path(folder)))
            # The first round warms up.
            return {name: figure(runs[1:]) for name, runs in rounds.items()}

    def run(self, wrk: str, server: BenchTarget, folder: Path) -> LoadRun:
        """Load a server for a second. Raises UsageError."""
        connection = server.connections[0]
        assert isinstance(connection, HttpLoadConnection)
        script = folder / "load.lua"
        script.write_text(self._script(connection))
        command = [wrk, "-t", "1", "-c", str(self.way.connections)]
        command += ["-d", f"{WRK_SECONDS}s", "--latency", "-s", str(script)]
        assert server.pid is not None
        before = processor_time_of_children()
        with server_time(server.pid) as taken:
            done = subprocess.run(
                [*command, connection.url], capture_output=True, text=True, check=False
            )
        found = figures_of(done.stdout)
        seconds = found["microseconds"] / 1e6
        return LoadRun(
            rate=(found["requests"] - found["errors"]) / seconds,
            p50=found["p50"] / 1e6,
            p99=found["p99"] / 1e6,
            errors=found["errors"],
            load_took=(processor_time_of_children() - before) / seconds,
            server_took=taken[0],
        )

    def _script(self, connection: HttpLoadConnection) -> str:
        """Return what wrk sends, as its language has it."""
        load = tool_call(self.tool, self.way.revision)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        given = connection.session_headers + load.head
        for line in given.decode().splitlines():
            name, _, value = line.partition(": ")
            headers[name] = value
        lines = [
            f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()
        ]
        return WRK_SCRIPT % (load.message(1).decode(), "\n".join(lines))


def figures_of(output: str) -> dict[str, int]:
    """Return what the script of wrk has printed. Raises UsageError."""
    for line in output.splitlines():
        head, _, rest = line.partition("figures: ")
        if not head and rest:
            figures: dict[str, int] = json.loads(rest)
            return figures
    raise UsageError(f"wrk has printed no figures: {output[-200:]!r}")


def processor_time_of_children() -> float:
    """Return the seconds that children of this process took that have ended."""
    if sys.platform == "win32":
        raise NotImplementedError("wrk runs on Linux, macOS and other Unix systems")
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


WORKLOADS: list[Workload] = [
    StdioByGo(
        "stdio_async_go",
        "stdio pipelined, async tool, load in Go",
        "add",
        (*FAST, "floor_loop"),
    ),
    StdioByGo(
        "stdio_object_go",
        "stdio pipelined, an object with an output schema, load in Go",
        "user",
        FAST,
    ),
    HttpByWrk(
        "http_newest_wrk",
        "HTTP, 16 connections, 2026-07-28, load by wrk",
        "add",
        (*FAST, "floor_httptools"),
    ),
]

WRK_ROW = "HTTP, 2026-07-28, load by wrk"

RATIOS: list[Ratio] = [
    *faster(
        "stdio_async_go",
        "stdio pipelined, async tool, load in Go",
        {"typescript": 1.2, "tiny": 3, "floor_loop": 0.18},
    ),
    *faster(
        "stdio_object_go",
        "stdio pipelined, an object, load in Go",
        {"typescript": 1.3, "rust": 4, "tiny": 3},
    ),
    *faster(
        "http_newest_wrk",
        WRK_ROW,
        {"typescript": 10, "go": 4, "rust": 1.2, "tiny": 3, "floor_httptools": 0.4},
    ),
    *shorter("http_newest_wrk", f"{WRK_ROW}, p99", {"rust": 1}, part="p99"),
]
