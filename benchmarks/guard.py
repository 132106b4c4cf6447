"""Guards the fast paths: `python -m benchmarks.guard`.

It fails if one of them takes 7 % more instructions than recorded in this file.

Costs are multiples of a floor in the same interpreter. For calls and progress messages,
the floor is a bare answer. For start-up, which is a whole process, it is `import trio,
msgspec`. The number of instructions, which valgrind counts, does not depend on other
activity on the machine. Time does, so it has a wide margin; it shows costs that are not
instructions. After a change that is meant to alter the costs, run it with `--update`,
which prints the lines to put below.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .contenders.table import NEWEST, OLDER, PROJECT, SOURCES

if TYPE_CHECKING:
    from mcp_trio import Server
    from mcp_trio.bench.transports import LoadRequest

# Python version -> kind of cost -> path -> cost as a multiple of the floor's.
EXPECTED: dict[str, dict[str, dict[str, float]]] = {
    "3.11": {
        "time": {
            "async": 4.1,
            "waits": 14.7,
            "structured": 5.0,
            "progress": 3.5,
            "http": 25.0,
            "poll": 28.0,
            "start-up": 1.3,
        },
        "instructions": {
            "async": 3.976,
            "waits": 8.517,
            "structured": 4.594,
            "progress": 1.289,
            "http": 10.799,
            "poll": 11.956,
            "start-up": 1.179,
        },
    },
    "3.12": {
        "time": {
            "async": 4.1,
            "waits": 14.3,
            "structured": 5.0,
            "progress": 3.5,
            "http": 24.0,
            "poll": 26.5,
            "start-up": 1.3,
        },
        "instructions": {
            "async": 3.922,
            "waits": 8.269,
            "structured": 4.462,
            "progress": 1.14,
            "http": 10.599,
            "poll": 11.628,
            "start-up": 1.183,
        },
    },
    "3.13": {
        "time": {
            "async": 4.5,
            "waits": 13.5,
            "structured": 5.0,
            "progress": 3.5,
            "http": 25.0,
            "poll": 27.5,
            "start-up": 1.3,
        },
        "instructions": {
            "async": 3.854,
            "waits": 8.122,
            "structured": 4.372,
            "progress": 1.165,
            "http": 10.259,
            "poll": 11.236,
            "start-up": 1.204,
        },
    },
}
# How much more than recorded is allowed.
MARGINS = {"time": 1.6, "instructions": 1.07}
FLOOR = "floor"
IMPORT = "import"
FEW = 500
MANY = 2500
CLIENTS = 10
# Messages that the tool `progress` sends for each call.
STEPS = 100
ROUNDS = 15
# How many times costs in time that exceed their bounds are measured: the machine may have
# been busy with something else.
ATTEMPTS = 4
# The beginning of each HTTP request.
HTTP_HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
# The request that shows that a server has started.
OPENING = {
    "protocolVersion": OLDER,
    "capabilities": {},
    "clientInfo": {"name": "guard", "version": "1"},
}


def request(method: str, id: int, params: Mapping[str, object]) -> bytes:
    """Encode a request."""
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    )


def message(tool: str, id: int) -> bytes:
    """Encode a call."""
    params: dict[str, object] = {"name": tool, "arguments": {"a": 1, "b": 2}}
    if tool == "progress":
        params = {
            "name": tool,
            "arguments": {"n": STEPS},
            "_meta": {"progressToken": id},
        }
    return request("tools/call", id, params)


# The paths. Each is a function that makes a number of calls in this process.


async def floor(calls: int) -> None:
    """Answer calls with almost no protocol."""
    from answers import answer  # type: ignore[import-not-found]

    for id in range(calls):
        answer(message("add", id))


async def total(a: int, b: int) -> int:
    """Add two numbers. The result has structured content."""
    return a + b


async def over_memory(tool: str, calls: int) -> None:
    """Call a tool over memory streams, with up to fifty calls at once."""
    from server import server  # type: ignore[import-not-found]

    from mcp_trio.server.serve_conversation import serve_conversation
    from mcp_trio.transports.memory import memory_pair

    if "total" not in server.tools:
        server.add_tool(total)
    ours, theirs = memory_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_conversation, server, theirs)
        ours.send(request("initialize", -1, OPENING))
        await ours.receive()
        for start in range(0, calls, 50):
            ids = range(start, min(start + 50, calls))
            for id in ids:
                ours.send(message(tool, id))
            expected = len(ids)
            if tool == "progress":
                expected *= STEPS + 1
            while expected:
                expected -= len(await ours.receive())
        nursery.cancel_scope.cancel()


async def progress(messages: int) -> None:
    """Send progress messages, a hundred for each call."""
    await over_memory("progress", messages // STEPS)


@asynccontextmanager
async def http_clients(server: Server[Any]) -> AsyncIterator[list[socket.socket]]:
    """Serve over HTTP in this process, and open ten connections."""
    from mcp_trio.transports.http.server import serve_http

    async with server.running(), trio.open_nursery() as nursery:
        serving = partial(serve_http, server, "127.0.0.1", 0, stopping=trio.Event())
        ((_, port),) = await nursery.start(serving)
        with ExitStack() as closing:
            clients = [
                closing.enter_context(socket.create_connection(("127.0.0.1", port)))
                for _ in range(CLIENTS)
            ]
            for client in clients:
                client.setblocking(False)
            yield clients
        nursery.cancel_scope.cancel()


async def send_in_turn(
    clients: Sequence[socket.socket], requests: Iterable[LoadRequest], number: int
) -> list[bytes]:
    """Send so many requests, one on each connection at a time. Returns the replies."""
    replies = []
    following = cycle(requests)
    for start in range(0, number, CLIENTS):
        for id, client in enumerate(clients, start):
            one = next(following)
            body = one.message(id)
            head = b"%b%bContent-Length: %d\r\n\r\n" % (HTTP_HEAD, one.head, len(body))
            client.send(head + body)
        replies = [await receive(client) for client in clients]
    return replies


async def over_http(calls: int) -> None:
    """Call a tool over HTTP, in the newest revision."""
    from server import server

    from mcp_trio.bench.target import request

    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    async with http_clients(server) as clients:
        await send_in_turn(clients, [request("tools/call", params, NEWEST)], calls)


async def poll(polls: int) -> None:
    """Poll tasks that have finished, over HTTP."""
    from mcp_trio import Server
    from mcp_trio.extensions.tasks import Tasks

    from .tasks import poll_requests, task_in, task_request

    server: Server[Any] = Server("guard", extensions=[Tasks()])

    @server.tool(task="required")
    async def job() -> str:
        return "done"

    create = task_request("tools/call", {"name": "job", "arguments": {}})
    async with http_clients(server) as clients:
        created = await send_in_turn(clients, [create], CLIENTS)
        ids = [task_in(body_of(reply))["taskId"] for reply in created]
        requests = poll_requests(ids)
        states: set[object] = set()
        while states != {"completed"}:
            replies = await send_in_turn(clients, requests, CLIENTS)
            states = {task_in(body_of(reply))["status"] for reply in replies}
        await send_in_turn(clients, requests, polls)


def body_of(response: bytes) -> bytes:
    """Return the body of a response that has arrived at once."""
    return response.partition(b"\r\n\r\n")[2]


async def receive(client: socket.socket) -> bytes:
    """Return the first bytes that arrive."""
    while True:
        await trio.lowlevel.checkpoint()
        with suppress(BlockingIOError):
            return client.recv(4096)


PATHS: dict[str, Callable[[int], Awaitable[None]]] = {
    FLOOR: floor,
    "async": partial(over_memory, "add"),
    "waits": partial(over_memory, "wait"),
    "structured": partial(over_memory, "total"),
    "progress": progress,
    "http": over_http,
    "poll": poll,
}


# The processes. Each is measured from its start to its end.
PROCESSES: dict[str, Sequence[str]] = {
    IMPORT: ("-c", "import trio, msgspec"),
    "start-up": ("-m", "mcp_trio", "run", str(SOURCES / "mcp_trio" / "server.py")),
}


def run_python(arguments: Sequence[str], tool: Sequence[str] = ()) -> None:
    """Run Python, under a tool such as valgrind, with one request on its input."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    # With it, this would measure how long modules take to compile.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(
        [*tool, sys.executable, *arguments],
        check=True,
        cwd=PROJECT,
        env=environment,
        input=request("initialize", 0, OPENING) + b"\n",
        stdout=subprocess.DEVNULL,
    )


