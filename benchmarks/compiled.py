"""Loads by compiled programs, because a load in Python may be the bottleneck.

Over stdio this is a small program in Go (`contenders/load_go`), over HTTP it is wrk.
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
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from mcp_trio.bench.load import BUSY
from mcp_trio.bench.target import BenchTarget, request
from mcp_trio.bench.transports import HttpLoadConnection, LoadRequest
from mcp_trio.load_spec import UsageError

from .contenders.builds import build
from .contenders.table import Contender
from .contenders.toolchains import find_program
from .ratios import Ratio, faster, shorter
from .servers import QUIET, Servers, Setup
from .workloads import (
    HTTP_NEWEST,
    NUMBERS,
    STDIO,
    Figure,
    Pace,
    Workload,
    in_turn,
    median,
)

# It is built like a contender, and is not one.
GO_LOAD = Contender("load_go", "the load in Go", "load_go", "go", {})

# Contenders so fast that a load in Python may be the bottleneck.
FAST = ("mcp_trio", "tiny", "typescript", "go", "rust")

# The shortest duration that wrk accepts.
WRK_SECONDS = 1
# The line with the results of the script starts with this.
WRK_RESULT = "figures: "
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
    """The results of one round: times in seconds, processor use in cores."""

    rate: float
    p50: float
    p99: float
    errors: int
    load_took: float
    server_took: float


def figure(runs: Sequence[LoadRun]) -> Figure:
    """Return the figure for some rounds."""
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
def cores_used(pid: int) -> Iterator[list[float]]:
    """Measure how many cores a server uses. The list has the result after the block."""
    server = BenchTarget([], pid=pid)
    cores: list[float] = []
    before = server.cpu_time() or 0.0
    started = time.perf_counter()
    yield cores
    seconds = time.perf_counter() - started
    after = server.cpu_time() or 0.0
    cores.append((after - before) / seconds)


class GoLoad:
    """The load in Go, and the server that it has started."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._pid = 0

    def run(self, seconds: float) -> LoadRun:
        """Load the server for some seconds. Raises UsageError."""
        assert self._process.stdin is not None
        with cores_used(self._pid) as cores:
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            result = self._read()
        self._pid = result["pid"]
        return LoadRun(
            rate=result["rate"],
            p50=result["p50"],
            p99=result["p99"],
            errors=result["errors"],
            load_took=result["took"],
            server_took=cores[0],
        )

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UsageError("the load in Go has ended")
        result: dict[str, Any] = json.loads(line)
        return result


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
    process = subprocess.Popen(
        [*built.start, str(window), initialize, start, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=QUIET,
        env=variables,
        text=True,
    )
    with process:
        # Leaving the block closes its input, which ends it and the server.
        yield GoLoad(process)


@dataclass(frozen=True)
class GoToolLoad:
    """Calls of a tool over stdio, by the load in Go."""

    name: str
    title: str
    tool: str
    contenders: tuple[str, ...]
    window: int = 1000
    full_only: bool = True
    unit = "calls/s"

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Load all contenders in turn. Raises UsageError and Unavailable."""
        with ExitStack() as closing:
            loads = {}
            for contender in contenders:
                command, variables = servers.stdio_command(contender)
                loads[contender.name] = closing.enter_context(
                    go_load(command, variables, self.tool, self.window)
                )
            for load in loads.values():
                load.run(pace.warm_up)
            measurements = {
                name: partial(load.run, pace.seconds) for name, load in loads.items()
            }
            runs_by_contender = in_turn(measurements, pace.rounds)
        return {name: figure(runs) for name, runs in runs_by_contender.items()}


@dataclass(frozen=True)
class WrkLoad:
    """Calls of a tool over HTTP, by wrk."""

    name: str
    title: str
    tool: str
    contenders: tuple[str, ...]
    full_only: bool = True
    setup: Setup = HTTP_NEWEST
    unit = "calls/s"

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        """Load all contenders in turn. Raises UsageError and Unavailable."""
        with servers.connect_all(contenders, self.setup) as targets:
            return self.load_in_turn(targets, pace)

    def load_in_turn(
        self, targets: Mapping[str, BenchTarget], pace: Pace
    ) -> dict[str, Figure]:
        """Load running servers in turn. Raises UsageError and Unavailable."""
        wrk = find_program("wrk")
        with tempfile.TemporaryDirectory() as folder:
            measurements = {
                name: partial(self._run, wrk, target, Path(folder))
                for name, target in targets.items()
            }
            runs_by_case = in_turn(measurements, 1 + pace.rounds)
        # The first round is a warm-up.
        return {name: figure(runs[1:]) for name, runs in runs_by_case.items()}

    def _run(self, wrk: str, server: BenchTarget, folder: Path) -> LoadRun:
        """Load a server for a second. Raises UsageError."""
        connection = server.connections[0]
        assert isinstance(connection, HttpLoadConnection)
        script = folder / "load.lua"
        script.write_text(self._script(connection))
        command = [wrk, "-t", "1", "-c", str(self.setup.connections)]
        command += ["-d", f"{WRK_SECONDS}s", "--latency", "-s", str(script)]
        assert server.pid is not None
        before = processor_time_of_children()
        with cores_used(server.pid) as cores:
            done = subprocess.run(
                [*command, connection.url], capture_output=True, text=True, check=False
            )
        result = parse_wrk_output(done.stdout)
        seconds = result["microseconds"] / 1e6
        return LoadRun(
            rate=(result["requests"] - result["errors"]) / seconds,
            p50=result["p50"] / 1e6,
            p99=result["p99"] / 1e6,
            errors=result["errors"],
            load_took=(processor_time_of_children() - before) / seconds,
            server_took=cores[0],
        )

    def _script(self, connection: HttpLoadConnection) -> str:
        """Return the script in Lua that says what wrk sends."""
        load = tool_call(self.tool, self.setup.revision)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        request_headers = connection.session_headers + load.head
        for line in request_headers.decode().splitlines():
            name, _, value = line.partition(": ")
            headers[name] = value
        lines = [
            f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()
        ]
        return WRK_SCRIPT % (load.message(1).decode(), "\n".join(lines))


def parse_wrk_output(output: str) -> dict[str, int]:
    """Return the results that the script printed. Raises UsageError."""
    for line in output.splitlines():
        if line.startswith(WRK_RESULT):
            result: dict[str, int] = json.loads(line.removeprefix(WRK_RESULT))
            return result
    raise UsageError(f"wrk has printed no results: {output[-200:]!r}")


def processor_time_of_children() -> float:
    """Return the processor seconds of child processes that have ended."""
    if sys.platform == "win32":
        raise NotImplementedError("wrk runs on Linux, macOS and other Unix systems")
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


WORKLOADS: list[Workload] = [
    GoToolLoad(
        "stdio_async_go",
        "stdio pipelined, async tool, load in Go",
        "add",
        (*FAST, "floor_loop"),
    ),
    GoToolLoad(
        "stdio_object_go",
        "stdio pipelined, an object with an output schema, load in Go",
        "user",
        FAST,
    ),
    WrkLoad(
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
