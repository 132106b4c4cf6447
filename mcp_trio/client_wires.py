"""What carries a client's messages over the network: Streamable HTTP, HTTP+SSE, WebSocket.

Each looks to the client like one stream of messages both ways. Over HTTP a task a message posts it and reads what it
is answered with.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urljoin, urlsplit

import httptools
import msgspec
import trio

from .client_sse import Event, Parser
from .protocol import jsonrpc
from .protocol.model import Json
from .protocol.params import VENDOR
from .transports.http.endpoint import NAMED_BY, Mirror, mirrors

Fields = list[tuple[bytes, bytes]]
# Seconds before a stream that has ended is asked for again, where the server has not said.
PATIENCE = 1.0


class NetworkWire:
    """What all have in common: the messages that have come, and those that are to be sent."""

    def __init__(self) -> None:
        self._put, self._come = trio.open_memory_channel[bytes](math.inf)
        self._outgoing, self.to_send = trio.open_memory_channel[bytes](math.inf)

    def send(self, message: bytes) -> None:
        """Queue one message."""
        self._outgoing.send_nowait(message)

    def put(self, message: bytes) -> None:
        """A message of the server's."""
        self._put.send_nowait(message)

    def end(self) -> None:
        """Nothing comes any more."""
        self._put.close()

    async def receive(self) -> list[bytes | None]:
        """Every message that is there; nothing at the end."""
        messages: list[bytes | None] = []
        try:
            messages.append(await self._come.receive())
            while True:
                messages.append(self._come.receive_nowait())
        except (trio.EndOfChannel, trio.WouldBlock):
            return messages


class Response:
    """One response while it is read."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.begun = self.complete = False
        self.keeps_alive = False  # whether the connection serves another request
        self._stream = stream
        self._chunks: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._has_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has read a header."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The parser has read the head; an interim one does not count."""
        self._has_head = self.status >= 200
        if not self._has_head:
            self.headers.clear()

    def on_body(self, chunk: bytes) -> None:
        """The parser has read some of the body."""
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        """The parser has read the end."""
        self.complete = self._has_head
        self.keeps_alive = self.complete and bool(self._parser.should_keep_alive())

    @property
    def status(self) -> int:
        """The status code."""
        return int(self._parser.get_status_code())

    @property
    def is_stream(self) -> bool:
        """Whether events come."""
        return self.headers.get(b"content-type", b"").startswith(b"text/event-stream")

    async def head(self) -> None:
        """Wait for the head. Raises trio.BrokenResourceError."""
        while not self._has_head:
            if not await self._feed():
                raise trio.BrokenResourceError(
                    "the connection broke: the server closed the connection without an answer"
                )

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it comes."""
        while True:
            chunks, self._chunks = self._chunks, []
            for chunk in chunks:
                yield chunk
            if self.complete or not await self._feed():
                return

    async def events(self, parser: Parser) -> AsyncIterator[Event]:
        """The events of a stream, as they come."""
        async for chunk in self.chunks():
            for event in parser.feed(chunk):
                yield event

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def _feed(self) -> bool:
        data = await self._stream.receive_some()
        self.begun = self.begun or bool(data)
        if data:
            try:
                self._parser.feed_data(bytes(data))
            except httptools.HttpParserError as problem:
                raise trio.BrokenResourceError(f"the answer is no HTTP: {problem}") from None
        elif b"content-length" not in self.headers and b"transfer-encoding" not in self.headers:
            self.complete = self._has_head
        return bool(data)


class Connections:
    """Connections to one server, kept for the next request: as many as there are requests at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
            raise ValueError(f"{url!r} is no http, https, ws or wss URL")
        self.url, self.host = url, parts.hostname
        self._tls = parts.scheme in ("https", "wss")
        self._port = parts.port or (443 if self._tls else 80)
        self.authority = parts.netloc.rpartition("@")[2].encode()
        self._idle: list[trio.abc.Stream] = []

    @asynccontextmanager
    async def request(self, method: bytes, target: str, headers: Fields, body: bytes = b"") -> AsyncIterator[Response]:
        """Ask, and read the answer's head; a connection whose answer was not read to its end is closed."""
        lines = b"".join(b"%b: %b\r\n" % field for field in [(b"Host", self.authority), *headers])
        head = b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (method, target.encode(), lines, len(body))
        stream, response = await self._ask(head + body)
        try:
            yield response
        finally:
            if response.keeps_alive:
                self._idle.append(stream)
            else:
                await trio.aclose_forcefully(stream)

    async def _ask(self, request: bytes) -> tuple[trio.abc.Stream, Response]:
        while True:
            is_new = not self._idle
            stream = await self.connect() if is_new else self._idle.pop()
            response = Response(stream)
            try:
                await stream.send_all(request)
                await response.head()
            except BaseException as problem:
                await trio.aclose_forcefully(stream)
                # A server may close an idle connection at any time, also when we just begin to use it.
                if is_new or response.begun or not isinstance(problem, trio.BrokenResourceError):
                    raise
            else:
                return stream, response

    async def connect(self) -> trio.abc.Stream:
        """A new connection, which is the caller's."""
        if self._tls:
            return await trio.open_ssl_over_tcp_stream(self.host, self._port, https_compatible=True)
        return await trio.open_tcp_stream(self.host, self._port)

    async def aclose(self) -> None:
        """Close those that are idle."""
        for stream in self._idle:
            await trio.aclose_forcefully(stream)


