"""A mixed load on one server process, over every transport at once, by clients as they are.

They call, flood, stall, cancel, vanish and come back, over stdio, HTTP in both eras, HTTP+SSE and WebSocket. What a
client that stays is owed must come. In the end the process must hold what it held before: memory, descriptors, tasks,
threads, sessions, streams, requests, temporary files; and have had nothing to log above a warning.

The load is bounded: so many clients at once, each with a pause between what it does.
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
CLIENTS, PAUSE = 24, 0.02
PATIENCE = 30.0  # seconds for a reply: of a machine that does other things too
IDLE, SETTLE = (
    13.0,
    30.0,
)  # seconds without a client, and in which all that clients have left has to be gone
OLD, OLDER, OLDEST = "2025-11-25", "2025-03-26", "2024-11-05"
GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
LOUD = re.compile(rb"\b(ERROR|CRITICAL)\b|^Traceback", re.IGNORECASE)
# How much more there may be in the end: what the allocator has not given back, and counters of things that come and go.
MORE_MEMORY, MORE = (
    8 * 2**20,
    {"tasks": 0, "threads": 0, "objects": 5_000, "descriptors": 0},
)


class Soak:
    """The server, what was asked of it, and what went wrong."""

    def __init__(self, process: trio.Process, port: int, seed: int) -> None:
        self.there = Site(make_server(), port, trio.Event())
        self.random = random.Random(seed)
        self.asked = 0
        self.owed = 0
        self.stopping = False
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.log: list[bytes] = []
        self._process = process

    def is_there(self) -> None:
        """Raises RuntimeError where the server has ended: there is nothing more to look at."""
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

    async def holds(self) -> dict[str, int]:
        """All that is to be as it was."""
        reply = await self.there.modern(
            "tools/call", {"name": "held", "arguments": {}}, Connection="close"
        )
        text = (
            await self.there.send("GET", "/metrics", {"Connection": "close"})
        ).body.decode()
        gauges = re.findall(
            r"^(mcp_sessions|mcp_streams|mcp_requests_in_flight) (\d+)$",
            text,
            re.MULTILINE,
        )
        found = {
            **reply.json["result"]["structuredContent"],
            **{name: int(count) for name, count in gauges},
        }
        return {**found, "descriptors": self.descriptors, "memory": self.memory}

    async def holds_at_last(self, before: dict[str, int]) -> dict[str, int]:
        """The same, as soon as it is no more than before, or when what clients have left has to be gone."""
        deadline = trio.current_time() + SETTLE
        while (
            compared(before, after := await self.holds())
            and trio.current_time() < deadline
        ):
            await trio.sleep(0.5)
        return after

    # What is asked

    def expect(self, reply: Any, wanted: str | None = None) -> None:
        """A reply that was owed has come; `wanted` is its text."""
        assert "result" in reply, reply
        if wanted is not None:
            assert reply["result"]["content"][0]["text"] == wanted, reply
        self.owed -= 1

    def owe(self, count: int = 1) -> None:
        self.asked += count
        self.owed += count

    async def work(self, stdio: "Stdio") -> None:
        """One client after the other."""
        kinds: list[Any] = [*KINDS, partial(over_stdio, stdio=stdio)]
        while not self.stopping:
            kind = self.random.choice(kinds)
            name = getattr(kind, "__name__", "over_stdio")
            try:
                with trio.fail_after(PATIENCE):
                    await kind(self)
                self.done[name] += 1
            except Exception as problem:  # it is told, and the others go on
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
    """Have the connection end as that of a client that is killed does: by a reset."""
    wire.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# HTTP without sessions


async def calls(soak: Soak) -> None:
    """Many on a connection."""
    async with soak.there.wire() as wire:
        for number in range(soak.random.randrange(1, 30)):
            soak.owe()
            await wire.send(posted(call("add", {"a": number, "b": 1})))
            soak.expect((await wire.response()).json, str(number + 1))


async def floods(soak: Soak) -> None:
    """All at once."""
    count = soak.random.randrange(100, 400)
    async with soak.there.wire() as wire, trio.open_nursery() as nursery:
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
    soak.expect(
        (
            await soak.there.post(
                body := call("echo", {"text": text}), modern_headers(body)
            )
        ).json,
        text,
    )


async def in_threads(soak: Soak) -> None:
    soak.owe()
    soak.expect(
        (
            await soak.there.post(
                body := call("block", {"seconds": 0.01}), modern_headers(body)
            )
        ).json,
        "blocked",
    )


async def streams(soak: Soak) -> None:
    """Progress, and then the result, in a stream."""
    soak.owe()
    body = call("steps", {"count": 20}, progress=True)
    *progress, last = (await soak.there.post(body, modern_headers(body))).messages
    assert len(progress) == 20
    soak.expect(last, "20 steps")


async def stalls(soak: Soak) -> None:
    """Begins slowly, and reads late."""
    async with soak.there.wire() as wire:
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
    """In its head, in its body, while its tool runs, in its stream, in a flood."""
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
    async with soak.there.wire() as wire:
        soak.asked += 1
        with suppress(*GONE), trio.move_on_after(soak.random.random() * 0.2):
            await wire.stream.send_all(
                soak.random.choice(ends)
            )  # which may wait for replies to be read
            await trio.sleep(soak.random.random() * 0.1)
        if soak.random.random() < 0.5:
            vanish(wire)


async def is_refused(soak: Soak) -> None:
    """What is no request, or not let in."""
    refused: list[tuple[bytes, int]] = [
        (posted({"no": "message"}, HEADERS), 400),
        (request("POST", "/mcp", {**HEADERS, "Host": "evil.example"}, b"{}"), 421),
        (request("GET", "/nowhere"), 404),
        (request("POST", "/mcp", {**HEADERS, "Content-Length": "5, 5"}, b"{}"), 400),
        (request("POST", "/mcp", {**HEADERS, "Mcp-Session-Id": "none"}, b"{}"), 404),
    ]
    data, status = soak.random.choice(refused)
    async with soak.there.wire() as wire:
        soak.asked += 1
        await wire.send(data)
        assert (await wire.response()).status == status


# HTTP with sessions


async def session(soak: Soak) -> None:
    """From its opening to its end, or as long as its client stays."""
    there, version = soak.there, soak.random.choice([OLD, OLDER])
    headers = await there.open_session(version)
    for number in range(soak.random.randrange(8)):
        soak.owe()
        body = message(
            "tools/call", {"name": "add", "arguments": {"a": number, "b": 1}}
        )
        soak.expect((await there.post(body, headers)).json, str(number + 1))
    async with there.wire() as wire:
        await wire.send(request("GET", "/mcp", headers))
        assert (await wire.head()).status == 200
        if soak.random.random() < 0.5:
            vanish(wire)
    if soak.random.random() < 0.5:
        assert (await there.send("DELETE", "/mcp", headers)).status == 204


async def cancels(soak: Soak) -> None:
    """In a session: a cancelled request has no result, and the session goes on."""
    there = soak.there
    headers = await there.open_session(OLD)
    async with there.wire() as wire:
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
        gone = message("notifications/cancelled", {"requestId": 7})
        del gone["id"]
        assert (await there.post(gone, headers)).status == 202
        response = await wire.response()
        assert b'"result"' not in response.body, response.body
    soak.owe()
    soak.expect((await there.post(message("ping"), headers)).json)


async def comes_back(soak: Soak) -> None:
    """Cut off in mid-stream, it asks for the rest by the last event that it has seen."""
    there = soak.there
    headers, parser = await there.open_session(OLD), EventParser()
    body = message(
        "tools/call", {"name": "steps", "arguments": {"count": 10, "seconds": 0.02}}
    )
    body["params"]["_meta"] = {"progressToken": 1}
    soak.owe()
    async with there.wire() as wire:
        await wire.send(posted(body, headers))
        await wire.head()
        events = list[ServerSentEvent]()
        while not events:
            events = parser.feed(await wire.chunk())
        vanish(wire)
    async with there.wire() as wire:
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
    """HTTP+SSE: messages by POST, replies on the stream of one GET."""
    there = soak.there
    async with there.wire() as wire:
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
                await there.send("POST", path, HEADERS, json.dumps(body).encode())
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
            await there.send("POST", path, HEADERS, json.dumps(wait).encode())
            vanish(wire)


# WebSocket


@asynccontextmanager
async def websocket(soak: Soak) -> AsyncIterator[tuple[WebSocketConnection, Wire]]:
    async with soak.there.wire() as wire, trio.open_nursery() as nursery:
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


# stdio: one client, which all share


class Stdio:
    """The one connection over standard input and output, and who waits for which reply."""

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
    """Calls, floods, large ones, bad messages, cancellations."""
    count = soak.random.choice([1, 5, 300])
    soak.owe(count)
    ids = [stdio.ask("echo", {"text": str(number)}) for number in range(count)]
    for number, id in enumerate(ids):
        soak.expect(await stdio.reply(id), str(number))
    text = "x" * soak.random.randrange(200_000)
    soak.owe(2)
    one, other = (
        stdio.ask("echo", {"text": text}),
        stdio.ask("steps", {"count": 5}, progress=True),
    )
    soak.expect(await stdio.reply(one), text)
    soak.expect(await stdio.reply(other), "5 steps")
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


# From the beginning to the end


@asynccontextmanager
async def serving(temporary: str, seed: int) -> AsyncIterator[tuple[Soak, Stdio]]:
    """The server on all transports, and the client on its standard input and output."""
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
        told = b""
        while not told.endswith(b"/mcp\n"):
            told += await process.stderr.receive_some()
        soak = Soak(process, int(told.rpartition(b":")[2].partition(b"/")[0]), seed)
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
    """So many clients, for so long, and to the end of what they have begun."""
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
    """A line of progress each second."""
    begun, before = trio.current_time(), soak.asked
    while True:
        await trio.sleep(1)
        soak.is_there()
        passed = trio.current_time() - begun
        told = f"{passed:4.0f} s  {soak.asked:>9,} requests  {(soak.asked - before) / passed:6,.0f}/s"
        held = f"{soak.memory / 2**20:6.1f} MB  {soak.descriptors:3} descriptors"
        print(f"{told}  {held}  {len(soak.failures)} failures", flush=True)


def compared(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """What there is more of than before."""
    found = []
    for name, count in after.items():
        most = (
            0 if name.startswith("mcp_") else before[name]
        )  # of sessions, streams and requests none may be left
        most += MORE_MEMORY if name == "memory" else MORE.get(name, 0)
        if count > most:
            found.append(
                f"{name}: {before[name]:,} before, {count:,} after, at most {most:,} are allowed"
            )
    return found


async def soaked(seconds: float, seed: int = 1) -> list[str]:
    """Everything; what is wrong."""
    http_wire.PATIENCE = PATIENCE
    with tempfile.TemporaryDirectory() as temporary:
        async with serving(temporary, seed) as (soak, stdio):
            warming = min(max(seconds * 0.2, 3), 60)
            print(f"to warm up: {warming:.0f} s", flush=True)
            await under_load(soak, stdio, warming)
            await trio.sleep(IDLE)
            for _ in range(
                2
            ):  # what the first look has used for the first time, the second one finds
                before = await soak.holds()
            begun = time.monotonic()
            await under_load(soak, stdio, seconds)
            took = time.monotonic() - begun
            after = await soak.holds_at_last(before)
        files = sorted(os.listdir(temporary))
    loud = [line.decode(errors="replace") for line in soak.log if LOUD.search(line)]
    print(
        f"{soak.asked:,} requests, {soak.done.total():,} clients, in {took:.0f} s after warming up"
    )
    print(
        "  "
        + ", ".join(f"{name} {count:,}" for name, count in sorted(soak.done.items()))
    )
    for name, count in before.items():
        print(f"  {name:>24}: {count:>12,} before, {after[name]:>12,} after")
    print(
        f"  {'temporary files':>24}: {len(files)}; lines of log: {len(soak.log)}, above a warning: {len(loud)}"
    )
    if soak.owed and not soak.failures:
        soak.failures.append(f"{soak.owed} requests that were owed an answer had none")
    for line, count in Counter(
        re.sub(rb"[0-9a-f]{8}|\d+", b"N", line) for line in soak.log
    ).most_common(5):
        print(f"    {count} of {line.decode(errors='replace')[:120]}")
    problems = compared(before, after) + soak.failures[:20] + loud[:20]
    return problems + [f"temporary files are left: {files}"] * bool(files)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    problems = trio.run(soaked, options.minutes * 60, options.seed)
    for problem in problems:
        print("WRONG:", problem)
    return 1 if problems else 0
