"""Clients that do harm: `python -m tests.chaos.attackers NAME PORT ADDRESS`.

Each is a process of its own, which connects from its own address of this machine. It
prints `ready` when its harm is done, or is under way, and goes on until it is killed.
So its connections end as those of a client do that crashes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from tests.support.http_wire import (
    HEADERS,
    MODERN,
    Wire,
    message,
    modern_headers,
    request,
)
from tests.support.websocket import UPGRADE, masked

MIB = 2**20
# Almost as large as a message may be.
LARGE = 4 * MIB - 4096
GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, AssertionError)
SSE = request("GET", "/sse", {"Accept": "text/event-stream"})
# The option of Linux that makes a connection disappear without a word to the other side.
TCP_REPAIR = 19


class Victim:
    """Where the server is, and where the attacks come from."""

    def __init__(self, port: int, address: str) -> None:
        self.port = port
        self.address = address

    async def connect(self) -> Wire:
        """Open a connection."""
        return Wire(
            await trio.open_tcp_stream(
                "127.0.0.1", self.port, local_address=self.address
            )
        )

    @asynccontextmanager
    async def wire(self) -> AsyncIterator[Wire]:
        """Have a connection for a while."""
        wire = await self.connect()
        try:
            yield wire
        finally:
            await trio.aclose_forcefully(wire.stream)

    async def open_session(self, wire: Wire) -> dict[str, str]:
        """Open a session, and return the headers of its requests."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "attacker", "version": "1"},
        }
        await wire.send(post(message("initialize", params), HEADERS))
        response = await wire.response()
        return {
            **HEADERS,
            "Mcp-Session-Id": response.headers["mcp-session-id"],
            "MCP-Protocol-Version": "2025-11-25",
        }


Attack = Callable[[Victim], Awaitable[None]]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    """Let the command know an attack by the name of its function."""
    ATTACKS[function.__name__] = function
    return function


def ready() -> None:
    """Tell the process that started this one."""
    print("ready", flush=True)


def post(body: Any, headers: dict[str, str] | None = None) -> bytes:
    """Return a request that posts a message."""
    data = json.dumps(body).encode()
    return request("POST", "/mcp", headers or modern_headers(body), data)


def call(name: str, id: int = 1, **arguments: Any) -> dict[str, Any]:
    """Return a call of a tool, in the newest revision."""
    params = {"name": name, "arguments": arguments, "_meta": MODERN}
    return message("tools/call", params, id)


def listen(id: int = 1, **more: Any) -> dict[str, Any]:
    """Return a subscription to changes of the list of tools."""
    params = {"notifications": {"toolsListChanged": True}}
    return message("subscriptions/listen", {**params, "_meta": {**MODERN, **more}}, id)


async def again_and_again(
    count: int, function: Callable[[], Awaitable[None]], pause: float = 0.02
) -> None:
    """Run a function in so many tasks; in each for ever, whatever happens to it."""

    async def repeat() -> None:
        while True:
            with suppress(*GONE):
                await function()
            await trio.sleep(pause)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(repeat)


# Attacks


@attack
async def flood(victim: Victim) -> None:
    """Send good and bad requests without a pause, on many connections."""
    requests = b"".join(post(call("add", id, a=id, b=1)) for id in range(200))
    refused = post({"no": "message"}, HEADERS)

    async def send_many() -> None:
        async with victim.wire() as wire:
            await wire.send(requests + refused + os.urandom(100))
            with trio.move_on_after(10):
                await wire.to_end()

    ready()
    await again_and_again(16, send_many)


@attack
async def take_descriptors(victim: Victim) -> None:
    """Open many connections which listen or wait, and open each again when it ends."""
    kinds = [post(listen()), post(call("wait", seconds=600)), b"", b"POST /mcp HTT"]
    count = 0

    async def hold_one() -> None:
        nonlocal count
        count += 1
        async with victim.wire() as wire:
            await wire.stream.send_all(kinds[count % len(kinds)])
            while await wire.stream.receive_some(65536):
                pass

    ready()
    await again_and_again(200, hold_one, pause=0.1)


