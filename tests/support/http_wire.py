"""A server on loopback, and a client that sends exactly the bytes it is given."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from mcp_trio import Context, Server
from mcp_trio.client.event_parser import EventParser, ServerSentEvent
from mcp_trio.transports.http.connection import Upgrade
from mcp_trio.transports.http.hypercorn_host import serve_hypercorn
from mcp_trio.transports.http.server import serve_http
from mcp_trio.transports.http.settings import HttpSettings
from mcp_trio.transports.websocket import serve_websocket

VENDOR = "io.modelcontextprotocol/"
MODERN = {f"{VENDOR}protocolVersion": "2026-07-28", f"{VENDOR}clientCapabilities": {}}
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
PATIENCE = 30.0


class Response:
    def __init__(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[ServerSentEvent]:
        return EventParser().feed(self.body)

    @property
    def messages(self) -> list[Any]:
        return [json.loads(event.data) for event in self.events if event.data]


class Wire:
    """One connection. Every wait ends the test after `patience` seconds."""

    patience = PATIENCE

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream: Any = stream
        self._bytes = b""

    async def send(self, data: bytes) -> None:
        with trio.fail_after(self.patience):
            await self.stream.send_all(data)

    async def more(self) -> bool:
        with trio.fail_after(self.patience):
            chunk = bytes(await self.stream.receive_some(65536))
        self._bytes += chunk
        return bool(chunk)

    async def until(self, mark: bytes) -> bytes:
        """Return everything up to the mark, including it."""
        while mark not in self._bytes:
            assert await self.more(), (
                f"the connection ended before {mark!r}, after {self._bytes!r}"
            )
        before, _, self._bytes = self._bytes.partition(mark)
        return before + mark

    async def exactly(self, size: int) -> bytes:
        while len(self._bytes) < size:
            assert await self.more(), "the connection ended within a body"
        data, self._bytes = self._bytes[:size], self._bytes[size:]
        return data

    async def to_end(self) -> bytes:
        while await self.more():
            pass
        return self._bytes

    def comes(self, start: bytes) -> bool:
        """Return whether the next received bytes begin like this."""
        return self._bytes.startswith(start)

    async def ended(self) -> bool:
        return not self._bytes and not await self.more()

    async def head(self) -> Response:
        """Return the head of a response. Its body is not read yet."""
        lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:] if line]
        return Response(
            int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}
        )

    async def chunk(self) -> bytes:
        size = int(await self.until(b"\r\n"), 16)
        return (await self.exactly(size + 2))[:-2]

    async def response(self, *, bodiless: bool = False) -> Response:
        response = await self.head()
        if bodiless or response.status == 204:
            return response
        if "content-length" in response.headers:
            response.body = await self.exactly(int(response.headers["content-length"]))
        elif response.headers.get("transfer-encoding") == "chunked":
            while chunk := await self.chunk():
                response.body += chunk
        return response

    async def request(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> Response:
        await self.send(request(method, path, headers, body))
        return await self.response(bodiless=method == "HEAD")

    async def event(self, parser: EventParser) -> ServerSentEvent:
        """Return the next event with data. The head of the stream was read before."""
        while True:
            chunk = await self.chunk()
            assert chunk, "the stream ended"
            if events := parser.feed(chunk):
                assert len(events) == 1, events
                return events[0]


def request(
    method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> bytes:
    """Return the bytes of a request. Host and Content-Length are added."""
    headers = {"Host": "localhost", **(headers or {})}
    if body and "Content-Length" not in headers:
        headers["Content-Length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def message(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    full = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
    return {key: value for key, value in full.items() if value is not None}


def modern_headers(body: Any) -> dict[str, str]:
    params = body.get("params", {})
    name = params.get("name", params.get("uri"))
    headers = {
        **HEADERS,
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": body["method"],
    }
    return headers if name is None else {**headers, "Mcp-Name": name}


class Site:
    """A server on loopback, and requests to it."""

    def __init__(self, server: Server, port: int, stopping: trio.Event) -> None:
        self.server = server
        self.port = port
        self.stopping = stopping

    @asynccontextmanager
    async def wire(self) -> AsyncIterator[Wire]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        try:
            yield Wire(stream)
        finally:
            await trio.aclose_forcefully(stream)

    async def send(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        async with self.wire() as wire:
            return await wire.request(method, path, headers or {}, body)

    async def post(
        self, body: Any, headers: dict[str, str] | None = None, **more: str
    ) -> Response:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send(
            "POST", "/mcp", {**HEADERS, **(headers or {}), **more}, sent
        )

    async def modern(
        self, method: str, params: Any = None, id: Any = 1, **headers: str
    ) -> Response:
        body = message(
            method,
            {**(params or {}), "_meta": {**MODERN, **(params or {}).get("_meta", {})}},
            id,
        )
        return await self.post(body, {**modern_headers(body), **headers})

    async def open_session(
        self,
        version: str = "2025-11-25",
        capabilities: Any = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, str]:
        """Open a session, and return the headers of its requests."""
        opening = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        response = await self.post(message("initialize", opening), headers)
        assert response.json["result"]["protocolVersion"] == version
        headers = {
            **HEADERS,
            **(headers or {}),
            "Mcp-Session-Id": response.headers["mcp-session-id"],
            "MCP-Protocol-Version": version,
        }
        noted = await self.post(
            {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers
        )
        assert (noted.status, noted.body) == (202, b"")
        return headers


@asynccontextmanager
async def site(
    server: Server, upgrade: Upgrade | None = None, **options: Any
) -> AsyncIterator[Site]:
    stopping = trio.Event()
    async with server.running(), trio.open_nursery() as nursery:
        start = partial(
            serve_http,
            server,
            "127.0.0.1",
            0,
            stopping=stopping,
            upgrade=upgrade,
            settings=HttpSettings(**options),
        )
        ((_, port),) = await nursery.start(start)
        yield Site(server, port, stopping)
        nursery.cancel_scope.cancel()


HOSTS = ["native", "hypercorn"]


@asynccontextmanager
async def site_on(host: str, server: Server, **options: Any) -> AsyncIterator[Site]:
    """Serve on either host. The native one also takes WebSockets, as `serve` does."""
    settings = HttpSettings(**options)
    stopping = trio.Event()
    if host == "native":
        upgrade = partial(serve_websocket, server, stopping=stopping)
        start = partial(
            serve_http,
            server,
            "127.0.0.1",
            0,
            stopping=stopping,
            upgrade=upgrade,
            settings=settings,
        )
    else:
        start = partial(
            serve_hypercorn,
            server,
            "127.0.0.1",
            0,
            stopping=stopping,
            settings=settings,
        )
    async with server.running(), trio.open_nursery() as nursery:
        ((_, port),) = await nursery.start(start)
        yield Site(server, port, stopping)
        nursery.cancel_scope.cancel()


class Signals:
    """Events that tests and tools wait for."""

    def __init__(self) -> None:
        self.begun = trio.Event()
        self.go = trio.Event()
        self.cleaned = trio.Event()


def make_server(signals: Signals | None = None, **options: Any) -> Server:
    """Return a server with a tool of each kind that tests of HTTP need."""
    signals = signals or Signals()
    server = Server("there", **options)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait() -> str:
        """Wait for `signals.go`."""
        try:
            signals.begun.set()
            await signals.go.wait()
            return "went"
        finally:
            signals.cleaned.set()

    @server.tool
    async def steps(context: Context, count: int = 3) -> str:
        """Report progress."""
        for step in range(count):
            await context.progress(step, count)
        return "all"

    @server.tool
    async def step_and_wait(context: Context) -> str:
        """Report progress, wait for `signals.go`, and report progress again."""
        try:
            await context.progress(1)
            signals.begun.set()
            await signals.go.wait()
            await context.progress(2)
            return "went"
        finally:
            signals.cleaned.set()

    return server
