"""A guarded server on each host, and clients with tokens."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from trio_websocket import wrap_client_stream

from mcp_trio import Access, Context, Principal, Server
from mcp_trio.client.client import ungrouped
from mcp_trio.client.event_parser import EventParser
from mcp_trio.transports.http.hypercorn_host import serve_hypercorn
from mcp_trio.transports.http.server import serve_http
from mcp_trio.transports.http.settings import HttpSettings
from mcp_trio.transports.websocket import serve_websocket
from tests.support.http_wire import (
    HEADERS,
    MODERN,
    PATIENCE,
    Response,
    Signals,
    Site,
    Wire,
    message,
    modern_headers,
    request,
)

HOSTS = {"native": serve_http, "hypercorn": serve_hypercorn}
TOKENS = {
    "token-of-a": Principal("a"),
    "admin-token-of-a": Principal("a", frozenset({"admin"})),
    "token-of-b": Principal("b", frozenset({"admin"})),
}
A, ADMIN, B = TOKENS


async def verify(token: str) -> Principal | None:
    return TOKENS.get(token)


def make_server(signals: Signals | None = None, **options: Any) -> Server:
    """Return a server with tools for everybody, and one for administrators."""
    signals = signals or Signals()
    server = Server("guarded", **options)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool(scopes={"admin"})
    async def purge(context: Context) -> str:
        return f"purged by {context.principal.name if context.principal else None}"

    @server.tool
    async def wait(context: Context) -> str:
        """Report a message, wait, and return."""
        try:
            await context.progress(1)
            signals.begun.set()
            await signals.go.wait()
            return "went"
        finally:
            signals.cleaned.set()

    @server.resource("notes://one")
    async def note() -> str:
        return "one"

    return server


class Bearer(Site):
    """A site, and a client of it with a token or without one."""

    def __init__(self, site: Site, token: str | None) -> None:
        super().__init__(site.server, site.port, site.stopping)
        self.own = {"Authorization": f"Bearer {token}"} if token else {}

    async def send(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        return await super().send(method, path, {**self.own, **(headers or {})}, body)

    def by(self, token: str | None) -> "Bearer":
        """Return the same site with another token."""
        return Bearer(self, token)

    @asynccontextmanager
    async def websocket(self) -> AsyncIterator[Any]:
        """Open a WebSocket. Raises if the server refuses it.

        It must be closed within `PATIENCE` seconds.
        """
        extra = [(name.encode(), value.encode()) for name, value in self.own.items()]
        with ungrouped(), trio.fail_after(PATIENCE):
            async with self.wire() as wire, trio.open_nursery() as nursery:
                yield await wrap_client_stream(
                    nursery,
                    wire.stream,
                    "localhost",
                    "/mcp",
                    subprotocols=["mcp"],
                    extra_headers=extra,
                )
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def legacy(self) -> AsyncIterator["Legacy"]:
        """Open an HTTP+SSE stream, and its session."""
        async with self.wire() as wire:
            await wire.send(
                request("GET", "/sse", {**self.own, "Accept": "text/event-stream"})
            )
            assert (await wire.head()).status == 200
            parser = EventParser()
            stream = Legacy(self, wire, parser, (await wire.event(parser)).data)
            opening = {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            }
            await stream.ask(message("initialize", opening))
            yield stream


class Legacy:
    """An HTTP+SSE stream, and the path for its messages."""

    def __init__(
        self, there: Bearer, wire: Wire, parser: EventParser, path: str
    ) -> None:
        self.there, self.wire, self.parser, self.path = there, wire, parser, path

    async def post(self, body: Any, token: str | None = None) -> int:
        """Post a message, and return the status. It may be sent with another token."""
        by = self.there.by(token) if token else self.there
        return (
            await by.send("POST", self.path, HEADERS, json.dumps(body).encode())
        ).status

    async def ask(self, body: Any) -> Any:
        assert await self.post(body) == 202
        return json.loads((await self.wire.event(self.parser)).data)


@asynccontextmanager
async def guarded(
    server: Server | None = None,
    host: str = "native",
    token: str | None = A,
    upgrades_only: bool = False,
    **options: Any,
) -> AsyncIterator[Bearer]:
    """Run a server on loopback that requires a token."""
    server = server or make_server(access=Access(verify))
    stopping = trio.Event()
    given: dict[str, Any] = {"settings": HttpSettings(**options)}
    if host == "native":
        given["upgrade"] = partial(serve_websocket, server, stopping=stopping)
        given["upgrades_only"] = upgrades_only
    async with server.running(), trio.open_nursery() as nursery:
        start = partial(HOSTS[host], server, "127.0.0.1", 0, stopping=stopping, **given)  # type: ignore[operator]
        ((_, port),) = await nursery.start(start)
        yield Bearer(Site(server, port, stopping), token)
        stopping.set()
        nursery.cancel_scope.cancel()


def calling(tool: str, id: Any = 1, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments}, id)


def modern(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request of the revision without sessions."""
    return {
        **body,
        "params": {
            **body["params"],
            "_meta": {**MODERN, **body["params"].get("_meta", {})},
        },
    }


async def post_modern(there: Bearer, body: dict[str, Any], **headers: str) -> Response:
    stateless = modern(body)
    return await there.post(stateless, {**modern_headers(stateless), **headers})
