"""TODO"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
)
from contextlib import (
    asynccontextmanager,
)
from urllib.parse import urlsplit

import httptools
import trio

from .event_parser import Event, Parser

Fields = list[tuple[bytes, bytes]]


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
                if not self.headers.keys().isdisjoint(
                    (b"content-length", b"transfer-encoding")
                ):
                    raise trio.BrokenResourceError(
                        "the connection broke within the answer"
                    )
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
                raise trio.BrokenResourceError(
                    f"the answer is no HTTP: {problem}"
                ) from None
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
    async def request(
        self, method: bytes, target: str, headers: Fields, body: bytes = b""
    ) -> AsyncIterator[Response]:
        """Ask, and read the answer's head; a connection whose answer was not read to its end is closed."""
        lines = lines_of([(b"Host", self.authority), *self._fields, *headers])
        head = b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (
            method,
            target.encode(),
            lines,
            len(body),
        )
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
                if (
                    is_new
                    or response.begun
                    or not isinstance(problem, trio.BrokenResourceError)
                ):
                    raise
            else:
                return stream, response

    async def connect(self) -> trio.abc.Stream:
        """A new connection, which is the caller's."""
        if self._tls:
            return await trio.open_ssl_over_tcp_stream(
                self.host, self._port, https_compatible=True
            )
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
