"""What carries a client's messages over the network: Streamable HTTP, HTTP+SSE, WebSocket.

Each looks to the client like one stream of messages both ways: one end of a wire in memory; what comes is put in at the
other. Over Streamable HTTP a task a message posts it and reads what it is answered with.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any
from urllib.parse import urljoin, urlsplit

import httptools
import msgspec
import trio

from .client_messages import NoMessage, parts_of
from .client_sse import Event, Parser
from .protocol import jsonrpc
from .protocol.model import Json
from .protocol.params import VENDOR
from .transports.http.endpoint import NAMED_BY, Mirror, mirrors
from .transports.memory import MemoryWire, memory_pair

Fields = list[tuple[bytes, bytes]]
# Seconds before a stream that has ended is asked for again, where the server has not said.
PATIENCE = 1.0
# Seconds in which a WebSocket has to be open.
TO_OPEN = 10.0


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
            if self.complete:
                return
            if not await self._feed():
                if not self.headers.keys().isdisjoint((b"content-length", b"transfer-encoding")):
                    raise trio.BrokenResourceError("the connection broke within the answer")
                return  # where nothing says how long it is, it is as long as the connection

    async def events(self, parser: Parser) -> AsyncGenerator[Event]:
        """The events of a stream, as they come; any other body is one message, when it is whole."""
        if not self.is_stream and (body := await self.body()):
            yield Event(body.decode(errors="replace"))
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
        return bool(data)


class Connections:
    """Connections to one server, kept for the next request: as many as there are requests at a time."""

    def __init__(self, url: str, token: str = "") -> None:
        parts = urlsplit(url)
        self._fields = bearing(token)
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
        lines = lines_of([(b"Host", self.authority), *self._fields, *headers])
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
        """Close those that are idle, also when all else is cancelled."""
        with trio.CancelScope(shield=True):
            for stream in self._idle:
                await trio.aclose_forcefully(stream)


def bearing(token: str) -> Fields:
    """What says who comes. Raises ValueError."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ValueError("a token is one word of ASCII")
    return [(b"Authorization", b"Bearer " + token.encode())] if token else []


def lines_of(fields: Fields) -> bytes:
    """Headers as they stand in a head."""
    return b"".join(b"%b: %b\r\n" % field for field in fields)


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


def mirrored(message: Json, wanted: Iterable[Mirror] = ()) -> Fields:
    """What a stateless request repeats in its head: what is wanted of its arguments, too."""
    method, version = message.get("method"), _at(message, "params", "_meta", f"{VENDOR}protocolVersion")
    if not version or not isinstance(method, str):
        return []
    params = message["params"]
    fields = [(b"MCP-Protocol-Version", header_value(version)), (b"Mcp-Method", header_value(method))]
    if method in NAMED_BY:
        fields.append((b"Mcp-Name", header_value(params.get(NAMED_BY[method], ""))))
    values = [(header, _at(params, "arguments", *path)) for header, path in wanted]
    return fields + [(header, header_value(value)) for header, value in values if value is not None]


