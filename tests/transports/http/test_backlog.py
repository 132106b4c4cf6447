"""What a client sends while a request still runs is kept up to a bound."""

import json
import tracemalloc
from typing import Any

import trio.testing

from mcp_trio.transports.http.connection import CHUNK, MAX_BACKLOG
from tests.support.http_wire import (
    MODERN,
    Signals,
    Wire,
    make_server,
    message,
    modern_headers,
    request,
    site,
)


def call(tool: str, **meta: Any) -> bytes:
    body = message(
        "tools/call", {"name": tool, "arguments": {}, "_meta": {**MODERN, **meta}}
    )
    return request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())


PING = request("GET", "/healthz")
TOO_MUCH = PING * (2 * (MAX_BACKLOG + CHUNK) // len(PING))


async def send_all(wire: Wire, data: bytes) -> None:
    """Send data, and wait until the server has read it."""
    await wire.send(data)
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_the_connection_ends_after_a_stream_if_requests_were_dropped() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        await wire.send(call("step_and_wait", progressToken=1))
        await signals.begun.wait()
        assert (await wire.head()).headers["transfer-encoding"] == "chunked"
        await send_all(wire, TOO_MUCH)
        signals.go.set()
        rest = await wire.to_end()
        assert b"went" in rest
        assert rest.endswith(b"\r\n0\r\n\r\n")
        assert b"HTTP/1.1" not in rest


async def test_the_connection_ends_after_a_reply_if_requests_were_dropped() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        await wire.send(call("wait"))
        await signals.begun.wait()
        await send_all(wire, TOO_MUCH)
        signals.go.set()
        response = await wire.response()
        assert response.json["result"]["content"][0]["text"] == "went"
        assert response.headers["connection"] == "close"
        assert await wire.ended()


async def test_requests_within_the_bound_are_answered_after_a_stream() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        await wire.send(call("step_and_wait", progressToken=1))
        await signals.begun.wait()
        await send_all(wire, PING * 3)
        signals.go.set()
        assert len((await wire.response()).messages) == 3
        for _ in range(3):
            assert (await wire.response()).body == b"ok\n"


async def test_memory_for_what_is_sent_during_a_request_is_bounded() -> None:
    signals = Signals()
    flood = PING * (8 * 2**20 // len(PING))
    async with site(make_server(signals)) as there, there.wire() as wire:
        await wire.send(call("wait"))
        await signals.begun.wait()
        tracemalloc.start()
        try:
            await send_all(wire, flood)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert grown < 2 * (MAX_BACKLOG + CHUNK)
        signals.go.set()
