"""Clients that attack a server, to see whether others notice.

Each function is an attack. It calls `ready` when its harm is done, or is under way, and
goes on until its process is killed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator

import trio

from tests.support.http_wire import HEADERS, Wire, message, request
from tests.support.websocket import UPGRADE, masked

from .victim import LARGE, Victim, again_and_again, call, listen, post, ready

SSE = request("GET", "/sse", {"Accept": "text/event-stream"})
# The option of Linux that makes a connection disappear without a word to the other
# side.
TCP_REPAIR = 19


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


async def take_descriptors(victim: Victim) -> None:
    """Open many connections that listen or wait, and reopen each when it ends."""
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


async def go_half_open(victim: Victim) -> None:
    """Open connections in every state, half of them closed only by the client."""
    wires = await _in_every_state(victim)
    for wire in wires[::2]:
        await wire.stream.send_eof()
    ready()
    await trio.sleep_forever()


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
