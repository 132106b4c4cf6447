"""What calls, sessions, streams and tasks cost with Redis: `python -m benchmarks.sizing`.

It starts a Redis and a server of its own, does each thing many times, and prints what
one of them costs the server and Redis, and what a large deployment would need by these
costs. The client uses one connection and waits for each reply.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from mcp_trio.bench.target import BenchTarget
from mcp_trio.server.limits import MOST_SESSIONS

from .contenders.table import NEWEST, OLDER
from .servers import free_port, running_server

SERVER = """
from mcp_trio import Context, Server

server = Server("sizing")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def steps(ctx: Context) -> str:
    for step in range(3):
        await ctx.progress(step, 3)
    return "done"

@server.tool(task="required")
async def job() -> str:
    return "done"
"""
VENDOR = "io.modelcontextprotocol/"
META = {
    f"{VENDOR}protocolVersion": NEWEST,
    f"{VENDOR}clientCapabilities": {"extensions": {f"{VENDOR}tasks": {}}},
}
JSON = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
# Commands that the measurement itself sends, and those of each new connection.
OWN_COMMANDS = ("auth", "client", "hello", "info", "ping", "select", "setinfo")
# Seconds for which a process is watched that does nothing.
IDLE = 9.0
MICRO = 1_000_000


# What is measured


@dataclass
class Reading:
    """What a server and its Redis have used up to now."""

    server_seconds: float
    server_bytes: float
    redis_seconds: float
    redis_bytes: float
    redis_commands: float
    redis_traffic: float
    operations: float
    client_traffic: float

    def each(self, before: Reading, count: int) -> Reading:
        """Return what one of so many things has used since then."""
        now = vars(self)
        earlier = vars(before)
        return Reading(**{key: (now[key] - earlier[key]) / count for key in now})


class RedisInfo:
    """The figures that a Redis has of itself."""

    def __init__(self, port: int) -> None:
        self._stream = socket.create_connection(("127.0.0.1", port), 10)
        self._replies = self._stream.makefile("rb")

    def section(self, name: str) -> dict[str, str]:
        """Return a section."""
        self._stream.sendall(f"INFO {name}\r\n".encode())
        length = int(self._replies.readline()[1:])
        text = self._replies.read(length + 2).decode()
        lines = [line for line in text.splitlines() if ":" in line]
        return dict(line.split(":", 1) for line in lines)

    def commands(self) -> float:
        """Return how many commands were carried out, also by scripts."""
        total = 0
        for name, text in self.section("commandstats").items():
            command = name.removeprefix("cmdstat_").partition("|")[0]
            if command not in OWN_COMMANDS:
                total += int(text.partition("calls=")[2].partition(",")[0])
        return total

    def seconds(self) -> float:
        """Return the processor time."""
        found = self.section("cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])

    def memory(self) -> float:
        """Return the bytes of the data."""
        return float(self.section("memory")["used_memory_dataset"])

    def traffic(self) -> float:
        """Return the bytes received and sent."""
        found = self.section("stats")
        received = int(found["total_net_input_bytes"])
        return received + int(found["total_net_output_bytes"])


class Client:
    """A client of the server, and what both of them and Redis use."""

    def __init__(self, port: int, pid: int, redis: RedisInfo) -> None:
        self.port = port
        self.sessions: list[dict[str, str]] = []
        self.streams: list[socket.socket] = []
        self._connection = HTTPConnection("127.0.0.1", port, timeout=30)
        self._server = BenchTarget([], pid=pid)
        self._redis = redis
        self._traffic = 0.0
        self._number = 0

    def read(self) -> Reading:
        """Return what was used up to now."""
        return Reading(
            server_seconds=self._server.cpu_time() or 0.0,
            server_bytes=float(self._server.memory() or 0),
            redis_seconds=self._redis.seconds(),
            redis_bytes=self._redis.memory(),
            redis_commands=self._redis.commands(),
            redis_traffic=self._redis.traffic(),
            operations=self._operations(),
            client_traffic=self._traffic,
        )

    def _operations(self) -> float:
        self._connection.request("GET", "/metrics")
        page = self._connection.getresponse().read().decode()
        name = "mcp_store_operation_seconds_count "
        (line,) = [line for line in page.splitlines() if line.startswith(name)]
        return float(line.split()[1])

    # Requests

    def post(
        self, method: str, params: dict[str, Any], headers: dict[str, str]
    ) -> tuple[dict[str, str], Any]:
        """Send a message, and return the headers and the body of the response."""
        self._number += 1
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if not method.startswith("notifications/"):
            body["id"] = self._number
        data = json.dumps(body)
        self._connection.request("POST", "/mcp", data, {**JSON, **headers})
        response = self._connection.getresponse()
        received = response.read()
        if response.status not in (200, 202):
            raise RuntimeError(f"status {response.status}: {received[:200]!r}")
        fields = {name.lower(): value for name, value in response.getheaders()}
        self._traffic += len(data) + len(received)
        for sent in (JSON, headers, fields):
            self._traffic += sum(len(name) + len(sent[name]) + 4 for name in sent)
        return fields, received

    def call_modern(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool in the newest revision."""
        params = {"name": tool, "arguments": arguments, "_meta": META}
        headers = {
            "MCP-Protocol-Version": NEWEST,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        _, body = self.post("tools/call", params, headers)
        return json.loads(body)["result"]

    # What is done many times

    def call(self, number: int) -> None:
        """Call a tool in the newest revision."""
        self.call_modern("add", {"a": number, "b": 1})

    def open_session(self, number: int) -> None:
        """Open a session."""
        opening = {
            "protocolVersion": OLDER,
            "capabilities": {},
            "clientInfo": {"name": "sizing", "version": "1"},
        }
        fields, _ = self.post("initialize", opening, {})
        session = {
            "Mcp-Session-Id": fields["mcp-session-id"],
            "MCP-Protocol-Version": OLDER,
        }
        self.post("notifications/initialized", {}, session)
        self.sessions.append(session)

    def call_in_session(self, number: int) -> None:
        """Call a tool in a session, with a response in JSON."""
        session = self.sessions[number % len(self.sessions)]
        params = {"name": "add", "arguments": {"a": number, "b": 1}}
        self.post("tools/call", params, session)

    def call_with_stream(self, number: int) -> None:
        """Call a tool that reports progress, so the response is a stream."""
        session = self.sessions[number % len(self.sessions)]
        params = {"name": "steps", "arguments": {}, "_meta": {"progressToken": "p"}}
        self.post("tools/call", params, session)

    def open_stream(self, number: int) -> None:
        """Open a GET stream of a session, which stays open."""
        session = self.sessions[number]
        lines = ["GET /mcp HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
        lines += [f"{name}: {value}" for name, value in session.items()]
        stream = socket.create_connection(("127.0.0.1", self.port), 10)
        stream.sendall("\r\n".join([*lines, "", ""]).encode())
        if not stream.recv(4096).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("a stream was refused")
        self.streams.append(stream)

    def run_task(self, number: int) -> None:
        """Create a task, and poll it until it is over."""
        id = self.call_modern("job", {})["taskId"]
        headers = {
            "MCP-Protocol-Version": NEWEST,
            "Mcp-Method": "tasks/get",
            "Mcp-Name": id,
        }
        while True:
            _, body = self.post("tasks/get", {"taskId": id, "_meta": META}, headers)
            if json.loads(body)["result"]["status"] == "completed":
                return
            time.sleep(0.01)


@contextmanager
def running() -> Iterator[Client]:
    """Run a Redis and a server, and yield a client."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        spec = Path(folder) / "sizing_server.py"
        spec.write_text(SERVER)
        redis_port = free_port()
        options = ["--port", str(redis_port), "--bind", "127.0.0.1", "--dir", folder]
        options += ["--appendonly", "yes", "--save", ""]
        redis = ["redis-server", *options]
        stack.enter_context(running_server(redis, redis_port))
        port = free_port()
        server = [sys.executable, "-m", "mcp_trio", "run", str(spec)]
        server += ["--http", f"127.0.0.1:{port}", "--log-level", "error"]
        server += ["--store", f"redis://127.0.0.1:{redis_port}/0"]
        pid = stack.enter_context(running_server(server, port))
        yield Client(port, pid, RedisInfo(redis_port))


@dataclass
class Costs:
    """What each thing costs, by name."""

    found: dict[str, Reading] = field(default_factory=dict)
    # The memory of a process that has served a few calls.
    process_bytes: float = 0.0

    def measure(
        self, client: Client, name: str, act: Callable[[int], None], count: int
    ) -> None:
        """Do something so many times, and keep what one of them has used."""
        before = client.read()
        for number in range(count):
            act(number)
        time.sleep(0.2)  # what is stored after the response
        self.found[name] = client.read().each(before, count)


CALL = "a call in 2026-07-28"
OPENING = "opening a session"
IN_SESSION = "a call in a session"
STREAM = "a call whose response is a stream of 4 events"
GET = "opening a GET stream"
TASK = "a task, created and polled"
NOTHING = "a process that does nothing, a second"


def measure(times: int) -> Costs:
    """Measure everything, as often as that."""
    costs = Costs()
    with running() as client:
        for warm_up in (client.call, client.open_session, client.run_task):
            for number in range(50):
                warm_up(number)
        client.call_with_stream(0)
        costs.process_bytes = client.read().server_bytes
        costs.measure(client, CALL, client.call, 5 * times)
        client.sessions.clear()
        costs.measure(client, OPENING, client.open_session, times)
        costs.measure(client, IN_SESSION, client.call_in_session, 5 * times)
        costs.measure(client, STREAM, client.call_with_stream, times)
        costs.measure(client, GET, client.open_stream, times // 4)
        costs.measure(client, TASK, client.run_task, times // 2)
        for stream in client.streams:
            stream.close()
        time.sleep(1)
        before = client.read()
        time.sleep(IDLE)
        costs.found[NOTHING] = client.read().each(before, round(IDLE))
    return costs


# What a large deployment needs


@dataclass(frozen=True)
class Plan:
    """A large deployment."""

    sessions: int = 1_000_000
    calls: int = 100_000  # a second
    # The part of the calls whose response is a stream.
    streamed: float = 0.05
    # The part of the sessions with an open GET stream.
    listening: float = 0.1
    # How long a session lasts, and a task is kept, in seconds.
    session_seconds: float = 3600.0
    tasks: int = 100  # a second
    task_ttl: float = 3600.0
    # The part of a core that is used.
    used: float = 0.6


@dataclass(frozen=True)
class Need:
    """One line of what is needed."""

    what: str
    amount: str
    how: str


def needs(costs: Costs, plan: Plan) -> list[Need]:
    """Return what a deployment needs by these costs."""
    rates = {
        IN_SESSION: plan.calls * (1 - plan.streamed),
        STREAM: plan.calls * plan.streamed,
        OPENING: plan.sessions / plan.session_seconds,
        GET: plan.sessions * plan.listening / plan.session_seconds,
        TASK: float(plan.tasks),
    }

    def sum_of(name: str) -> float:
        total = 0.0
        for thing, rate in rates.items():
            cost: float = getattr(costs.found[thing], name)
            total += max(0.0, cost) * rate
        return total

    cores = sum_of("server_seconds")
    used_cores = math.ceil(cores / plan.used)
    processes = max(used_cores, math.ceil(plan.sessions / MOST_SESSIONS))
    opening = costs.found[OPENING]
    stream = costs.found[GET].server_bytes
    streams = plan.sessions * plan.listening
    held = plan.sessions * max(0.0, opening.server_bytes) + streams * stream
    idle = costs.found[NOTHING].operations * processes
    stored = plan.sessions * opening.redis_bytes
    stored += plan.tasks * plan.task_ttl * costs.found[TASK].redis_bytes
    logs = plan.calls * plan.streamed * 1800 * costs.found[STREAM].redis_bytes
    redis_cores = sum_of("redis_seconds")
    redis_cores += costs.found[NOTHING].redis_seconds * processes
    return [
        Need("cores of servers", f"{used_cores:,}", f"{cores:,.1f} busy ones"),
        Need("processes", f"{processes:,}", f"at most {MOST_SESSIONS:,} sessions each"),
        Need(
            "memory of servers",
            f"{(held + processes * costs.process_bytes) / 2**30:,.0f} GiB",
            "if a session is used at one process; each other one keeps a copy",
        ),
        Need(
            "operations of Redis",
            f"{sum_of('operations') + idle:,.0f}/s",
            f"{sum_of('redis_commands'):,.0f} commands, as scripts have several",
        ),
        Need("cores of Redis", f"{redis_cores:.2f}", "it uses one core for commands"),
        Need("memory of Redis", f"{stored / 2**30:,.1f} GiB", "sessions and tasks"),
        Need(
            "memory of Redis for streams",
            f"{logs / 2**30:,.1f} GiB",
            "if each is kept for 30 minutes; eight a session and process are",
        ),
        Need(
            "network of Redis",
            f"{8 * sum_of('redis_traffic') / 10**6:,.0f} Mbit/s",
            "both directions",
        ),
        Need(
            "network of servers",
            f"{8 * sum_of('client_traffic') / 10**6:,.0f} Mbit/s",
            "both directions, without TLS and TCP",
        ),
    ]


# The report


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def row(name: str, cost: Reading) -> list[str]:
    """Return the row of one thing."""
    return [
        name,
        f"{MICRO * cost.server_seconds:,.0f} µs",
        kept(cost.server_bytes),
        f"{cost.operations:.1f}",
        f"{cost.redis_commands:.1f}",
        f"{MICRO * cost.redis_seconds:,.0f} µs",
        kept(cost.redis_bytes),
        f"{cost.redis_traffic:,.0f}",
        f"{cost.client_traffic:,.0f}",
    ]


def kept(size: float) -> str:
    """Return bytes that are kept; a few are chance."""
    return f"{size:,.0f}" if size >= 50 else "0"


HEADING = [
    "",
    "CPU",
    "bytes kept",
    "Redis operations",
    "Redis commands",
    "Redis CPU",
    "bytes kept in Redis",
    "bytes to and from Redis",
    "bytes to and from the client",
]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sizing", description=__doc__
    )
    parser.add_argument(
        "--times", type=int, default=1000, help="how often to open a session (1000)"
    )
    options = parser.parse_args()
    if shutil.which("redis-server") is None:
        parser.error("not installed: redis-server")
    if sys.platform != "linux":
        parser.error("this needs Linux and its /proc")
    costs = measure(options.times)
    version = subprocess.run(
        ["redis-server", "--version"], capture_output=True, text=True, check=True
    )
    print(f"Python {sys.version.split()[0]}, {version.stdout.split(' sha')[0]}\n")
    print(table(HEADING, [row(*found) for found in costs.found.items()]))
    print(f"\nA process takes {costs.process_bytes / 2**20:.0f} MiB.")
    plan = Plan()
    print(f"\n{plan}\n")
    found = [[one.what, one.amount, one.how] for one in needs(costs, plan)]
    print(table(["", "needed", ""], found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