class HttpWire:
    """Streamable HTTP, with a session where the revision opens one. It works in `nursery`."""

    nursery: trio.Nursery

    def __init__(self, url: str, token: str = "") -> None:
        ours, theirs = memory_pair()
        self.receive, self.put = ours.receive, theirs.send
        self._connections = Connections(url, token)
        self._target = target_of(url)
        self._session: Fields = []  # what names it, and its revision
        self._posts: dict[Any, trio.CancelScope] = {}
        self._accepted = trio.Event()  # what the next message has to wait for
        self._accepted.set()
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
        self.nursery.start_soon(self._post, message, parts, before, accepted)

    async def _post(self, message: bytes, parts: list[Json], before: trio.Event, accepted: trio.Event) -> None:
        owed = [part for part in parts if "method" in part and isinstance(part.get("id"), str | int)]
        ids = [part["id"] for part in owed]
        await before.wait()
        headers = [(b"Content-Type", b"application/json"), *self._headers(parts[0] if parts else {})]
        with trio.CancelScope() as scope:
            self._posts.update(dict.fromkeys(ids, scope))
            await self._exchange(headers, message, owed, accepted)
        for id in ids:
            self._posts.pop(id, None)

    def _headers(self, message: Json) -> Fields:
        accept = (b"Accept", b"application/json, text/event-stream")
        is_call = message.get("method") == "tools/call"
        wanted = self._mirrors.get(str(_at(message, "params", "name")), ()) if is_call else ()
        return [accept, *(mirrored(message, wanted) or self._session)]

    async def _exchange(self, headers: Fields, message: bytes, owed: list[Json], accepted: trio.Event) -> None:
        """Post a message, or without one listen, and hand on what comes.

        A stream that ends is asked for again with GET: the session's own always, another where it still owes replies.
        """
        listens, opens = not message, any(part["method"] == "initialize" for part in owed)
        parser = Parser()
        while True:
            method = b"POST" if message else b"GET"
            try:
                async with self._connections.request(method, self._target, headers, message) as response:
                    if not opens:
                        accepted.set()
                    if response.status >= 400 or not (message or response.is_stream):
                        self._fail(owed, f"HTTP {response.status}", await response.body() if message else b"")
                        return
                    with suppress(trio.BrokenResourceError):
                        async for event in response.events(parser):
                            self._take(event.data.encode(), owed, response)
            except (OSError, trio.BrokenResourceError) as problem:
                if message or isinstance(problem, OSError):  # else nobody is there just now
                    self._fail(owed, str(problem) or f"the connection broke: {problem.__cause__}")
                    return
            finally:
                accepted.set()
            if not (parser.last_id and self._session):
                self._fail(owed, "the stream ended before the reply")
            if not listens and not owed:
                return
            await trio.sleep(PATIENCE if parser.retry is None else parser.retry / 1000)
            parser = Parser(parser.last_id, parser.retry)
            headers, message = self._headers({}), b""
            if parser.last_id:
                headers.append((b"Last-Event-ID", parser.last_id.encode()))

    def _take(self, message: bytes, owed: list[Json], response: Response) -> None:
        """Hand a message on; a request that it answers is owed no more."""
        try:
            parts = parts_of(message)
        except NoMessage:
            self._fail(owed, "this is no message of JSON-RPC:", message)
            return
        for part in parts:
            for asked in [one for one in owed if "method" not in part and one["id"] == part.get("id")]:
                owed.remove(asked)
                if asked["method"] == "initialize" and "result" in part:
                    self._open(response, part["result"])
                elif asked["method"] == "tools/list":
                    for tool in _at(part, "result", "tools") or ():
                        self._mirrors[str(_at(tool, "name"))] = list(mirrors(_at(tool, "inputSchema")))
        self.put(message)

    def _open(self, response: Response, result: Json) -> None:
        """The session is open: its stream, where the server has one, brings what belongs to no request."""
        self._session = [(b"MCP-Protocol-Version", result.get("protocolVersion", "").encode())]
        if session := response.headers.get(b"mcp-session-id"):
            self._session.append((b"Mcp-Session-Id", session))
        self._accepted = trio.Event()
        self.nursery.start_soon(self._exchange, self._headers({}), b"", [], self._accepted)

    def _fail(self, owed: list[Json], what: str, body: bytes = b"") -> None:
        """Whoever waits for a reply hears what came in its place."""
        try:
            error = msgspec.json.decode(body)["error"]
        except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError, KeyError):
            shown = " ".join(body[:200].decode(errors="replace").split())
            error = {"code": -32603, "message": f"{what} {shown}".strip(), "ours": True}
        for asked in owed:
            self.put(jsonrpc.encode_error(asked["id"], error))
        owed.clear()

    async def aclose(self) -> None:
        """End the session, where there is one: also when all else is cancelled, if it does not take too long."""
        with trio.move_on_after(PATIENCE, shield=True), suppress(OSError, trio.BrokenResourceError):
            if self._session[1:]:
                async with self._connections.request(b"DELETE", self._target, self._headers({})) as response:
                    await response.body()
        await self._connections.aclose()


