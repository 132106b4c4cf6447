"""How long the server waits for a client, in virtual time."""

import json
import os
from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
import trio.testing
from http_wire import (
    HEADERS,
    MODERN,
    Signals,
    Wire,
    make_server,
    message,
    modern_headers,
    request,
    site,
)

from mcp_trio.transports.http.connection import PATIENCE
from mcp_trio.transports.http.parser import BODY, HEAD, IDLE
from mcp_trio.transports.http.server import TICK

PING = request("GET", "/healthz")
BEGINNING = request("POST", "/mcp", {**HEADERS, "Content-Length": "1000"})
# Seconds between two bytes.
PAUSE = 0.9


async def fresh(wire: Wire) -> None:
    """Use a connection that has sent nothing yet."""


async def kept(wire: Wire) -> None:
    """Use a connection that was used before, and has no task."""
    await wire.send(PING)
    assert (await wire.response()).status == 200


async def drip(wire: Wire, data: bytes) -> None:
    """Send one byte after the other, until the connection ends."""
    with suppress(trio.BrokenResourceError):
        for number in range(len(data)):
            await wire.stream.send_all(data[number : number + 1])
            await trio.sleep(PAUSE)


async def first_line(wire: Wire) -> bytes:
    received = b""
    while b"\r\n" not in received:
        chunk = await wire.stream.receive_some()
        assert chunk, "the connection ended"
        received += chunk
    return received.partition(b"\r\n")[0]


@pytest.mark.parametrize("prepare", [fresh, kept])
@pytest.mark.parametrize(
    ("at_once", "dripped", "stage"),
    [(b"", BEGINNING, HEAD), (BEGINNING, b"x" * 1000, BODY)],
    ids=["head", "body"],
)
async def test_a_request_that_arrives_byte_by_byte_is_refused_in_time(
    prepare: Callable[[Wire], trio.abc.AsyncResource],
    at_once: bytes,
    dripped: bytes,
    stage: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with (
        site(make_server()) as there,
        there.wire() as wire,
        trio.open_nursery() as nursery,
    ):
        await prepare(wire)
        await wire.send(at_once)
        began = trio.current_time()
        nursery.start_soon(drip, wire, dripped)
        with trio.fail_after(PATIENCE[stage] + 3 * TICK):
            line = await first_line(wire)
        assert line == b"HTTP/1.1 408 Request Timeout"
        assert trio.current_time() - began > PATIENCE[stage] - 2 * TICK
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("prepare", [fresh, kept])
async def test_an_idle_connection_ends_in_time(
    prepare: Callable[[Wire], trio.abc.AsyncResource],
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with site(make_server()) as there, there.wire() as wire:
        await prepare(wire)
        with trio.fail_after(PATIENCE[IDLE] + 3 * TICK):
            assert await wire.stream.receive_some() == b""


def call(tool: str, text: str = "") -> bytes:
    arguments = {"text": text} if text else {}
    body = message(
        "tools/call", {"name": tool, "arguments": arguments, "_meta": MODERN}
    )
    return request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())


async def test_a_request_that_has_arrived_when_a_connection_task_is_told_to_stop() -> (
    None
):
    """After a request that waited, a connection has a task of its own."""
    signals = Signals()
    signals.go.set()
    async with site(make_server(signals)) as there, there.wire() as wire:
        await wire.send(call("wait"))
        assert (await wire.response()).status == 200
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(wire.stream, trio.SocketStream)
        # The server does not run between these lines, so it has not read this.
        stdlib_send(wire.stream, PING)
        there.stopping.set()
        response = await wire.response()
        assert (response.status, response.body) == (200, b"ok\n")
        assert await wire.ended()


async def test_a_reply_that_is_being_read_when_the_server_stops_is_complete() -> None:
    text = "x" * 3 * 2**20
    async with site(make_server()) as there, there.wire() as wire:
        body = 8 * call("echo", text)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, body)
            await trio.testing.wait_all_tasks_blocked(0.01)
            there.stopping.set()
            await trio.testing.wait_all_tasks_blocked(0.01)
            response = await wire.response()
            assert response.json["result"]["content"][0]["text"] == text
            nursery.cancel_scope.cancel()


def stdlib_send(stream: trio.SocketStream, data: bytes) -> None:
    """Send data without a checkpoint."""
    assert os.write(stream.socket.fileno(), data) == len(data)
