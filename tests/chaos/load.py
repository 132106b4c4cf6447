"""The clients that a fault must not affect: one on each transport, with varied jobs.

A client calls, checks the reply, waits a moment and calls again. Its session has to
live through all faults: a client that has to connect again is a failure.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import cycle
from typing import Any

import trio
from msgspec import Struct, field

from mcp_trio.client import TASKS, Client, RemoteError, Result, connect, talk
from mcp_trio.client.handlers import Handlers

from .process import ServerProcess

# Seconds between two calls of a client.
PAUSE = 0.05
# Seconds without a reply after which it is lost.
LOST = 30.0
MODERN = "2026-07-28"
CAPABILITIES = {"extensions": {TASKS: {}}}


class Figures(Struct):
    """What happened to the calls of all clients during one fault."""

    calls: int = 0
    slowest: float = 0.0
    slowest_is: str = ""
    refused: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, name: str, seconds: float) -> None:
        """Count a call that was answered."""
        self.calls += 1
        if seconds > self.slowest:
            self.slowest = seconds
            self.slowest_is = name


# The jobs of a client


async def add(client: Client, number: int) -> None:
    """Call a tool that is answered at once."""
    result = await client.call_tool("add", {"a": number, "b": 1})
    _expect(result, str(number + 1))


async def echo(client: Client, number: int) -> None:
    """Send and receive some kilobytes."""
    text = f"{number} " * 2_000
    _expect(await client.call_tool("echo", {"text": text}), text)


async def block(client: Client, number: int) -> None:
    """Use a worker thread."""
    _expect(await client.call_tool("block", {"seconds": 0.001}), "blocked")


async def steps(client: Client, number: int) -> None:
    """Get progress notifications before the result."""
    client.heard.clear()
    meta = {"progressToken": number}
    result = await client.call_tool("steps", {"count": 3}, meta=meta)
    _expect(result, "3 steps")
    heard = [message["params"]["progress"] for message in client.heard]
    if heard != [0, 1, 2]:
        raise Wrong(f"progress: expected 0, 1 and 2, got {heard}")


async def read(client: Client, number: int) -> None:
    """Read a resource."""
    (content,) = await client.read_resource(f"notes://{number}")
    if content["text"] != f"about {number}":
        raise Wrong(f"expected 'about {number}', got {content['text']!r}")


async def confirm(client: Client, number: int) -> None:
    """Answer a question of the server."""
    _expect(await client.call_tool("confirm"), "accept: Sure(sure=True)")


async def later(client: Client, number: int) -> None:
    """Follow a task."""
    _expect(await client.call_tool("later"), "done later")


# The client is whatever the lane opens.
Job = Callable[[Any, int], Awaitable[None]]
COMMON: list[Job] = [add, echo, block, steps, read]


class Wrong(Exception):
    """A reply is wrong."""


def _expect(result: Result, text: str) -> None:
    if result.is_error or result.text != text:
        raise Wrong(f"expected {text[:80]!r}, got {result.text[:200]!r}")


async def _answer(message: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"sure": True}


# Clients

Open = Callable[[], AbstractAsyncContextManager[Any]]


class Lane:
    """A client that repeats its jobs in turn."""

    def __init__(self, name: str, open: Open, jobs: list[Job]) -> None:
        self.name = name
        self.open = open
        self.jobs = jobs


def reach(url: str, revision: str) -> Open:
    """Return a function that connects a client to a URL."""

    def open() -> AbstractAsyncContextManager[Client]:
        return connect(
            url,
            revision,
            capabilities=CAPABILITIES,
            elicitation=_answer,
            timeout=LOST,
        )

    return open


def lanes_of(server: ServerProcess) -> list[Lane]:
    """Return a client for each transport."""

    def over_stdio() -> AbstractAsyncContextManager[Client]:
        return _over_stdio(server)

    async def call_on_new_connection(client: Client, number: int) -> None:
        async with reach(http, MODERN)() as other:
            await add(other, number)

    http = server.url()
    asks = [*COMMON, confirm]
    stateless = [*asks, later, call_on_new_connection]
    return [
        Lane("stdio", over_stdio, asks),
        Lane("HTTP, 2025-11-25", reach(http, "2025-11-25"), asks),
        Lane("HTTP, 2026-07-28", reach(http, MODERN), stateless),
        Lane("HTTP+SSE", reach(server.url(path="/sse"), "2024-11-05"), COMMON),
        Lane("WebSocket", reach(server.url("ws"), "2025-11-25"), asks),
    ]


@asynccontextmanager
async def _over_stdio(server: ServerProcess) -> AsyncIterator[Client]:
    """Talk to the server over stdio, which works once."""
    wire = server.wire
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.run)
        handlers = Handlers(elicitation=_answer)
        opening = talk(wire, "2025-11-25", handlers=handlers, timeout=LOST)
        async with opening as client:
            yield client
        nursery.cancel_scope.cancel()


class Load:
    """All clients, and the figures of the current fault."""

    def __init__(self, lanes: Sequence[Lane] = ()) -> None:
        self.figures = Figures()
        # Refusals that the current fault excuses. This pattern matches nothing.
        self.tolerated = re.compile(r"(?!)")
        self.lanes = list(lanes)
        self.busy: set[str] = set()
        self._laps: dict[str, int] = {}
        self._go = trio.Event()

    async def run(self) -> None:
        """Run all clients until cancelled. They start when `resume` is called."""
        async with trio.open_nursery() as nursery:
            for lane in self.lanes:
                nursery.start_soon(self._keep_connected, lane)

    def resume(self, tolerated: str = "(?!)") -> Figures:
        """Let the clients continue, and return the figures that they fill in."""
        self.tolerated = re.compile(tolerated)
        self.figures = Figures()
        self._go.set()
        return self.figures

    async def laps(self, count: int) -> None:
        """Wait until each client has done each of its jobs this many times."""
        while any(self._laps.get(lane.name, 0) < count for lane in self.lanes):
            await trio.sleep(0.05)

    async def one_more_lap(self) -> None:
        """Wait until each client has done each of its jobs once more, or twice."""
        begun = dict(self._laps)
        for lane in self.lanes:
            while self._laps.get(lane.name, 0) < begun.get(lane.name, 0) + 2:
                await trio.sleep(0.05)

    async def rest(self) -> None:
        """Let the clients finish their jobs, and wait until they have."""
        self._go = trio.Event()
        while self.busy:
            await trio.sleep(0.01)

    async def visit(self, lane: Lane) -> None:
        """Add one more client until cancelled."""
        try:
            await self._keep_connected(lane)
        finally:
            self.busy.discard(lane.name)

    async def _keep_connected(self, lane: Lane) -> None:
        while True:
            try:
                async with lane.open() as client:
                    await self._work(lane, client)
            except Exception as problem:
                self.busy.discard(lane.name)
                self.figures.wrong.append(f"{lane.name}: {problem!r}"[:300])
                await trio.sleep(1)

    async def _work(self, lane: Lane, client: Client) -> None:
        for number, job in enumerate(cycle(lane.jobs)):
            await self._go.wait()
            self.busy.add(lane.name)
            name = f"{lane.name}: {job.__name__}"
            begun = trio.current_time()
            try:
                await job(client, number)
            except (Wrong, RemoteError) as problem:
                self.judge(name, problem)
            self.figures.add(name, trio.current_time() - begun)
            self.busy.discard(lane.name)
            self._laps[lane.name] = (number + 1) // len(lane.jobs)
            await trio.sleep(PAUSE)

    def judge(self, name: str, problem: Exception) -> None:
        """Count an unusual reply."""
        if self.tolerated.search(str(problem)):
            self.figures.refused += 1
        else:
            self.figures.wrong.append(f"{name}: {problem}"[:300])
