"""How long the server waits for a client, in virtual time."""

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
import trio.testing

from mcp_trio import Limits
from mcp_trio.transports.http.connection import PATIENCE
from mcp_trio.transports.http.parser import BODY, HEAD, IDLE
from mcp_trio.transports.http.server import TICK
from tests.support.http_wire import (
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
    prepare: Callable[[Wire], Awaitable[None]],
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
    prepare: Callable[[Wire], Awaitable[None]],
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with site(make_server()) as there, there.wire() as wire:
        await prepare(wire)
        with trio.fail_after(PATIENCE[IDLE] + 3 * TICK):
            assert await wire.stream.receive_some() == b""


def call(tool: str) -> bytes:
    body = message("tools/call", {"name": tool, "arguments": {}, "_meta": MODERN})
    return request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())


async def waited(wire: Wire) -> None:
    """Use a connection whose last request waited, so that it has its own task."""
    await wire.send(call("wait"))
    assert (await wire.response()).status == 200


class LastMinute(trio.abc.Instrument):
    """Sends a request just before the server looks for overdue connections."""

    def __init__(self, wire: Wire) -> None:
        assert isinstance(wire.stream, trio.SocketStream)
        self.socket = wire.stream.socket
        self.is_due = trio.current_time() + PATIENCE[IDLE]
        self.has_sent = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        is_late = trio.current_time() > self.is_due
        if task.name.endswith("keep_time") and is_late and not self.has_sent:
            self.has_sent = True
            assert os.write(self.socket.fileno(), PING) == len(PING)


@pytest.mark.parametrize("prepare", [kept, waited])
async def test_a_request_in_the_last_minute_is_answered_and_the_connection_goes_on(
    prepare: Callable[[Wire], Awaitable[None]],
    autojump_clock: trio.testing.MockClock,
) -> None:
    signals = Signals()
    signals.go.set()
    async with site(make_server(signals)) as there, there.wire() as wire:
        await prepare(wire)
        instrument = LastMinute(wire)
        trio.lowlevel.add_instrument(instrument)
        with trio.fail_after(PATIENCE[IDLE] + 3 * TICK):
            assert await first_line(wire) == b"HTTP/1.1 200 OK"
        trio.lowlevel.remove_instrument(instrument)
        await trio.sleep(PATIENCE[IDLE] / 2)
        await wire.send(PING)
        assert await first_line(wire) == b"HTTP/1.1 200 OK"


@pytest.mark.thorough
async def test_a_reply_that_is_being_read_when_the_server_stops_is_complete() -> None:
    async with site(make_server(grace=60)) as there, there.wire() as wire:
        there.server.use_limits(Limits(max_result=2**25))
        there.server.add_tool(lambda: "x" * 2**24, name="huge")
        await wire.send(call("huge"))
        await wire.head()
        await trio.testing.wait_all_tasks_blocked(0.01)
        there.stopping.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        # The connection ends with the reply, and does not use up the grace.
        assert len(await wire.to_end()) > 2**24
