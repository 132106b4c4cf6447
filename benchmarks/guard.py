"""Guards the fast paths: `python -m benchmarks.guard`.

It fails if one of them takes 7 % more instructions than are recorded here.

Costs are multiples of a floor in the same interpreter: of the floor's answer for calls
and progress messages, of `import trio, msgspec` for start-up, which is a process from
its start to its end. Instructions, which valgrind counts, do not depend on what else the
machine does. Time is compared within a wide margin, for what takes time without
instructions. After a change that alters costs on purpose, `--update` prints the lines to
put below.
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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec
import trio

from .contenders import PROJECT, SOURCES

# Python's version -> what is counted -> path -> its cost as a multiple of the floor's.
EXPECTED: dict[str, dict[str, dict[str, float]]] = {
    "3.11": {
        "time": {
            "async": 4.1,
            "waits": 14.7,
            "structured": 5.0,
            "progress": 3.5,
            "http": 27.3,
            "start-up": 1.3,
        },
        "instructions": {
            "async": 4.029,
            "waits": 8.788,
            "structured": 4.594,
            "progress": 1.385,
            "http": 12.049,
            "start-up": 1.179,
        },
    },
    "3.12": {
        "time": {
            "async": 4.1,
            "waits": 14.3,
            "structured": 5.0,
            "progress": 3.5,
            "http": 27.3,
            "start-up": 1.3,
        },
        "instructions": {
            "async": 3.951,
            "waits": 8.534,
            "structured": 4.462,
            "progress": 1.256,
            "http": 11.937,
            "start-up": 1.183,
        },
    },
    "3.13": {
        "time": {
            "async": 4.5,
            "waits": 13.5,
            "structured": 5.0,
            "progress": 3.5,
            "http": 27.3,
            "start-up": 1.3,
        },
        "instructions": {
            "async": 3.855,
            "waits": 8.278,
            "structured": 4.372,
            "progress": 1.251,
            "http": 11.499,
            "start-up": 1.204,
        },
    },
}
# How much more is too much. Time also has the machine's noise.
MARGINS = {"time": 1.6, "instructions": 1.07}
FLOOR = "floor"
IMPORT = "import"
FEW, MANY = 500, 2500
CLIENTS = 10
STEPS = 100  # progress messages a call
ROUNDS = 15
# Times that exceed their bounds are measured again, so often at most: the machine may
# have been busy with something else.
ATTEMPTS = 4
# The one request of a client that wants to see a server start.
OPENING = {
    "protocolVersion": "2025-11-25",
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


# The paths: each makes so many calls, in this process


async def floor(calls: int) -> None:
    """What next to no protocol costs."""
    from answers import answer  # type: ignore[import-not-found]

    for id in range(calls):
        answer(message("add", id))


async def total(a: int, b: int) -> int:
    """Add two numbers: a result with structured content."""
    return a + b


async def over_memory(tool: str, calls: int) -> None:
    """A conversation over memory, fifty messages at a time."""
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
            left = len(ids) * (STEPS + 1 if tool == "progress" else 1)
            while left:
                left -= len(await ours.receive())
        nursery.cancel_scope.cancel()


async def progress(messages: int) -> None:
    """Send progress messages, a hundred for each call."""
    await over_memory("progress", messages // STEPS)


async def over_http(calls: int) -> None:
    """Requests of the newest revision on ten connections, one at a time on each."""
    from server import server

    from mcp_trio.bench.target import request
    from mcp_trio.transports.http.server import serve_http

    asked = request(
        "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "2026-07-28"
    )
    head = (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + asked.head
    )
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
            for start in range(0, calls, CLIENTS):
                for id, client in enumerate(clients, start):
                    body = asked.message(id)
                    client.send(
                        b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
                    )
                for client in clients:
                    await reply_on(client)
        nursery.cancel_scope.cancel()


async def reply_on(client: socket.socket) -> bytes:
    """What comes first."""
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
}


# The processes: each is measured from its start to its end
PROCESSES: dict[str, Sequence[str]] = {
    IMPORT: ("-c", "import trio, msgspec"),
    "start-up": ("-m", "mcp_trio", "run", str(SOURCES / "mcp_trio" / "server.py")),
}


def start_process(words: Sequence[str], under: Sequence[str] = ()) -> None:
    """Run Python with one request on its standard input, and wait for its end."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    # Otherwise this would measure how long modules take to compile.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(
        [*under, sys.executable, *words],
        check=True,
        cwd=PROJECT,
        env=environment,
        input=request("initialize", 0, OPENING) + b"\n",
        stdout=subprocess.DEVNULL,
    )


