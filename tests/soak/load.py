"""A mixed load on one server process, over all transports at once.

The clients call, flood, stall, cancel, disconnect and reconnect, over stdio, HTTP with
and without sessions, HTTP+SSE and WebSocket. A client that stays must get all its
replies. At the end the process must hold no more than before: memory, descriptors,
tasks, threads, sessions, streams, requests, temporary files. Its log must have nothing
above a warning.

The load is bounded: a number of clients, each with a pause after every action.
"""

import argparse
import json
import math
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

from mcp_trio.client.event_parser import EventParser, ServerSentEvent
from mcp_trio.transports.stdio import StdioWire, open_wire
from tests.support import http_wire
from tests.support.checked import cancelled, initialize, modern
from tests.support.http_wire import (
    HEADERS,
    Site,
    Wire,
    make_server,
    message,
    modern_headers,
    request,
)
from tests.support.paths import PROJECT, TESTS

SERVED = TESTS / "soak" / "served.py"
CLIENTS = 24
# The average seconds between two actions of a client.
PAUSE = 0.02
# The seconds that a reply may take on a busy machine.
TIMEOUT = 30.0
# The seconds without clients before the first measurement.
IDLE = 13.0
# The seconds until everything that clients left behind must be gone.
SETTLE = 30.0
OLD = "2025-11-25"
OLDER = "2025-03-26"
OLDEST = "2024-11-05"
DISCONNECTED = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
GAUGES = re.compile(
    r"^(mcp_sessions|mcp_streams|mcp_requests_in_flight) (\d+)$", re.MULTILINE
)
ABOVE_WARNING = re.compile(rb"\b(ERROR|CRITICAL)\b|^Traceback", re.IGNORECASE)
# How much each number may grow. The allocator does not return all memory, and some
# objects come and go.
ALLOWED_GROWTH = {
    "memory": 8 * 2**20,
    "tasks": 0,
    "threads": 0,
    "objects": 5_000,
    "descriptors": 0,
}