@attack
async def take_threads(victim: Victim) -> None:
    """Call a function that needs a worker thread, a hundred times at once."""

    async def block() -> None:
        async with victim.wire() as wire:
            while True:
                await wire.send(post(call("block", seconds=0.5)))
                with trio.fail_after(60):
                    await wire.stream.receive_some(65536)

    ready()
    await again_and_again(100, block)


@attack
async def take_memory(victim: Victim) -> None:
    """Hold large requests, begin large bodies, and do not read large results."""
    head = {**HEADERS, "Content-Length": str(LARGE)}
    kinds = [
        request("POST", "/mcp", head) + b"[" * (LARGE - 1),
        post(call("wait", seconds=600, text="x" * LARGE)),
        post(call("recite")),
    ]
    count = 0

    async def hold_one() -> None:
        nonlocal count
        count += 1
        async with victim.wire() as wire:
            await wire.stream.send_all(kinds[count % len(kinds)])
            await trio.sleep(30)

    ready()
    await again_and_again(40, hold_one, pause=0.1)


@attack
async def never_read(victim: Victim) -> None:
    """Ask for large results over HTTP and WebSocket, and read none of them."""

    async def ask_over_http() -> None:
        async with victim.wire() as wire:
            await wire.stream.send_all(post(call("recite")) * 3)
            await trio.sleep_forever()

    async def ask_over_websocket() -> None:
        async with victim.wire() as wire:
            await wire.send(UPGRADE)
            await wire.head()
            asked = json.dumps(call("echo", text="x" * 100_000)).encode()
            for _ in range(100):
                await wire.stream.send_all(masked(1, asked))
            await trio.sleep_forever()

    ready()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again_and_again, 40, ask_over_http)
        nursery.start_soon(again_and_again, 20, ask_over_websocket)


@attack
async def open_everything(victim: Victim) -> None:
    """Open sessions, streams, subscriptions and WebSockets, and close none of them."""
    held = [wire async for wire in _everything(victim)]
    ready()
    await trio.sleep_forever()
    assert held


async def _everything(victim: Victim) -> AsyncIterator[Wire]:
    for _ in range(20):
        wire = await victim.connect()
        for _ in range(50):
            headers = await victim.open_session(wire)
        subscribe = {"uri": "notes://a"}
        await wire.send(post(message("resources/subscribe", subscribe), headers))
        await wire.response()
        await wire.send(request("GET", "/mcp", headers))
        await wire.head()
        yield wire
    for opening in (SSE, UPGRADE, post(listen()), post(call("wait", seconds=600))):
        for _ in range(50):
            wire = await victim.connect()
            await wire.send(opening)
            yield wire


@attack
async def go_half_open(victim: Victim) -> None:
    """Have connections in every state, half of them closed by this side alone."""
    wires = await _in_every_state(victim)
    for wire in wires[::2]:
        await wire.stream.send_eof()
    ready()
    await trio.sleep_forever()


@attack
async def vanish(victim: Victim) -> None:
    """Have connections in every state, and lose them as if the power had failed.

    The server is told nothing. This needs the right to administer the network.
    """
    for wire in await _in_every_state(victim):
        connection = wire.stream.socket
        connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        connection.close()
    ready()
    await trio.sleep_forever()


async def _in_every_state(victim: Victim) -> list[Wire]:
    begun = post(call("echo", text="x" * 1000))
    states = [
        b"",
        begun[:30],
        begun[:-30],
        begun,
        SSE,
        UPGRADE,
        UPGRADE + b"\x81\xfe",
        post(listen()),
        post(call("wait", seconds=600)),
        post(call("recite")),
    ]
    wires = []
    for sent in states * 10:
        wire = await victim.connect()
        await wire.send(sent)
        wires.append(wire)
    await trio.sleep(1)
    return wires


async def main(name: str, port: int, address: str) -> None:
    """Run one attack until this process is killed."""
    await ATTACKS[name](Victim(port, address))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