# What they cost


def cost_in_time(bounds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of a call or a process: the least of some rounds, in turn.

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
    for name, words in PROCESSES.items():
        started = time.perf_counter()
        start_process(words)
        least[name] = min(least[name], time.perf_counter() - started)


def cost_in_instructions(valgrind: str) -> dict[str, float]:
    """Return the instructions of a call or a process.

    Those of a call are the difference between many calls and few, each in a process
    that was forked after all imports.
    """
    with tempfile.TemporaryDirectory() as folder:
        tool = [
            valgrind,
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            f"--log-file={folder}/%p",
        ]
        start_process(["-m", "benchmarks.guard", "--count", folder], tool)
        lines = (Path(folder) / "names").read_text().splitlines()
        pids = dict(line.split() for line in lines)
        counted = {name: instructions(Path(folder) / pid) for name, pid in pids.items()}
        costs = {
            name: (counted[f"{name}:{MANY}"] - counted[f"{name}:{FEW}"]) / (MANY - FEW)
            for name in PATHS
        }
        tool[-1] = f"--log-file={folder}/process"
        for name, words in PROCESSES.items():
            start_process(words, tool)
            costs[name] = instructions(Path(folder) / "process")
    return costs


def instructions(log: Path) -> int:
    """What valgrind says in the end of a process."""
    found = re.search(r"I\s+refs:\s+([\d,]+)", log.read_text())
    assert found is not None, log.read_text()
    return int(found[1].replace(",", ""))


def never_end_a_turn() -> None:
    """Let readers serve as long as there is work.

    A reader's turn ends after some milliseconds. Valgrind is so slow that it would end
    after almost every request, or not, by what else the machine does.
    """
    from mcp_trio.server import context, serve_conversation
    from mcp_trio.transports.http import connection, reader

    for module in (serve_conversation, connection, reader):
        module.TURN = float("inf")  # type: ignore[attr-defined]
    context.BURST = float("inf")


def count(folder: Path) -> None:
    """Run each path in a process of its own; which is whose log is written down."""
    if sys.platform == "win32":
        raise NotImplementedError("instructions are counted where processes can fork")
    never_end_a_turn()
    for path in PATHS.values():
        trio.run(path, 50)
    # Otherwise a collection that looks through all modules would be a tenth of a call's
    # cost, in some runs.
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
    """Compare with what is expected; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard", description=__doc__
    )
    parser.add_argument(
        "--update", action="store_true", help="print what is to be expected from now on"
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
            f"nothing is known of Python {version}: its costs are compared, within the "
            "wide margin, with another's"
        )
        margins = dict.fromkeys(MARGINS, MARGINS["time"])
    bounds = {name: cost * margins["time"] for name, cost in expected["time"].items()}
    costs = {"time": cost_in_time({} if options.update else bounds)}
    if valgrind := shutil.which("valgrind"):
        costs["instructions"] = cost_in_instructions(valgrind)
    else:
        print("there is no valgrind: time alone is compared, within a wide margin")
    multiples = {what: in_floors(cost) for what, cost in costs.items()}
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
    """Print each cost beside its bound. Returns 1 if one is exceeded."""
    failed = False
    for what, paths in multiples.items():
        for name, multiple in paths.items():
            bound = expected[what][name] * margins[what]
            verdict = "ok"
            if multiple > bound:
                verdict = "TOO EXPENSIVE"
                failed = True
            cost = costs[what][name]
            shown = f"{cost:,.0f} instructions"
            if what == "time":
                shown = f"{cost * 1e6:,.1f} µs"
            print(
                f"{name:<11}{shown:>26}: {multiple:6.2f} floors of at most "
                f"{bound:6.2f}: {verdict}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