def target_of(url: str) -> str:
    """What a request line names of a URL."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _at(value: Any, *path: str) -> Any:
    """What is at a place within objects; None where there is no such place."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def header_value(value: Any) -> bytes:
    """A value as a header has it: encoded where a header could not hold it."""
    text = value if isinstance(value, str) else jsonrpc.encode(value).decode()
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?")
    return text.encode() if plain else b"=?base64?%b?=" % b64encode(text.encode())


class HttpWire(NetworkWire):
    """Streamable HTTP, with a session where the revision opens one."""

    def __init__(self, url: str, nursery: trio.Nursery) -> None:
        super().__init__()
        self._connections = Connections(url)
        self._target = target_of(url)
        self._nursery = nursery
        self._opening: Response | None = None  # what brings the reply to initialize
        self._session: Fields = []  # what names it, and its revision
        self._posts: dict[Any, trio.CancelScope] = {}
        self._accepted = trio.Event()  # what the next message has to wait for
        self._accepted.set()
        self._lists: set[Any] = set()  # requests whose results tell of headers
        self._mirrors: dict[str, list[Mirror]] = {}

    def send(self, message: bytes) -> None:
        """Post a message. A stateless request is cancelled by closing its stream."""
        decoded = msgspec.json.decode(message)
        parts = [part for part in (decoded if isinstance(decoded, list) else [decoded]) if isinstance(part, dict)]
        if not self._session and parts and parts[0].get("method") == "notifications/cancelled":
            id = _at(parts[0], "params", "requestId")
            if isinstance(id, str | int) and id in self._posts:
                self._posts[id].cancel()
            return
        before, accepted = self._accepted, trio.Event()
        asks = [part["method"] for part in parts if "method" in part and "id" in part]
        if not asks or "initialize" in asks:
            self._accepted = accepted  # what comes behind it must not overtake it
        self._nursery.start_soon(self._post, message, parts, before, accepted)

    async def _post(self, message: bytes, parts: list[Json], before: trio.Event, accepted: trio.Event) -> None:
        ids = [part["id"] for part in parts if "method" in part and isinstance(part.get("id"), str | int)]
        await before.wait()
        self._lists.update(part["id"] for part in parts if part.get("method") == "tools/list" and part.get("id") in ids)
        first = parts[0] if parts else {}
        headers = [(b"Content-Type", b"application/json"), *self._headers(first)]
        with trio.CancelScope() as scope:
            self._posts.update(dict.fromkeys(ids, scope))
            try:
                async with self._connections.request(b"POST", self._target, headers, message) as response:
                    if first.get("method") != "initialize":
                        accepted.set()
                    await self._read(response, first, ids)
            except (OSError, trio.BrokenResourceError) as problem:
                self._fail(ids, str(problem))
        accepted.set()
        for id in ids:
            self._posts.pop(id, None)

    def _headers(self, message: Json) -> Fields:
        accept = (b"Accept", b"application/json, text/event-stream")
        return [accept, *(self._mirrored(message) or self._session)]

    def _mirrored(self, message: Json) -> Fields:
        """What a stateless request repeats in its head."""
        method, version = message.get("method"), _at(message, "params", "_meta", f"{VENDOR}protocolVersion")
        if not version or not isinstance(method, str):
            return []
        params = message["params"]
        fields = [(b"MCP-Protocol-Version", header_value(version)), (b"Mcp-Method", header_value(method))]
        if method in NAMED_BY:
            fields.append((b"Mcp-Name", header_value(params.get(NAMED_BY[method], ""))))
        mirrored = self._mirrors.get(str(params.get("name")), ()) if method == "tools/call" else ()
        values = [(mirror.header, _at(params, "arguments", *mirror.path)) for mirror in mirrored]
        return fields + [(header, header_value(value)) for header, value in values if value is not None]

    async def _read(self, response: Response, message: Json, ids: list[Any]) -> None:
        if message.get("method") == "initialize":
            self._opening = response
        if response.is_stream:
            await self._read_stream(response, ids)
            return
        body = await response.body()
        if response.status >= 400 and ids:
            self._fail(ids, f"HTTP {response.status}", body)
        elif body:
            self._take(body, ids)

    def _open(self, response: Response, reply: Json) -> None:
        """The session is open: its stream, where the server has one, brings what belongs to no request."""
        version = reply["result"].get("protocolVersion", "")
        self._session = [(b"MCP-Protocol-Version", version.encode())]
        if session := response.headers.get(b"mcp-session-id"):
            self._session.append((b"Mcp-Session-Id", session))
        self._accepted = trio.Event()
        self._nursery.start_soon(self._listen, "", [], self._accepted)

    async def _read_stream(self, response: Response, ids: list[Any]) -> None:
        """The events of a stream; those that a broken one still owes are fetched where they can be."""
        parser = Parser()
        with suppress(trio.BrokenResourceError):
            async for event in response.events(parser):
                self._take(event.data.encode(), ids)
        if ids and parser.last_id and self._session:
            await self._wait(parser)
            await self._listen(parser.last_id, ids, trio.Event())
        elif ids:
            self._fail(ids, "the stream ended before the reply")

    async def _wait(self, parser: Parser) -> None:
        await trio.sleep(PATIENCE if parser.retry is None else parser.retry / 1000)

    async def _listen(self, last_id: str, ids: list[Any], accepted: trio.Event) -> None:
        """Read the session's own stream, or the rest of another; again, when it ends, for as long as it is needed."""
        resuming = bool(ids)
        while not resuming or ids:
            headers = [*self._headers({}), *([(b"Last-Event-ID", last_id.encode())] if last_id else [])]
            parser = Parser(last_id)
            try:
                async with self._connections.request(b"GET", self._target, headers) as response:
                    accepted.set()
                    if not response.is_stream:
                        self._fail(ids, f"HTTP {response.status}")
                        return
                    async for event in response.events(parser):
                        self._take(event.data.encode(), ids)
            except trio.BrokenResourceError:
                pass
            except OSError as problem:  # nobody is there any more
                self._fail(ids, str(problem))
                return
            finally:
                accepted.set()
            last_id = parser.last_id
            await self._wait(parser)

    def _take(self, message: bytes, ids: list[Any]) -> None:
        """Hand a message on; a request that it answers is owed no more."""
        decoded = msgspec.json.decode(message)
        for part in decoded if isinstance(decoded, list) else [decoded]:
            if "method" not in part and (id := part.get("id")) in ids:
                ids.remove(id)
                opening, self._opening = self._opening, None
                if opening is not None and "result" in part:
                    self._open(opening, part)
                if id in self._lists:
                    self._lists.discard(id)
                    for tool in part.get("result", {}).get("tools", ()):
                        self._mirrors[tool["name"]] = list(mirrors(tool.get("inputSchema")))
        self.put(message)

    def _fail(self, ids: list[Any], what: str, body: bytes = b"") -> None:
        """Whoever waits for a reply hears what came in its place."""
        error: Json = {"code": -32603, "message": what}
        try:
            error = msgspec.json.decode(body)["error"]
        except (msgspec.DecodeError, TypeError, KeyError):
            error["message"] = f"{what} {body[:200].decode(errors='replace')}".strip()
        for id in ids:
            self.put(jsonrpc.encode_error(id, error))
        ids.clear()

    async def aclose(self) -> None:
        """End the session, where there is one."""
        if self._session[1:]:
            with suppress(OSError, trio.BrokenResourceError):
                async with self._connections.request(b"DELETE", self._target, self._headers({})) as response:
                    await response.body()
        await self._connections.aclose()