@asynccontextmanager
async def open_http(url: str, token: str = "", kind: type[HttpWire] = HttpWire) -> AsyncIterator[HttpWire]:
    """A wire over Streamable HTTP."""
    async with aclosing(kind(url, token)) as wire, trio.open_nursery() as wire.nursery:
        yield wire
        wire.nursery.cancel_scope.cancel()


@asynccontextmanager
async def _carried(
    incoming: AsyncIterable[bytes], send: Callable[[bytes], Awaitable[None]]
) -> AsyncIterator[MemoryWire]:
    """A wire that ends with what comes in; its messages are sent one after the other, as their order matters."""
    ours, theirs = memory_pair()

    async def read() -> None:
        async with trio.open_nursery() as writing:
            writing.start_soon(write)
            async for message in incoming:
                theirs.send(message)
            writing.cancel_scope.cancel()
        await theirs.aclose()

    async def write() -> None:
        while messages := await theirs.receive():
            for message in messages:
                await trio.lowlevel.checkpoint()  # many that are there at once are no burst: others have their turn
                await send(message or b"")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield ours
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_sse(url: str, token: str = "") -> AsyncIterator[MemoryWire]:
    """A wire over HTTP+SSE, of the first revisions: one GET brings everything; messages are posted to where it says."""

    async def post(message: bytes) -> None:
        headers = [(b"Content-Type", b"application/json")]
        async with connections.request(b"POST", target, headers, message) as response:
            await response.body()

    connections = Connections(url, token)
    request = connections.request(b"GET", target_of(url), [(b"Accept", b"text/event-stream")])
    async with aclosing(connections), request as response, aclosing(response.events(Parser())) as events:
        endpoint = await anext(events, None)  # it comes first
        if endpoint is None or endpoint.name != "endpoint":
            raise OSError(f"{url}: HTTP {response.status}, no event stream")
        target = target_of(urljoin(url, endpoint.data))
        async with _carried(_whole(events), post) as wire:
            yield wire


async def _whole(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    """What events bring, until the stream ends or breaks: who waits for more hears of that as of any end."""
    with suppress(trio.BrokenResourceError):
        async for event in events:
            yield event.data.encode()


@asynccontextmanager
async def open_websocket(url: str, token: str = "") -> AsyncIterator[MemoryWire]:
    """A wire over WebSocket: one message a text frame."""
    from trio_websocket import ConnectionClosed, ConnectionRejected, wrap_client_stream

    async def said() -> AsyncIterator[bytes]:
        with suppress(ConnectionClosed):
            while True:
                message = await connection.get_message()
                yield message.encode() if isinstance(message, str) else message

    async def say(message: bytes) -> None:
        with suppress(ConnectionClosed):  # which the reader sees too
            await connection.send_message(message.decode())

    with _in_time(url):  # not by the library, which leaves it open where it is rejected
        stream: Any = await Connections(url).connect()
    options: Any = {"subprotocols": ["mcp"], "extra_headers": bearing(token), "max_message_size": 2**62}
    try:
        async with trio.open_nursery() as nursery:
            with _in_time(url):
                host = Connections(url).authority.decode()
                connection = await wrap_client_stream(nursery, stream, host, target_of(url), **options)
            async with connection, _carried(said(), say) as wire:
                yield wire
    except BaseExceptionGroup as group:
        if (rejected := group.subgroup(ConnectionRejected)) is None:
            raise
        (problem,) = rejected.exceptions
        why = f"the server answered with status {problem.status_code}"  # type: ignore[union-attr]
        raise OSError(f"{url} cannot be opened: {why}") from None
    finally:
        await trio.aclose_forcefully(stream)


# What a URL is reached over -> what opens a wire there.
WIRES: dict[str, Callable[[str, str], AbstractAsyncContextManager[HttpWire | MemoryWire]]]
WIRES = {"http": open_http, "sse": open_sse, "ws": open_websocket}


@contextmanager
def _in_time(url: str) -> Iterator[None]:
    try:
        with trio.fail_after(TO_OPEN):
            yield
    except (OSError, trio.TooSlowError):
        raise OSError(f"{url} cannot be opened: nobody there") from None
