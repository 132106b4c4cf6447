"""Promises of all transports, tested on each of them and on both HTTP hosts.

Features of a single transport are tested in its module.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol

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
from tests.support.http_wire import (
    HEADERS,
    HOSTS,
    MODERN,
    Signals,
    make_server,
    message,
    modern_headers,
    request,
    site_on,
)

EARLIER = "2025-11-25"
NEWEST = "2026-07-28"
LEGACY = "2024-11-05"
MEGABYTE = "é" * 2**19
PATIENCE = 30


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
async def test_a_megabyte_passes_each_way(reach: Reach, revision: str) -> None:
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
async def test_progress_is_sent_before_the_result(reach: Reach, revision: str) -> None:
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


# What both HTTP hosts promise

each_host = pytest.mark.parametrize("host", HOSTS)

EVIL = "https://evil.example"
APP = "https://app.example"


def call_request(tool: str, **meta: Any) -> bytes:
    """Return the bytes of a request for a call that belongs to no session."""
    body = message(
        "tools/call", {"name": tool, "arguments": {}, "_meta": {**MODERN, **meta}}
    )
    return request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())


@each_host
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/healthz", {"Host": "probe.example"}, 200),
        ("HEAD", "/healthz", {}, 200),
        ("POST", "/healthz", {}, 405),
        ("GET", "/", {}, 404),
        ("POST", "/mcp/x", {}, 404),
        ("PUT", "/mcp", {}, 405),
        ("HEAD", "/mcp", {}, 405),
        ("POST", "/sse", {}, 405),
        ("POST", "/mcp/", HEADERS, 400),
        ("POST", "/mcp?x=1", HEADERS, 400),
        ("GET", "/mcp", {}, 400),
        ("DELETE", "/mcp", {}, 400),
        ("GET", "/mcp", {"Mcp-Session-Id": "x"}, 404),
        ("GET", "/mcp", {"Accept": "application/json"}, 406),
        ("POST", "/mcp", {**HEADERS, "Accept": "text/html"}, 406),
        ("POST", "/mcp", {"Content-Type": "text/plain"}, 415),
        ("POST", "/mcp", {"Host": "evil.example"}, 421),
        ("GET", "/sse", {"Origin": EVIL}, 403),
        ("POST", "/mcp", {**HEADERS, "Content-Length": "5242880"}, 413),
    ],
)
async def test_the_status_says_what_is_wrong_with_a_request(
    host: str, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    body = b"{}" if method == "POST" else b""
    async with site_on(host, make_server()) as site:
        response = await site.send(method, path, headers, body)
    assert response.status == status
    assert ("allow" in response.headers) == (status == 405)


@each_host
async def test_allowed_origins_may_read_errors_too(host: str) -> None:
    async with site_on(host, make_server(), allowed_origins=[APP]) as site:
        refused = await site.post(b"{", Origin=APP)
        missing = await site.send("GET", "/nowhere", {"Origin": APP})
        foreign = await site.send("GET", "/mcp", {"Origin": EVIL})
    assert refused.status == 400
    assert refused.headers["access-control-allow-origin"] == APP
    assert missing.status == 404
    assert missing.headers["access-control-allow-origin"] == APP
    assert "access-control-allow-origin" not in foreign.headers


@each_host
async def test_a_preflight_request_names_the_allowed_headers(host: str) -> None:
    preflight = {"Origin": APP, "Access-Control-Request-Method": "POST"}
    async with site_on(host, make_server(), allowed_origins=[APP]) as site:
        response = await site.send("OPTIONS", "/mcp", preflight)
    assert response.status == 204
    assert response.headers["access-control-allow-origin"] == APP
    assert "Mcp-Method" in response.headers["access-control-allow-headers"]


@each_host
async def test_idle_streams_end_at_once_when_the_server_stops(host: str) -> None:
    signals = Signals()
    server = make_server(signals, grace=60)
    async with (
        site_on(host, server) as site,
        site.wire() as idle,
        site.wire() as busy,
    ):
        await idle.send(request("GET", "/mcp", await site.open_session()))
        await idle.head()
        await busy.send(call_request("wait"))
        await signals.begun.wait()
        site.stopping.set()
        while await idle.chunk():
            pass
        signals.go.set()
        await busy.response()


@each_host
async def test_a_running_call_may_finish_within_the_grace(host: str) -> None:
    signals = Signals()
    server = make_server(signals, grace=60)
    async with site_on(host, server) as site, site.wire() as wire:
        await wire.send(call_request("wait"))
        await signals.begun.wait()
        site.stopping.set()
        signals.go.set()
        response = await wire.response()
        assert response.json["result"]["content"][0]["text"] == "went"
        assert await wire.ended()


@each_host
async def test_a_call_that_outlasts_the_grace_is_cancelled(host: str) -> None:
    signals = Signals()
    server = make_server(signals, grace=0.05)
    async with site_on(host, server) as site, site.wire() as wire:
        await wire.send(call_request("step_and_wait", progressToken=1))
        await signals.begun.wait()
        site.stopping.set()
        response = await wire.response()  # its last chunk is there
    heard = [message["method"] for message in response.messages]
    assert heard == ["notifications/progress"]
    assert signals.cleaned.is_set()