@asynccontextmanager
async def open_http(url: str, kind: type[HttpWire] = HttpWire) -> AsyncIterator[HttpWire]:
    """A wire over Streamable HTTP."""
    async with AsyncExitStack() as at_end, trio.open_nursery() as nursery:
        wire = kind(url, nursery)
        at_end.push_async_callback(_in_time, wire.aclose)  # when nothing uses its connections any more
        yield wire
        nursery.cancel_scope.cancel()


async def _in_time(close: Callable[[], Awaitable[None]]) -> None:
    """Close, also when all else is cancelled, as long as it does not take too long."""
    with trio.move_on_after(PATIENCE, shield=True):
        await close()


@asynccontextmanager
async def open_sse(url: str) -> AsyncIterator[NetworkWire]:
    """A wire over HTTP+SSE, of the first revisions: one GET brings everything; messages are posted to where it says."""
    wire, connections = NetworkWire(), Connections(url)

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        request = connections.request(b"GET", target_of(url), [(b"Accept", b"text/event-stream")])
        async with trio.open_nursery() as nursery, request as response:
            if not response.is_stream:
                raise OSError(f"{url}: HTTP {response.status}, no event stream")
            async for event in response.events(Parser()):
                if event.name == "endpoint":
                    nursery.start_soon(post, target_of(urljoin(url, event.data)))
                    task_status.started()
                else:
                    wire.put(event.data.encode())
            wire.end()
            nursery.cancel_scope.cancel()

    async def post(target: str) -> None:
        async for message in wire.to_send:  # one after the other: their order matters
            headers = [(b"Content-Type", b"application/json")]
            async with connections.request(b"POST", target, headers, message) as response:
                await response.body()

    async with AsyncExitStack() as at_end, trio.open_nursery() as nursery:
        at_end.push_async_callback(_in_time, connections.aclose)
        await nursery.start(run)
        yield wire
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_websocket(url: str) -> AsyncIterator[NetworkWire]:
    """A wire over WebSocket: one message a text frame."""
    from trio_websocket import ConnectionClosed, open_websocket_url

    wire = NetworkWire()
    opened = open_websocket_url(url, subprotocols=["mcp"], max_message_size=2**62)

    async def read() -> None:
        with suppress(ConnectionClosed):
            while True:
                message = await connection.get_message()
                wire.put(message.encode() if isinstance(message, str) else message)
        wire.end()

    async def write() -> None:
        with suppress(ConnectionClosed):  # which the reader sees too
            async for message in wire.to_send:
                await connection.send_message(message.decode())

    async with opened as connection, trio.open_nursery() as nursery:
        nursery.start_soon(read)
        nursery.start_soon(write)
        yield wire
        nursery.cancel_scope.cancel()