class Soak:
    """The server, the requests it got, and what went wrong."""

    def __init__(self, process: trio.Process, port: int, seed: int) -> None:
        self.site = Site(make_server(), port, trio.Event())
        self.random = random.Random(seed)
        self.asked = 0
        self.owed = 0
        self.stopping = False
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.log: list[bytes] = []
        self._process = process

    def check_alive(self) -> None:
        """Raise RuntimeError if the server has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(
                f"the server has ended: {self._process.returncode}; {self.failures[:5]}"
            )

    # What the process holds

    @property
    def memory(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    async def measure(self) -> dict[str, int]:
        """Return everything that must not grow."""
        reply = await self.site.modern(
            "tools/call", {"name": "held", "arguments": {}}, Connection="close"
        )
        numbers: dict[str, int] = dict(reply.json["result"]["structuredContent"])
        metrics = await self.site.send("GET", "/metrics", {"Connection": "close"})
        for name, count in GAUGES.findall(metrics.body.decode()):
            numbers[name] = int(count)
        numbers["descriptors"] = self.descriptors
        numbers["memory"] = self.memory
        return numbers

    async def measure_when_settled(self, before: dict[str, int]) -> dict[str, int]:
        """Return the same as soon as it has not grown, or after a timeout."""
        deadline = trio.current_time() + SETTLE
        after = await self.measure()
        while compare(before, after) and trio.current_time() < deadline:
            await trio.sleep(0.5)
            after = await self.measure()
        return after

    # Requests and replies

    def expect(self, reply: Any, text: str | None = None) -> None:
        """Check a reply that was owed. `text` is the text of its result."""
        assert "result" in reply, reply
        if text is not None:
            assert reply["result"]["content"][0]["text"] == text, reply
        self.owed -= 1

    def owe(self, count: int = 1) -> None:
        self.asked += count
        self.owed += count

    async def work(self, stdio: "Stdio") -> None:
        """Run one client after the other."""
        kinds: list[Any] = [*KINDS, partial(over_stdio, stdio=stdio)]
        while not self.stopping:
            kind = self.random.choice(kinds)
            name = getattr(kind, "__name__", "over_stdio")
            try:
                with trio.fail_after(TIMEOUT):
                    await kind(self)
                self.done[name] += 1
            # It is reported, and the other clients continue.
            except Exception as problem:
                self.failures.append(f"{name}: {problem!r}"[:500])
                await trio.sleep(1)
            await trio.sleep(self.random.random() * 2 * PAUSE)


def call(name: str, arguments: Any, id: Any = 1, *, progress: bool = False) -> Any:
    meta = {"progressToken": f"of {id}"} if progress else {}
    return modern(
        id, "tools/call", {"name": name, "arguments": arguments, "_meta": meta}
    )


def posted(body: Any, headers: dict[str, str] | None = None) -> bytes:
    return request(
        "POST", "/mcp", headers or modern_headers(body), json.dumps(body).encode()
    )


def vanish(wire: Wire) -> None:
    """Close the connection with a reset, as if the client had been killed."""
    wire.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# HTTP without sessions


async def calls(soak: Soak) -> None:
    """Send many calls on a connection, one at a time."""
    async with soak.site.wire() as wire:
        for number in range(soak.random.randrange(1, 30)):
            soak.owe()
            await wire.send(posted(call("add", {"a": number, "b": 1})))
            soak.expect((await wire.response()).json, str(number + 1))


async def floods(soak: Soak) -> None:
    """Send many calls at once."""
    count = soak.random.randrange(100, 400)
    async with soak.site.wire() as wire, trio.open_nursery() as nursery:
        soak.owe(count)
        nursery.start_soon(
            wire.send,
            b"".join(posted(call("echo", {"text": str(n)})) for n in range(count)),
        )
        for number in range(count):
            soak.expect((await wire.response()).json, str(number))


async def large(soak: Soak) -> None:
    text = "x" * soak.random.randrange(1, 300_000)
    soak.owe()
    body = call("echo", {"text": text})
    soak.expect((await soak.site.post(body, modern_headers(body))).json, text)


async def in_threads(soak: Soak) -> None:
    soak.owe()
    body = call("block", {"seconds": 0.01})
    soak.expect((await soak.site.post(body, modern_headers(body))).json, "blocked")


async def streams(soak: Soak) -> None:
    """Read progress, and then the result, from a stream."""
    soak.owe()
    body = call("steps", {"count": 20}, progress=True)
    *progress, last = (await soak.site.post(body, modern_headers(body))).messages
    assert len(progress) == 20
    soak.expect(last, "20 steps")


async def stalls(soak: Soak) -> None:
    """Send a request slowly, and read the replies late."""
    async with soak.site.wire() as wire:
        data = posted(call("echo", {"text": "x" * 200_000})) * 3
        soak.owe(3)
        await wire.send(data[:50])
        await trio.sleep(soak.random.random())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, data[50:])
            await trio.sleep(soak.random.random() * 2)
            for _ in range(3):
                soak.expect((await wire.response()).json)


async def vanishes(soak: Soak) -> None:
    """Disconnect in the head, in the body, during a call, in a stream, in a flood."""
    ends = [
        posted(call("wait", {"seconds": 30}))[:40],
        posted(call("wait", {"seconds": 30}))[:-10],
        posted(call("wait", {"seconds": 30})),
        posted(call("steps", {"count": 1_000, "seconds": 0.01}, progress=True)),
        posted(call("steps", {"count": 100_000}, progress=True)),
        posted(call("echo", {"text": "x" * 300_000})) * 5,
        posted(call("add", {"a": 1, "b": 2})) * 100,
        posted(call("block", {"seconds": 0.05})) * 3,
        os.urandom(300),
    ]
    async with soak.site.wire() as wire:
        soak.asked += 1
        with suppress(*DISCONNECTED), trio.move_on_after(soak.random.random() * 0.2):
            # This may wait until the client reads replies.
            await wire.stream.send_all(soak.random.choice(ends))
            await trio.sleep(soak.random.random() * 0.1)
        if soak.random.random() < 0.5:
            vanish(wire)


async def is_refused(soak: Soak) -> None:
    """Send messages and requests that are refused."""
    refused: list[tuple[bytes, int]] = [
        (posted({"no": "message"}, HEADERS), 400),
        (request("POST", "/mcp", {**HEADERS, "Host": "evil.example"}, b"{}"), 421),
        (request("GET", "/nowhere"), 404),
        (request("POST", "/mcp", {**HEADERS, "Content-Length": "5, 5"}, b"{}"), 400),
        (request("POST", "/mcp", {**HEADERS, "Mcp-Session-Id": "none"}, b"{}"), 404),
    ]
    data, status = soak.random.choice(refused)
    async with soak.site.wire() as wire:
        soak.asked += 1
        await wire.send(data)
        assert (await wire.response()).status == status


# HTTP with sessions


async def session(soak: Soak) -> None:
    """Open a session and use it. Some clients end it, others leave."""
    site = soak.site
    version = soak.random.choice([OLD, OLDER])
    headers = await site.open_session(version)
    for number in range(soak.random.randrange(8)):
        soak.owe()
        body = message(
            "tools/call", {"name": "add", "arguments": {"a": number, "b": 1}}
        )
        soak.expect((await site.post(body, headers)).json, str(number + 1))
    async with site.wire() as wire:
        await wire.send(request("GET", "/mcp", headers))
        assert (await wire.head()).status == 200
        if soak.random.random() < 0.5:
            vanish(wire)
    if soak.random.random() < 0.5:
        assert (await site.send("DELETE", "/mcp", headers)).status == 204


async def cancels(soak: Soak) -> None:
    """Cancel a request in a session. It gets no result, and the session remains."""
    site = soak.site
    headers = await site.open_session(OLD)
    async with site.wire() as wire:
        await wire.send(
            posted(
                message(
                    "tools/call", {"name": "wait", "arguments": {"seconds": 30}}, 7
                ),
                headers,
            )
        )
        soak.asked += 1
        await trio.sleep(soak.random.random() * 0.05)
        notification = message("notifications/cancelled", {"requestId": 7})
        del notification["id"]
        response = None
        while response is None:
            # On another connection, it may arrive before its request, and is ignored.
            assert (await site.post(notification, headers)).status == 202
            with trio.move_on_after(1):
                response = await wire.response()
        assert b'"result"' not in response.body, response.body
    soak.owe()
    soak.expect((await site.post(message("ping"), headers)).json)


async def comes_back(soak: Soak) -> None:
    """Disconnect in a stream, and resume after the last event."""
    site = soak.site
    headers, parser = await site.open_session(OLD), EventParser()
    body = message(
        "tools/call", {"name": "steps", "arguments": {"count": 10, "seconds": 0.02}}
    )
    body["params"]["_meta"] = {"progressToken": 1}
    soak.owe()
    async with site.wire() as wire:
        await wire.send(posted(body, headers))
        await wire.head()
        events = list[ServerSentEvent]()
        while not events:
            events = parser.feed(await wire.chunk())
        vanish(wire)
    async with site.wire() as wire:
        await wire.send(
            request("GET", "/mcp", {**headers, "Last-Event-ID": events[0].id})
        )
        await wire.head()
        parser, messages = EventParser(), list[Any]()
        while not messages or "result" not in messages[-1]:
            events = parser.feed(await wire.chunk())
            messages += [json.loads(event.data) for event in events if event.data]
    soak.expect(messages[-1], "10 steps")


async def over_sse(soak: Soak) -> None:
    """Use HTTP+SSE: send messages by POST, and read replies from the GET stream."""
    site = soak.site
    async with site.wire() as wire:
        parser = EventParser()
        await wire.send(request("GET", "/sse", {"Accept": "text/event-stream"}))
        await wire.head()
        path = (await wire.event(parser)).data
        count = soak.random.randrange(1, 10)
        soak.owe(count)
        bodies = [
            message("tools/call", {"name": "echo", "arguments": {"text": str(n)}})
            for n in range(count)
        ]
        replies = list[Any]()
        for body in [initialize(OLDEST), *bodies]:
            assert (
                await site.send("POST", path, HEADERS, json.dumps(body).encode())
            ).status == 202
            while not replies:
                replies += [
                    json.loads(event.data) for event in parser.feed(await wire.chunk())
                ]
            reply = replies.pop(0)
            if (
                body is not bodies[0]
                and "params" in body
                and "arguments" not in body["params"]
            ):
                continue
            soak.expect(reply, body["params"]["arguments"]["text"])
        if soak.random.random() < 0.5:
            wait = message("tools/call", {"name": "wait", "arguments": {"seconds": 30}})
            await site.send("POST", path, HEADERS, json.dumps(wait).encode())
            vanish(wire)


# WebSocket


@asynccontextmanager
async def websocket(soak: Soak) -> AsyncIterator[tuple[WebSocketConnection, Wire]]:
    async with soak.site.wire() as wire, trio.open_nursery() as nursery:
        limits: dict[str, Any] = {
            "max_message_size": 2**24,
            "message_queue_size": math.inf,
        }
        yield (
            await wrap_client_stream(
                nursery,
                wire.stream,
                "localhost",
                "/mcp",
                subprotocols=["mcp"],
                **limits,
            ),
            wire,
        )
        await trio.aclose_forcefully(wire.stream)
        nursery.cancel_scope.cancel()


async def over_websocket(soak: Soak) -> None:
    count = soak.random.randrange(1, 200)
    async with websocket(soak) as (client, _):
        soak.owe(count)
        for number in range(count):
            await client.send_message(
                json.dumps(call("echo", {"text": str(number)}, number))
            )
        for _ in range(count):
            reply = json.loads(await client.get_message())
            soak.expect(reply, str(reply["id"]))
        if soak.random.random() < 0.5:
            await client.aclose()


async def cancels_over_websocket(soak: Soak) -> None:
    async with websocket(soak) as (client, wire):
        soak.asked += 20
        for number in range(20):
            await client.send_message(json.dumps(call("wait", {"seconds": 30}, number)))
        for number in range(10):
            await client.send_message(json.dumps(cancelled(number)))
        soak.owe()
        await client.send_message(json.dumps(call("add", {"a": 1, "b": 2}, "sum")))
        reply = json.loads(await client.get_message())
        assert reply["id"] == "sum", reply
        soak.expect(reply, "3")
        vanish(wire)


async def vanishes_from_websocket(soak: Soak) -> None:
    async with websocket(soak) as (client, wire):
        soak.asked += 50
        for number in range(50):
            await client.send_message(
                json.dumps(call("echo", {"text": "x" * 20_000}, number))
            )
        if soak.random.random() < 0.5:
            await wire.stream.send_all(b"\x81\xfe\x00")
        vanish(wire)


# stdio: one connection, which all clients share


class Stdio:
    """The connection over stdio, and the clients that wait for replies on it."""

    def __init__(self, wire: StdioWire) -> None:
        self._wire = wire
        self._waiting: dict[int, tuple[trio.Event, list[Any]]] = {}
        self._last = 0

    async def read(self) -> None:
        while messages := await self._wire.receive():
            for one in messages:
                reply = json.loads(one or b"{}")
                if reply.get("id") in self._waiting:
                    event, replies = self._waiting[reply["id"]]
                    replies.append(reply)
                    event.set()

    def ask(self, name: str, arguments: Any, *, progress: bool = False) -> int:
        self._last += 1
        self._waiting[self._last] = trio.Event(), []
        self._wire.send(
            json.dumps(call(name, arguments, self._last, progress=progress)).encode()
        )
        self._wire.flush()
        return self._last

    def say(self, message: Any) -> None:
        self._wire.send(json.dumps(message).encode())
        self._wire.flush()

    async def reply(self, id: int) -> Any:
        event, replies = self._waiting[id]
        await event.wait()
        del self._waiting[id]
        return replies[0]

    def forget(self, id: int) -> None:
        _, replies = self._waiting.pop(id)
        assert replies == [], replies


async def over_stdio(soak: Soak, *, stdio: Stdio) -> None:
    """Send calls, floods, large messages, bad messages and cancellations."""
    count = soak.random.choice([1, 5, 300])
    soak.owe(count)
    ids = [stdio.ask("echo", {"text": str(number)}) for number in range(count)]
    for number, id in enumerate(ids):
        soak.expect(await stdio.reply(id), str(number))
    text = "x" * soak.random.randrange(200_000)
    soak.owe(2)
    echo = stdio.ask("echo", {"text": text})
    steps = stdio.ask("steps", {"count": 5}, progress=True)
    soak.expect(await stdio.reply(echo), text)
    soak.expect(await stdio.reply(steps), "5 steps")
    waits = [stdio.ask("wait", {"seconds": 30}) for _ in range(5)]
    soak.asked += 5
    for id in waits:
        stdio.say(cancelled(id))
    stdio.say({"no": "message"})
    soak.owe()
    soak.expect(await stdio.reply(stdio.ask("add", {"a": 1, "b": 2})), "3")
    for id in waits:
        stdio.forget(id)


KINDS: list[Callable[[Soak], Awaitable[None]]] = [
    *(
        calls,
        floods,
        large,
        in_threads,
        streams,
        stalls,
        vanishes,
        vanishes,
        is_refused,
    ),
    *(session, session, cancels, comes_back, over_sse, over_sse),
    *(over_websocket, cancels_over_websocket, vanishes_from_websocket),
]


# The whole run


@asynccontextmanager
async def serving(temporary: str, seed: int) -> AsyncIterator[tuple[Soak, Stdio]]:
    """Run the server on all transports, with a client on stdio."""
    (reading, to_server), (from_server, writing) = os.pipe(), os.pipe()
    command = [
        sys.executable,
        "-m",
        "mcp_trio",
        "run",
        str(SERVED),
        "--stdio",
        "--http",
        "0",
    ]
    command += ["--log-level", "warning"]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MCP_TRIO_")
    }
    environment |= {"TMPDIR": temporary, "PYTHONPATH": str(PROJECT)}
    pipes: dict[str, Any] = {
        "stdin": reading,
        "stdout": writing,
        "stderr": subprocess.PIPE,
    }
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(command, env=environment, **pipes)
        os.close(reading)
        os.close(writing)
        log = b""
        while not log.endswith(b"/mcp\n"):
            log += await process.stderr.receive_some()
        port = int(log.rpartition(b":")[2].partition(b"/")[0])
        soak = Soak(process, port, seed)
        nursery.start_soon(read_log, soak, process)
        try:
            async with open_wire(from_server, to_server) as wire:
                stdio = Stdio(wire)
                nursery.start_soon(stdio.read)
                yield soak, stdio
            os.close(to_server)
            with trio.move_on_after(10) as stopping:
                await process.wait()
            if stopping.cancelled_caught or process.returncode:
                soak.failures.append(
                    f"the server did not end with its input: {process.returncode}"
                )
        finally:
            os.close(from_server)
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            nursery.cancel_scope.cancel()


async def read_log(soak: Soak, process: trio.Process) -> None:
    rest = b""
    async for piece in process.stderr:
        *lines, rest = (rest + piece).split(b"\n")
        soak.log += lines


async def under_load(soak: Soak, stdio: Stdio, seconds: float) -> None:
    """Run clients for some seconds, and wait until all of them have finished."""
    soak.stopping = False
    async with trio.open_nursery() as reporting:
        reporting.start_soon(report, soak)
        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(soak.work, stdio)
            await trio.sleep(seconds)
            soak.stopping = True
        reporting.cancel_scope.cancel()


async def report(soak: Soak) -> None:
    """Print the progress each second."""
    started = trio.current_time()
    before = soak.asked
    while True:
        await trio.sleep(1)
        soak.check_alive()
        seconds = trio.current_time() - started
        rate = (soak.asked - before) / seconds
        print(
            f"{seconds:4.0f} s  {soak.asked:>9,} requests  {rate:6,.0f}/s  "
            f"{soak.memory / 2**20:6.1f} MB  {soak.descriptors:3} descriptors  "
            f"{len(soak.failures)} failures",
            flush=True,
        )


def compare(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Return what has grown beyond what is allowed."""
    problems = []
    for name, count in after.items():
        allowed = before[name] + ALLOWED_GROWTH.get(name, 0)
        # No sessions, streams or requests may be left.
        if name.startswith("mcp_"):
            allowed = 0
        if count > allowed:
            problems.append(
                f"{name}: {before[name]:,} before, {count:,} after, "
                f"at most {allowed:,} are allowed"
            )
    return problems


