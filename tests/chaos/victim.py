"""What attackers need: connections from their own address, and requests as bytes."""

from __future__ import annotations

import json
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

MIB = 2**20
# Almost as large as a message may be.
LARGE = 4 * MIB - 4096
GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, AssertionError)


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
