"""What every transport promises, checked on each of them and on both HTTP hosts.

What only one transport has is tested in the module of that transport.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import pytest
import trio
import trio.testing

from mcp_trio import Context, Server, ToolError
from mcp_trio.client.client import Client, talk
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.stdio import LineWire
from mcp_trio.client.target import connect as connect_to
from mcp_trio.server.serve_conversation import serve_conversation
from mcp_trio.transports.stdio import open_wire
from tests.support import checked
from tests.support.http_wire import site_on

EARLIER = "2025-11-25"
NEWEST = "2026-07-28"
LEGACY = "2024-11-05"
MEGABYTE = "é" * 2**19
PATIENCE = 10


class Reach(Protocol):
    """Connects to a server over one transport."""

    def __call__(
        self, server: Server, revision: str
    ) -> AbstractAsyncContextManager[Client]: ...


# Ways to reach a server


@asynccontextmanager
async def over_stdio(
    server: Server, revision: str, *, threads: bool
) -> AsyncIterator[Client]:
    """Connect over two pipes, read and written by the loop or by threads."""
    reading, to_server = os.pipe()
    from_server, writing = os.pipe()
    stdin = trio.lowlevel.FdStream(to_server)
    stdout = trio.lowlevel.FdStream(from_server)

    async def serve() -> None:
        async with open_wire(reading, writing, threads=threads) as wire:
            await serve_conversation(server, wire)

    try:
        async with server.running(), trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            client_wire = LineWire(stdin, stdout)
            nursery.start_soon(client_wire.run)
            async with talk(client_wire, revision) as client:
                yield client
            client_wire.end_input()
    finally:
        await trio.aclose_forcefully(stdin)
        await trio.aclose_forcefully(stdout)
        os.close(reading)
        os.close(writing)


@asynccontextmanager
async def over_network(
    server: Server, revision: str, *, host: str, scheme: str, path: str
) -> AsyncIterator[Client]:
    """Connect to an HTTP host on loopback."""
    async with site_on(host, server) as site:
        url = f"{scheme}://127.0.0.1:{site.port}{path}"
        async with connect_to(url, revision) as client:
            yield client


def network(host: str, scheme: str = "http", path: str = "/mcp") -> Reach:
    return partial(over_network, host=host, scheme=scheme, path=path)


WAYS: dict[str, tuple[Reach, list[str]]] = {
    "memory": (checked.connect, [EARLIER, NEWEST]),
    "stdio": (partial(over_stdio, threads=False), [EARLIER, NEWEST]),
    "stdio-threads": (partial(over_stdio, threads=True), [EARLIER, NEWEST]),
    "websocket": (network("native", scheme="ws"), [EARLIER, NEWEST]),
    "http-native": (network("native"), [EARLIER, NEWEST]),
    "http-hypercorn": (network("hypercorn"), [EARLIER, NEWEST]),
    "sse-native": (network("native", path="/sse"), [LEGACY]),
    "sse-hypercorn": (network("hypercorn", path="/sse"), [LEGACY]),
}
each_way = pytest.mark.parametrize(
    ("reach", "revision"),
    [
        pytest.param(reach, revision, id=f"{name}-{revision}")
        for name, (reach, revisions) in WAYS.items()
        for revision in revisions
    ],
)


# The server


class Tools:
    """A server whose tools wait for events."""

    def __init__(self) -> None:
        self.server = Server("contract", grace=1)
        self.begun = trio.Event()
        self.go = trio.Event()
        self.cleaned_up = trio.Event()
        for tool in (self.echo, self.count, self.wait, self.fail):
            self.server.add_tool(tool)

    async def echo(self, text: str) -> str:
        return text

    async def count(self, ctx: Context, to: int) -> str:
        for step in range(1, to + 1):
            await ctx.progress(step, to)
        return "counted"

    async def wait(self) -> str:
        self.begun.set()
        try:
            await self.go.wait()
        finally:
            self.cleaned_up.set()
        return "waited"

    async def fail(self) -> str:
        raise ToolError("it failed")


# The contract


@each_way
async def test_calls_are_answered_one_after_the_other(
    reach: Reach, revision: str
) -> None:
    with trio.fail_after(PATIENCE):
        async with reach(Tools().server, revision) as client:
            replies = [
                (await client.call_tool("echo", {"text": str(number)})).text
                for number in range(3)
            ]
    assert replies == ["0", "1", "2"]


@each_way
async def test_a_megabyte_each_way(reach: Reach, revision: str) -> None:
    with trio.fail_after(PATIENCE):
        async with reach(Tools().server, revision) as client:
            reply = await client.call_tool("echo", {"text": MEGABYTE})
    assert reply.text == MEGABYTE


@each_way
async def test_a_call_that_waits_holds_up_no_other(reach: Reach, revision: str) -> None:
    tools = Tools()
    replies: list[str] = []
    with trio.fail_after(PATIENCE):
        async with (
            reach(tools.server, revision) as client,
            trio.open_nursery() as nursery,
        ):

            @nursery.start_soon
            async def waiting() -> None:
                replies.append((await client.call_tool("wait")).text)

            await tools.begun.wait()
            replies.append((await client.call_tool("echo", {"text": "now"})).text)
            tools.go.set()
    assert replies == ["now", "waited"]


@each_way
async def test_progress_comes_before_the_result(reach: Reach, revision: str) -> None:
    with trio.fail_after(PATIENCE):
        async with reach(Tools().server, revision) as client:
            reply = await client.call_tool(
                "count", {"to": 3}, meta={"progressToken": "p"}
            )
            heard = [
                message["params"]["progress"]
                for message in client.heard
                if message["method"] == "notifications/progress"
            ]
    assert reply.text == "counted"
    assert heard == [1, 2, 3]


@each_way
async def test_a_client_that_stops_waiting_ends_its_call(
    reach: Reach, revision: str
) -> None:
    tools = Tools()
    with trio.fail_after(PATIENCE):
        async with reach(tools.server, revision) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "wait")
                await tools.begun.wait()
                nursery.cancel_scope.cancel()
            await tools.cleaned_up.wait()
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"


@each_way
async def test_errors_leave_the_connection_usable(reach: Reach, revision: str) -> None:
    with trio.fail_after(PATIENCE):
        async with reach(Tools().server, revision) as client:
            assert (await client.call_tool("fail")).is_error
            with pytest.raises(RemoteError) as unknown:
                await client.request("no/such/method")
            assert (await client.call_tool("echo", {"text": "on"})).text == "on"
    assert unknown.value.code == -32601
