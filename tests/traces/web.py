"""Scenarios over HTTP: a client that sends and records the exact bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import trio

from mcp_trio import Server
from mcp_trio.client.http_connection import Response
from mcp_trio.protocol.jsonrpc import encode
from mcp_trio.protocol.mirrored_headers import NAMED_BY, NAMED_BY_IN_EXTENSIONS
from mcp_trio.trace.format import Http, Line
from mcp_trio.transports.http.server import serve_http

from .playing import VENDOR, Json, Said, Scenario, Talk, initialize, line, note

# The headers of a response that the protocol defines.
KEPT = ("allow", "content-type", "mcp-session-id")
TYPES = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
HEADERS = Mapping[str, str | None]
NOTHING: HEADERS = {}


class Exchange:
    """A request and its response, which may be a stream of events."""

    def __init__(self, talk: HttpTalk, stream: trio.abc.Stream) -> None:
        self.number = talk.next_exchange()
        self.status = 0
        self.headers: dict[str, str] = {}
        self._talk = talk
        self._stream = stream
        self._response = Response(stream)
        self._chunks = self._response.chunks()
        self._rest = b""

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    def record(self, sender: Any, data: bytes | None = None, **about: Any) -> Any:
        """Add a line to the trace, and return its message, if it has one."""
        about |= {"stream": self.number}
        made = (
            Line(t=0.0, sender=sender, **about)
            if data is None
            else line(sender, data, **about)
        )
        self._talk.lines.append(made)
        return json.loads(bytes(made.message)) if made.message else None

    async def answer(self) -> list[Any]:
        """Wait for the response, and return its messages.

        Of a stream, only the head is read.
        """
        await self._response.head()
        self.status = self._response.status
        headers = {
            name.decode(): value.decode()
            for name, value in self._response.headers.items()
        }
        self.headers = {name: headers[name] for name in KEPT if name in headers}
        http = Http(status=self.status, headers=self.headers)
        if self._response.is_stream:
            self.record("server", http=http)
            return []
        body = await self._response.body() if self.status != 204 else b""
        await self._stream.aclose()
        return [self.record("server", body or None, http=http)]

    async def event(self) -> Any:
        """Return the next event's message, or None. Raises EOFError at the end."""
        while True:
            head, mark, rest = self._rest.partition(b"\n\n")
            if mark:
                self._rest = rest
                fields = dict(
                    part.partition(b":")[::2]
                    for part in head.split(b"\n")
                    if part[:1] != b":"
                )
                if fields:
                    return self._event(
                        {name.decode(): value.strip() for name, value in fields.items()}
                    )
                continue
            chunk = await anext(self._chunks, b"")
            if not chunk:
                self.record("server", ends=True)
                await self._stream.aclose()
                raise EOFError
            self._rest += chunk

    def _event(self, fields: dict[str, bytes]) -> Any:
        data = fields.pop("data", None)
        event = {name: value.decode() for name, value in fields.items()}
        if data:
            return self.record("server", data, event=event)
        return self.record(
            "server", event=event if data is None else {**event, "data": ""}
        )

    async def rest(self) -> list[Any]:
        """Return all messages up to the end of the stream."""
        messages = []
        while True:
            try:
                messages.append(await self.event())
            except EOFError:
                return [message for message in messages if message is not None]

    async def leave(self) -> None:
        """Close the connection before the response has ended."""
        self.record("client", ends=True)
        await self._chunks.aclose()  # type: ignore[attr-defined]
        await trio.aclose_forcefully(self._stream)


class HttpTalk(Talk):
    """A client over HTTP that uses a connection for each exchange."""

    def __init__(self, revision: str, port: int) -> None:
        super().__init__(revision)
        self._port = port
        self._exchanges = 0
        self.session: dict[str, str] = {}

    def next_exchange(self) -> int:
        """Return the number of the next exchange."""
        self._exchanges += 1
        return self._exchanges

    async def _connect(self) -> Exchange:
        return Exchange(self, await trio.open_tcp_stream("127.0.0.1", self._port))

    async def begin(
        self,
        message: Said | None = None,
        headers: HEADERS = NOTHING,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> Exchange:
        """Send a request. A header that is None is left out."""
        exchange = await self._connect()
        body = (
            b""
            if message is None
            else message
            if isinstance(message, bytes)
            else encode(message)
        )
        given = {
            **(TYPES if method == "POST" else {}),
            **self.session,
            **self._mirrored(message),
            **headers,
        }
        sent = {name: value for name, value in given.items() if value is not None}
        exchange.record("client", body or None, http=Http(method, path, headers=sent))
        fields = {"host": "localhost", "content-length": str(len(body)), **sent}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await exchange.send(
            f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body
        )
        return exchange

    def _mirrored(self, message: Any) -> dict[str, str]:
        """Return the headers that repeat parts of a stateless request."""
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = (
            meta.get(VENDOR + "protocolVersion") if isinstance(meta, dict) else None
        )
        if not isinstance(version, str) or self.opens:
            return {}
        named_by = {**NAMED_BY, **NAMED_BY_IN_EXTENSIONS}.get(message["method"])
        name = {} if named_by is None else {"mcp-name": params[named_by]}
        return {
            "mcp-protocol-version": version,
            "mcp-method": message["method"],
            **name,
        }

    async def exchange(
        self, message: Said | None = None, headers: HEADERS = NOTHING, **where: Any
    ) -> Exchange:
        """Send a request and read its response. Of a stream, read only the head."""
        exchange = await self.begin(message, headers, **where)
        await exchange.answer()
        return exchange

    async def say(self, *messages: Said) -> list[Any]:
        """Post messages one at a time, and return everything received."""
        come: list[Any] = []
        for message in messages:
            exchange = await self.begin(message)
            come += await exchange.answer()
            if exchange.headers.get("content-type") == "text/event-stream":
                come += await exchange.rest()
        return [one for one in come if one is not None]

    async def refused(
        self,
        message: Said | None,
        status: int,
        headers: HEADERS = NOTHING,
        **where: Any,
    ) -> None:
        """Send a request that must get this status."""
        exchange = await self.exchange(message, headers, **where)
        assert exchange.status == status, (exchange.status, message, headers, where)

    async def raw(self, data: bytes, status: int = 400) -> None:
        """Send bytes that are not valid HTTP."""
        exchange = await self._connect()
        exchange.record("client", raw=data.decode("latin-1"))
        await exchange.send(data)
        await exchange.answer()
        assert exchange.status == status, (exchange.status, data)

    async def open(self, capabilities: Json | None = None) -> None:
        """Open a session if the revision has sessions."""
        self.capabilities = capabilities or {}
        if self.opens:
            self.session = {}
            opened = await self.exchange(initialize(self.revision, self.capabilities))
            self.session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            self.session["mcp-protocol-version"] = self.revision
            await self.say(note("notifications/initialized"))

    async def quiet(self) -> list[Any]:
        """Return nothing: over HTTP, all messages are read as they arrive."""
        return []


async def played_over_http(scenario: Scenario, server: Server) -> HttpTalk:
    """Play a scenario against a server on loopback."""
    with trio.fail_after(30):
        async with server.running(), trio.open_nursery() as nursery:
            start = partial(serve_http, server, "127.0.0.1", 0, stopping=trio.Event())
            ((_, port),) = await nursery.start(start)
            talk = HttpTalk(scenario.revision, port)
            await scenario.play(talk)
            nursery.cancel_scope.cancel()
    return talk
