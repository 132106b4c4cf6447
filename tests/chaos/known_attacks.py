"""Attacks that once took a server down, or slowed it for everybody else.

Each goes on until its process is killed, and begins again when it has ended.
"""

from __future__ import annotations

import json
from contextlib import suppress

import trio

from tests.support.http_wire import HEADERS, MODERN, message, request
from tests.support.websocket import UPGRADE, masked

from .victim import GONE, LARGE, Victim, again_and_again, call, listen, post, ready

TOO_LONG = "x" * LARGE


async def subscribe_to_long_uris(victim: Victim) -> None:
    """Subscribe to URIs of 4 MiB, a hundred times."""

    async def subscribe() -> None:
        async with victim.wire() as wire:
            headers = await victim.open_session(wire)
            for id in range(100):
                uri = {"uri": f"notes://{TOO_LONG}"}
                await wire.send(post(message("resources/subscribe", uri, id), headers))
                await wire.response()

    ready()
    await again_and_again(1, subscribe)


async def listen_with_large_meta(victim: Victim) -> None:
    """Listen two hundred times on one WebSocket, with 4 MiB of metadata each."""

    async def listen_often() -> None:
        async with victim.wire() as wire:
            await wire.send(UPGRADE)
            await wire.head()
            for id in range(200):
                asked = json.dumps(listen(id, more=TOO_LONG)).encode()
                await wire.stream.send_all(masked(1, asked))
            await trio.sleep(1)

    ready()
    await again_and_again(1, listen_often)


async def ping_with_long_ids(victim: Victim) -> None:
    """Send pings with ids of 4 MiB in sixteen sessions, with an open stream each."""

    async def ping() -> None:
        async with victim.wire() as wire, victim.wire() as stream:
            headers = await victim.open_session(wire)
            await stream.send(request("GET", "/mcp", headers))
            for _ in range(9):
                await wire.send(post(message("ping", None, TOO_LONG), headers))
                await wire.response()
            await trio.sleep(1)

    ready()
    await again_and_again(16, ping)


async def do_not_read(victim: Victim) -> None:
    """Ask for large results, and read nothing."""

    async def ask() -> None:
        async with victim.wire() as wire:
            await wire.stream.send_all(post(call("recite")) * 9)
            await trio.sleep_forever()

    ready()
    await again_and_again(16, ask)


async def listen_on_many_connections(victim: Victim) -> None:
    """Have more listens than the server has descriptors."""
    await _hold_connections(victim, post(listen()))


async def wait_on_many_connections(victim: Victim) -> None:
    """Have more waiting calls than the server has descriptors."""
    await _hold_connections(victim, post(call("wait", seconds=600)))


async def _hold_connections(victim: Victim, sent: bytes) -> None:
    async def hold() -> None:
        async with victim.wire() as wire:
            await wire.send(sent)
            with suppress(*GONE):
                while await wire.stream.receive_some(65536):
                    pass

    ready()
    await again_and_again(130, hold, pause=0.1)


async def open_sessions(victim: Victim) -> None:
    """Open ten thousand sessions, as fast as possible."""

    async def open_many() -> None:
        async with victim.wire() as wire:
            for _ in range(1_000):
                await victim.open_session(wire)

    ready()
    await again_and_again(10, open_many)


async def fill_histories(victim: Victim) -> None:
    """Have nine sessions keep as many events as they can."""

    async def fill() -> None:
        async with victim.wire() as wire:
            headers = await victim.open_session(wire)
            params = {"name": "echo", "arguments": {"text": "x" * 250_000}}
            params["_meta"] = {"progressToken": 1}
            for id in range(100):
                await wire.send(post(message("tools/call", params, id), headers))
                await wire.response()

    ready()
    await again_and_again(9, fill)


async def send_undecodable_arguments(victim: Victim) -> None:
    """Send arguments of 4 MiB that do not fit the tool."""
    params = {"name": "add", "arguments": {"a": [1.0], "b": 1}, "_meta": MODERN}
    numbers = b",".join([b"1.0"] * (LARGE // 4))
    body = json.dumps(message("tools/call", params)).encode()
    body = body.replace(b"[1.0]", b"[" + numbers + b"]")
    headers = {**HEADERS, "MCP-Protocol-Version": "2026-07-28"}
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "add"}
    data = request("POST", "/mcp", headers, body)

    async def send() -> None:
        async with victim.wire() as wire:
            await wire.send(data)
            await wire.response()

    ready()
    await again_and_again(1, send)


async def hang_in_threads(victim: Victim) -> None:
    """Call a function that hangs, sixty-four times at once."""

    async def hang() -> None:
        async with victim.wire() as wire:
            await wire.stream.send_all(post(call("hang")))
            await wire.stream.receive_some(65536)

    ready()
    await again_and_again(64, hang)


async def abandon_threads(victim: Victim) -> None:
    """Call a function that hangs, and leave, sixty-four times at once."""

    async def abandon() -> None:
        async with victim.wire() as wire:
            await wire.send(post(call("hang")))
            await trio.sleep(0.2)

    ready()
    await again_and_again(64, abandon)