# The costs.


def cost_in_time(bounds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each path and process: the minimum of some rounds.

    There are more rounds if a cost, as a multiple of the floor, exceeds its bound.
    """
    least = dict.fromkeys([*PATHS, *PROCESSES], float("inf"))
    for _ in range(ATTEMPTS):
        for _ in range(ROUNDS):
            time_once(least)
        multiples = in_floors(least)
        if all(multiples[name] <= bound for name, bound in bounds.items()):
            break
    return least


def time_once(least: dict[str, float]) -> None:
    """Measure each path and process once; keep the times that are less than before."""
    for name, path in PATHS.items():
        started = time.perf_counter()
        trio.run(path, MANY)
        least[name] = min(least[name], (time.perf_counter() - started) / MANY)
    for name, arguments in PROCESSES.items():
        started = time.perf_counter()
        run_python(arguments)
        least[name] = min(least[name], time.perf_counter() - started)


def cost_in_instructions(valgrind: str) -> dict[str, float]:
    """Return the instructions of each path and process.

    The instructions of a call are the difference between many and few calls, each made
    in a process that was forked after all imports.
    """
    with tempfile.TemporaryDirectory() as folder:
        tool = [
            valgrind,
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            f"--log-file={folder}/%p",
        ]
        run_python(["-m", "benchmarks.guard", "--count", folder], tool)
        lines = (Path(folder) / "names").read_text().splitlines()
        pids = dict(line.split() for line in lines)
        costs = {}
        for name in PATHS:
            many = instructions(Path(folder) / pids[f"{name}:{MANY}"])
            few = instructions(Path(folder) / pids[f"{name}:{FEW}"])
            costs[name] = (many - few) / (MANY - FEW)
        tool[-1] = f"--log-file={folder}/process"
        for name, arguments in PROCESSES.items():
            run_python(arguments, tool)
            costs[name] = instructions(Path(folder) / "process")
    return costs


def instructions(log: Path) -> int:
    """Return the number at the end of valgrind's log of a process."""
    match = re.search(r"I\s+refs:\s+([\d,]+)", log.read_text())
    assert match is not None, log.read_text()
    return int(match[1].replace(",", ""))


def make_turns_endless() -> None:
    """Let readers serve without a limit on time.

    Usually a reader's turn ends after some milliseconds. Under valgrind, that would be
    after about one request, and depend on other activity on the machine.
    """
    from mcp_trio.server import context, serve_conversation
    from mcp_trio.transports.http import connection, reader

    for module in (serve_conversation, connection, reader):
        module.TURN = float("inf")  # type: ignore[attr-defined]
    context.BURST = float("inf")


def count(folder: Path) -> None:
    """Run each path in forked processes, and record their ids in the file `names`."""
    if sys.platform == "win32":
        raise NotImplementedError("counting instructions needs processes that can fork")
    make_turns_endless()
    for path in PATHS.values():
        trio.run(path, 50)
    # Without this, a garbage collection that visits all modules makes up a tenth of a
    # call's cost in some runs.
    gc.freeze()
    for name, path in PATHS.items():
        for calls in (FEW, MANY):
            pid = os.fork()
            if pid == 0:
                trio.run(path, calls)
                os._exit(0)
            os.waitpid(pid, 0)
            with (folder / "names").open("a") as names:
                names.write(f"{name}:{calls} {pid}\n")


def main() -> int:
    """Compare the costs with those recorded. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__
    )
    parser.add_argument(
        "--update", action="store_true", help="print the current costs, to record them"
    )
    parser.add_argument("--count", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(SOURCES / "mcp_trio"), str(SOURCES / "floors")]
    if options.count:
        count(options.count)
        return 0
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    expected = EXPECTED.get(version, EXPECTED[max(EXPECTED)])
    margins = MARGINS
    if version not in EXPECTED:
        print(
            f"no costs are recorded for Python {version}: "
            f"those of {max(EXPECTED)} are used, with a wide margin"
        )
        margins = dict.fromkeys(MARGINS, MARGINS["time"])
    bounds = {name: cost * margins["time"] for name, cost in expected["time"].items()}
    costs = {"time": cost_in_time({} if options.update else bounds)}
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("no `valgrind` on the PATH: only time is compared, with a wide margin")
    else:
        costs["instructions"] = cost_in_instructions(valgrind)
    multiples = {kind: in_floors(cost) for kind, cost in costs.items()}
    if options.update:
        print(f'    "{version}": {multiples},')
        return 0
    return compare(costs, multiples, expected, margins)


def in_floors(costs: dict[str, float]) -> dict[str, float]:
    """Return costs as multiples of the floors."""
    multiples = {}
    for name, cost in costs.items():
        floor = IMPORT if name in PROCESSES else FLOOR
        if name != floor:
            multiples[name] = round(cost / costs[floor], 3)
    return multiples


Table = dict[str, dict[str, float]]


def compare(
    costs: Table, multiples: Table, expected: Table, margins: dict[str, float]
) -> int:
    """Print each cost and its bound. Returns 1 if a cost exceeds its bound."""
    failed = False
    for kind, paths in multiples.items():
        for name, multiple in paths.items():
            bound = expected[kind][name] * margins[kind]
            verdict = "ok"
            if multiple > bound:
                verdict = "TOO EXPENSIVE"
                failed = True
            cost = costs[kind][name]
            shown = f"{cost:,.0f} instructions"
            if kind == "time":
                shown = f"{cost * 1e6:,.1f} µs"
            print(
                f"{name:<11}{shown:>26}: {multiple:6.2f} floors, at most "
                f"{bound:6.2f}: {verdict}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