async def run_soak(seconds: float, seed: int = 1) -> list[str]:
    """Warm up, run the load, and return all problems."""
    http_wire.PATIENCE = TIMEOUT
    with tempfile.TemporaryDirectory() as temporary:
        async with serving(temporary, seed) as (soak, stdio):
            warm_up = min(max(seconds * 0.2, 3), 60)
            print(f"warm-up: {warm_up:.0f} s", flush=True)
            await under_load(soak, stdio, warm_up)
            await trio.sleep(IDLE)
            # The first measurement itself creates objects, which the second one counts.
            await soak.measure()
            before = await soak.measure()
            started = time.monotonic()
            await under_load(soak, stdio, seconds)
            took = time.monotonic() - started
            after = await soak.measure_when_settled(before)
        files = sorted(os.listdir(temporary))
    loud = [
        line.decode(errors="replace") for line in soak.log if ABOVE_WARNING.search(line)
    ]
    print(
        f"{soak.asked:,} requests, {soak.done.total():,} clients, "
        f"in {took:.0f} s after the warm-up"
    )
    clients = [f"{name} {count:,}" for name, count in sorted(soak.done.items())]
    print(f"  {', '.join(clients)}")
    for name, count in before.items():
        print(f"  {name:>24}: {count:>12,} before, {after[name]:>12,} after")
    print(
        f"  {'temporary files':>24}: {len(files)}; "
        f"lines of log: {len(soak.log)}, above a warning: {len(loud)}"
    )
    if soak.owed and not soak.failures:
        soak.failures.append(f"{soak.owed} replies are missing")
    for line, count in Counter(
        re.sub(rb"[0-9a-f]{8}|\d+", b"N", line) for line in soak.log
    ).most_common(5):
        print(f"    {count} of {line.decode(errors='replace')[:120]}")
    problems = compare(before, after) + soak.failures[:20] + loud[:20]
    if files:
        problems.append(f"temporary files are left: {files}")
    return problems


def main() -> int:
    """Run the soak with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    problems = trio.run(run_soak, options.minutes * 60, options.seed)
    for problem in problems:
        print("WRONG:", problem)
    return int(bool(problems))
