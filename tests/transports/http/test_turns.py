"""Slow requests of one client, on any number of connections, do not delay others."""

import json
import socket
import time
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from mcp_trio import Server
from tests.support.http_wire import (
    MODERN,
    Site,
    Wire,
    message,
    modern_headers,
    request,
    site,
)

# Longer than a turn.
SLOW = 0.003
CONNECTIONS = 8


def call(tool: str, client: str, **arguments: object) -> bytes:
    """Return a call as a proxy passes it on for a client."""
    body = message(
        "tools/call", {"name": tool, "arguments": arguments, "_meta": MODERN}
    )
    headers = modern_headers(body) | {"X-Forwarded-For": client}
    return request("POST", "/mcp", headers, json.dumps(body).encode())


class Slow:
    """A server with a slow tool, whose first call makes another client's call arrive."""

    def __init__(self) -> None:
        self.server = Server("slow")
        self.served: list[str] = []
        self.other: socket.socket | None = None
        self.server.tool(self.compute)

    async def compute(self, name: str) -> str:
        """Hold the loop for longer than a turn."""
        if self.other is not None:
            self.other.send(call("compute", "192.0.2.2", name="other"))
            self.other = None
        begun = time.perf_counter()
        while time.perf_counter() < begun + SLOW:
            pass
        self.served.append(name)
        return "done"


async def connect(there: Site, stack: AsyncExitStack) -> tuple[socket.socket, Wire]:
    own = socket.create_connection(("127.0.0.1", there.port))
    own.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(own))
    return own, Wire(await stack.enter_async_context(stream))


@pytest.mark.parametrize("connections", ["fresh", "used before"])
async def test_slow_requests_on_many_connections_let_another_client_go_first(
    connections: str,
) -> None:
    slow = Slow()
    async with (
        site(slow.server, trusted_proxies=["127.0.0.1"]) as there,
        AsyncExitStack() as stack,
    ):
        busy = [await connect(there, stack) for _ in range(CONNECTIONS)]
        other = await connect(there, stack)
        if connections == "used before":
            for _, wire in [*busy, other]:
                await wire.send(call("compute", "192.0.2.3", name="before"))
                await wire.response()
        await trio.testing.wait_all_tasks_blocked()
        slow.served.clear()
        slow.other = other[0]
        # All of them arrive before the server looks.
        for own, _ in busy:
            own.send(call("compute", "192.0.2.1", name="busy"))
        for _, wire in [*busy, other]:
            response = await wire.response()
            assert response.json["result"]["content"][0]["text"] == "done"
    assert slow.served.index("other") <= 2
