"""When connections run out, the client that has the most loses one."""

import json
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio.transports.http import server as native
from tests.support.command_line import ENVIRONMENT
from tests.support.http_wire import (
    HEADERS,
    MODERN,
    Signals,
    Site,
    Wire,
    make_server,
    message,
    modern_headers,
    request,
    site,
)

MOST = 8


def post(method: str, params: dict[str, Any]) -> bytes:
    asked = message(method, {**params, "_meta": MODERN})
    body = json.dumps(asked).encode()
    return request("POST", "/mcp", modern_headers(asked), body)


LISTEN = post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
WAIT = post("tools/call", {"name": "wait", "arguments": {}})
ADD = post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})


async def wire_from(address: str, there: Site, stack: AsyncExitStack) -> Wire:
    """Connect from another address of this machine."""
    stream = await trio.open_tcp_stream("127.0.0.1", there.port, local_address=address)
    return Wire(await stack.enter_async_context(stream))


@pytest.mark.parametrize("busy", [LISTEN, WAIT], ids=["listens", "calls"])
async def test_a_client_that_fills_all_connections_gives_way_to_another(
    busy: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", MOST)
    async with site(make_server(Signals())) as there, AsyncExitStack() as stack:
        for _ in range(MOST):
            wire = await wire_from("127.0.0.1", there, stack)
            await wire.send(busy)
        await trio.testing.wait_all_tasks_blocked(0.05)
        for _ in range(3):
            honest = await wire_from("127.0.0.2", there, stack)
            await honest.send(ADD)
            response = await honest.response()
            assert response.json["result"]["content"][0]["text"] == "3"


async def test_a_newcomer_is_accepted_as_soon_as_another_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", MOST)
    # Nobody has to wait for as long as this.
    monkeypatch.setattr(native, "ROOM_WITHIN", 3600)
    async with site(make_server(Signals())) as there, AsyncExitStack() as stack:
        for _ in range(3 * MOST):
            wire = await wire_from("127.0.0.1", there, stack)
            await wire.send(LISTEN)
        honest = await wire_from("127.0.0.2", there, stack)
        with trio.fail_after(30):
            await honest.send(ADD)
            assert (await honest.response()).status == 200


async def test_the_one_connection_of_another_client_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", MOST)
    async with site(make_server(Signals())) as there, AsyncExitStack() as stack:
        honest = await wire_from("127.0.0.2", there, stack)
        for _ in range(3 * MOST):
            await honest.send(ADD)
            assert (await honest.response()).status == 200
            wire = await wire_from("127.0.0.1", there, stack)
            with suppress(trio.BrokenResourceError):
                await wire.send(LISTEN)


async def test_the_busiest_of_several_clients_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", 6)
    monkeypatch.setattr(native, "ROOM", 1)
    clients = ["127.0.0.1", *["127.0.0.2"] * 3, *["127.0.0.3"] * 2]
    async with site(make_server()) as there, AsyncExitStack() as stack:
        wires = [await wire_from(client, there, stack) for client in clients]
        assert [await is_answered(wire) for wire in wires] == [True] * 6
        assert await is_answered(await wire_from("127.0.0.4", there, stack))
        ended = [client for client in clients if not await is_answered(wires.pop(0))]
    assert ended == ["127.0.0.2"]


async def is_answered(wire: Wire) -> bool:
    """Return whether a request is answered, or the connection has ended."""
    with suppress(trio.BrokenResourceError):
        await wire.send(ADD)
        return await wire.more()
    return False


WITHOUT_DESCRIPTORS = """
import os, resource, socket
from mcp_trio.transports.http.server import SpareDescriptor

listener = socket.create_server(("127.0.0.1", 0))
clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
spare = SpareDescriptor()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
opened = []
try:
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
accepted, address = spare.accept(listener)
print(address == clients[0].getsockname(), spare.restore())
try:
    spare.accept(listener)
except OSError as problem:
    print(problem.strerror)
accepted.close()
print(spare.restore())
"""


def test_without_descriptors_a_connection_takes_the_place_of_the_spare_one() -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
    )
    expected = ["True False", "Too many open files", "True"]
    assert result.stdout.splitlines() == expected, result.stderr


async def test_idle_connections_of_the_busiest_client_go_before_its_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(native, "ROOM", 1)
    signals = Signals()
    async with site(make_server(signals)) as there, AsyncExitStack() as stack:
        idle, working, *_ = [
            await wire_from("127.0.0.1", there, stack) for _ in range(4)
        ]
        await working.send(WAIT)
        await signals.begun.wait()
        await idle.send(request("GET", "/healthz", HEADERS))
        assert (await idle.response()).status == 200
        honest = await wire_from("127.0.0.2", there, stack)
        await honest.send(ADD)
        assert (await honest.response()).status == 200
        signals.go.set()
        assert (await working.response()).status == 200
