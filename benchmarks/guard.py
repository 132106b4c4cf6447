"""Guards the fast path: `python -m benchmarks.guard` fails if a call costs 7 % more instructions than is said here.

What a call costs is told as a multiple of what the floor's answer costs in the same interpreter: in instructions, which
do not depend on what else the machine does (valgrind counts them), and in time, within a wide margin, for what takes
time without instructions. After a change that is meant to cost or to save, `--update` prints what is to stand below.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec
import trio

from .contenders import PROJECT, SOURCES

# Python's version -> what is counted -> path -> its cost as a multiple of the floor's.
EXPECTED: dict[str, dict[str, dict[str, float]]] = {
    "3.11": {
        "time": {"async": 4.1, "waits": 14.7, "structured": 5.0, "http": 27.3},
        "instructions": {
            "async": 3.74,
            "waits": 12.66,
            "structured": 4.4,
            "http": 11.5,
        },
    },
    "3.12": {
        "time": {"async": 4.1, "waits": 14.3, "structured": 5.0, "http": 27.3},
        "instructions": {
            "async": 3.8,
            "waits": 12.19,
            "structured": 4.6,
            "http": 11.66,
        },
    },
    "3.13": {
        "time": {"async": 4.5, "waits": 13.5, "structured": 5.0, "http": 27.3},
        "instructions": {
            "async": 3.7,
            "waits": 11.81,
            "structured": 4.4,
            "http": 11.18,
        },
    },
}
# How much dearer is too much. In time there is the machine's noise too.
MARGINS = {"time": 1.6, "instructions": 1.07}
FLOOR = "floor"
FEW, MANY = 500, 2500
CLIENTS = 10
ROUNDS = 15


def message(tool: str, id: int) -> bytes:
    """A call."""
    arguments = {"name": tool, "arguments": {"a": 1, "b": 2}}
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": arguments}
    )


# The paths: each is so many calls, in this process


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
        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "guard", "version": "1"},
        }
        ours.send(
            msgspec.json.encode(
                {"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": opening}
            )
        )
        await ours.receive()
        for start in range(0, calls, 50):
            for id in range(start, start + 50):
                ours.send(message(tool, id))
            left = 50
            while left:
                left -= len(await ours.receive())
        nursery.cancel_scope.cancel()


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
    "http": over_http,
}


# What they cost


def cost_in_time() -> dict[str, float]:
    """Seconds a call: the least of some rounds, in turn."""
    least = dict.fromkeys(PATHS, float("inf"))
    for _ in range(ROUNDS):
        for name, path in PATHS.items():
            started = time.perf_counter()
            trio.run(path, MANY)
            least[name] = min(least[name], (time.perf_counter() - started) / MANY)
    return least


def cost_in_instructions(valgrind: str) -> dict[str, float]:
    """Instructions a call: many calls less few, each in a process that has imported all before it was forked."""
    with tempfile.TemporaryDirectory() as folder:
        counting = [sys.executable, "-m", "benchmarks.guard", "--count", folder]
        tool = [
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
            f"--log-file={folder}/%p",
        ]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        subprocess.run(
            [valgrind, *tool, *counting],
            check=True,
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        names = dict(
            line.split() for line in (Path(folder) / "names").read_text().splitlines()
        )
        counted = {
            name: instructions(Path(folder) / pid) for name, pid in names.items()
        }
    return {
        name: (counted[f"{name}:{MANY}"] - counted[f"{name}:{FEW}"]) / (MANY - FEW)
        for name in PATHS
    }


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
    from mcp_trio.server import serve_conversation
    from mcp_trio.transports.http import connection, reader

    for module in (serve_conversation, connection, reader):
        module.TURN = float("inf")  # type: ignore[attr-defined]


def count(folder: Path) -> None:
    """Run each path in a process of its own; which is whose log is written down."""
    never_end_a_turn()
    for path in PATHS.values():
        trio.run(path, 50)
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
    costs = {"time": cost_in_time()}
    if valgrind := shutil.which("valgrind"):
        costs["instructions"] = cost_in_instructions(valgrind)
    else:
        print("there is no valgrind: time alone is compared, within a wide margin")
    multiples = {
        what: {
            name: round(cost[name] / cost[FLOOR], 2) for name in PATHS if name != FLOOR
        }
        for what, cost in costs.items()
    }
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if options.update:
        print(f'    "{version}": {multiples},')
        return 0
    if version not in EXPECTED:
        print(
            f"nothing is known of Python {version}: its costs are compared, within the wide margin, with another's"
        )
    margins = (
        MARGINS if version in EXPECTED else dict.fromkeys(MARGINS, MARGINS["time"])
    )
    return compare(
        costs, multiples, EXPECTED.get(version, EXPECTED[max(EXPECTED)]), margins
    )


Table = dict[str, dict[str, float]]


def compare(
    costs: Table, multiples: Table, expected: Table, margins: dict[str, float]
) -> int:
    """Tell each path's cost beside what it may be; 1 where one is dearer."""
    failed = False
    for what, paths in multiples.items():
        for name, multiple in paths.items():
            most = expected[what][name] * margins[what]
            failed = failed or multiple > most
            cost = (
                f"{costs[what][name] * 1e6:,.1f} µs"
                if what == "time"
                else f"{costs[what][name]:,.0f} instructions"
            )
            verdict = "TOO DEAR" if multiple > most else "as it should be"
            print(
                f"{name:<11}{cost:>22} a call: {multiple:5.2f} floors of at most {most:5.2f}: {verdict}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
