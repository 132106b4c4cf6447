"""HTTP/1.1 connections to one server, and the responses that are read from them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httptools
import trio

from .event_parser import EventParser, ServerSentEvent
from .token import Token

# Header fields, in order: pairs of a name and a value.
Fields = list[tuple[bytes, bytes]]

# One of these says where a body ends. Without either, it ends with the connection.
_FRAMING_HEADERS = frozenset((b"content-length", b"transfer-encoding"))


class Response:
    """One response, while it is being read.

    The methods whose names begin with `on_` are called by httptools.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.headers: dict[bytes, bytes] = {}
        # Whether any bytes of the response have arrived.
        self.begun = False
        # Whether the whole response has been read.
        self.complete = False
        # Whether the connection can be used for another request.
        self.keeps_alive = False
        self._stream = stream
        self._chunks: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)
        self._has_head = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Note the end of the head, or drop the head of an interim response."""
        self._has_head = self.status >= 200
        if not self._has_head:
            self.headers.clear()

    def on_body(self, chunk: bytes) -> None:
        """Store a part of the body."""
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        """Note the end of the response."""
        self.complete = self._has_head
        self.keeps_alive = self.complete and bool(self._parser.should_keep_alive())

    @property
    def status(self) -> int:
        """The status code."""
        return int(self._parser.get_status_code())

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of server-sent events."""
        return self.headers.get(b"content-type", b"").startswith(b"text/event-stream")

    async def head(self) -> None:
        """Wait for the head. Raises trio.BrokenResourceError."""
        while not self._has_head:
            if not await self._feed():
                raise trio.BrokenResourceError(
                    "the server closed the connection without a response"
                )

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in parts, as they arrive. Raises trio.BrokenResourceError."""
        while True:
            chunks = self._chunks
            self._chunks = []
            for chunk in chunks:
                yield chunk
            if self.complete:
                return
            if not await self._feed():
                if not _FRAMING_HEADERS.isdisjoint(self.headers):
                    raise trio.BrokenResourceError(
                        "the server closed the connection during the response"
                    )
                return

    async def events(self, parser: EventParser) -> AsyncGenerator[ServerSentEvent]:
        """Yield the events of a stream, as they arrive.

        The body of a response that is not a stream becomes a single event.
        """
        if not self.is_stream:
            body = await self.body()
            if body:
                yield ServerSentEvent(body.decode(errors="replace"))
            return
        async for chunk in self.chunks():
            for event in parser.feed(chunk):
                yield event

    async def body(self) -> bytes:
        """Read the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def _feed(self) -> bool:
        """Parse the next bytes. Returns False at the end of the connection."""
        data = await self._stream.receive_some()
        if not data:
            return False
        self.begun = True
        try:
            self._parser.feed_data(bytes(data))
        except httptools.HttpParserError as problem:
            raise trio.BrokenResourceError(
                f"the response is not valid HTTP: {problem}"
            ) from None
        return True


class Connections:
    """A pool of connections to one server, with one for each concurrent request.

    Idle connections are kept for later requests.
    """

    def __init__(self, url: str, token: Token = "") -> None:
        parts = urlsplit(url)
        if isinstance(token, str):
            bearer_fields(token)  # reject an invalid token before anything is sent
        self._token = token
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
            raise ValueError(
                f"expected a URL such as http://127.0.0.1:8000/mcp, got {url!r}"
            )
        self.url = url
        self.host = parts.hostname
        # The value of the Host header: the host, and the port if the URL has one.
        self.authority = parts.netloc.rpartition("@")[2].encode()
        self._tls = parts.scheme in ("https", "wss")
        default_port = 443 if self._tls else 80
        self._port = parts.port or default_port
        self._idle: list[trio.abc.Stream] = []

    @asynccontextmanager
    async def request(
        self, method: bytes, target: str, headers: Fields, body: bytes = b""
    ) -> AsyncIterator[Response]:
        """Send a request and read the head of the response.

        On exit, the connection is closed unless the response was read completely.
        Raises OSError and trio.BrokenResourceError.
        """
        fields = [
            (b"Host", self.authority),
            *await authorization(self._token),
            *headers,
            (b"Content-Length", b"%d" % len(body)),
        ]
        request_line = b"%b %b HTTP/1.1\r\n" % (method, target.encode())
        head = request_line + lines_of(fields) + b"\r\n"
        stream, response = await self._exchange(head + body)
        try:
            yield response
        finally:
            if response.keeps_alive:
                self._idle.append(stream)
            else:
                await trio.aclose_forcefully(stream)

    async def _exchange(self, request: bytes) -> tuple[trio.abc.Stream, Response]:
        while self._idle:
            stream = self._idle.pop()
            response = Response(stream)
            try:
                await _send(stream, request, response)
            except trio.BrokenResourceError:
                # A server may close an idle connection at any time, even when the
                # client is about to use it. Then another connection is tried.
                if response.begun:
                    raise
            else:
                return stream, response
        stream = await self.connect()
        response = Response(stream)
        await _send(stream, request, response)
        return stream, response

    async def connect(self) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
        """Open a connection for the caller, who must close it. Raises OSError."""
        if self._tls:
            return await trio.open_ssl_over_tcp_stream(
                self.host, self._port, https_compatible=True
            )
        return await trio.open_tcp_stream(self.host, self._port)

    async def aclose(self) -> None:
        """Close the idle connections, even in a cancelled scope."""
        with trio.CancelScope(shield=True):
            for stream in self._idle:
                await trio.aclose_forcefully(stream)


async def _send(stream: trio.abc.Stream, request: bytes, response: Response) -> None:
    """Send a request and wait for the head of its response.

    If that fails, the stream is closed.
    """
    try:
        await stream.send_all(request)
        await response.head()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


async def authorization(token: Token) -> Fields:
    """Return the header for a request that is about to be sent. Raises ValueError."""
    return bearer_fields(token if isinstance(token, str) else await token())


def bearer_fields(token: str) -> Fields:
    """Return the header with a bearer token, or no header if it is empty.

    Raises ValueError.
    """
    if not token:
        return []
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("token: expected ASCII characters without spaces")
    return [(b"Authorization", b"Bearer " + token.encode())]


def lines_of(fields: Fields) -> bytes:
    """Encode header fields as the lines of a head."""
    return b"".join(b"%b: %b\r\n" % field for field in fields)


def target_of(url: str) -> str:
    """Return the request target for a URL: its path and its query."""
    parts = urlsplit(url)
    path = parts.path or "/"
    if parts.query:
        return f"{path}?{parts.query}"
    return path
