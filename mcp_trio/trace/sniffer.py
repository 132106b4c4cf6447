"""Parse HTTP, server-sent events and WebSocket messages from forwarded bytes.

The recorder forwards bytes first. A sniffer then parses a copy of them and writes the
messages into the trace, so a problem here cannot disturb the conversation.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

import httptools
from msgspec import UNSET, Struct, UnsetType

from ..client.event_parser import EventParser
from .format import Http, Sender, Transport

if TYPE_CHECKING:
    from wsproto.frame_protocol import FrameProtocol

# The recorder writes placeholders for the values of some of them: see `privacy`.
_RECORDED_HEADERS = frozenset(
    (
        "accept",
        "allow",
        "authorization",
        "content-encoding",
        "content-type",
        "cookie",
        "last-event-id",
        "origin",
        "retry-after",
        "www-authenticate",
    )
)
_EVENT_FIELDS = ("id", "event", "retry")
_SWITCHING_PROTOCOLS = 101
# httptools stops parsing HTTP after any request with an Upgrade header, although a
# server may ignore the header. So headers for protocols other than WebSocket are
# renamed.
_OTHER_UPGRADE = re.compile(rb"\r\nupgrade:(?! *websocket)", re.IGNORECASE)


class LineFields(TypedDict, total=False):
    """The optional fields of a trace line. See `format.Line`."""

    stream: int | UnsetType
    http: Http
    event: dict[str, str]
    raw: str
    ends: bool
    cut: bool


class NoteLine(Protocol):
    """A callback that is called with each line for the trace."""

    def __call__(
        self,
        sender: Sender,
        data: bytes | None = None,
        **fields: Unpack[LineFields],
    ) -> None:
        """Write the line."""


class NoteTransport(Protocol):
    """A callback that is called with the transport when it is known."""

    def __call__(self, *, transport: Transport) -> object:
        """Set the transport."""


def say(problem: str) -> None:
    """Print one line to stderr, if it is still open."""
    with suppress(OSError, ValueError):
        print(f"record: {problem}", file=sys.stderr, flush=True)


def public(url: str) -> str:
    """Return a URL or path without its user, its password and its query values."""
    without_user = re.sub("(?<=://)[^/?#]*@", "", url)
    path, mark, query = without_user.partition("?")
    return path + mark + re.sub("=[^&]*", "=", query)


def _ignore(data: bytes) -> None:
    """Drop bytes, of a side whose bytes cannot be parsed."""


class SniffedExchange(Struct):
    """A request and its response."""

    stream: int
    method: str = ""
    # The head of an upgrade request. It is recorded if the server does not upgrade.
    held: Http | None = None
    # Whether one side ended before the response was complete.
    ended: bool = False


class SniffedConnection:
    """The two sides of one connection.

    Call `client` and `server` with each chunk that the side sends, and with an empty
    one at its end.

    `note` and `update_header` are methods of a `Recorder`. `own` is the authority of
    the recorder's own URL. `numbers` yields a stream number for each request.
    """

    def __init__(
        self,
        note: NoteLine,
        update_header: NoteTransport,
        own: str,
        numbers: Iterator[int],
    ) -> None:
        self.note = note
        self.update_header = update_header
        # The exchanges whose response is not complete.
        self.waiting: deque[SniffedExchange] = deque()
        port = own.rpartition(":")[2]
        self._own_authorities = (own, f"localhost:{port}")
        self._numbers = numbers
        self._last: SniffedExchange | None = None
        self.client = _ClientSide(self)
        self.server = _ServerSide(self)

    def begin_exchange(self, method: str = "") -> SniffedExchange:
        """Begin an exchange for a request that the client has sent."""
        exchange = SniffedExchange(next(self._numbers), method)
        self._last = exchange
        self.waiting.append(exchange)
        return exchange

    def current_exchange(self) -> SniffedExchange:
        """Return the exchange of the response that is being read.

        A response without a request belongs to the last exchange.
        """
        if self.waiting:
            return self.waiting[0]
        if self._last is not None:
            return self._last
        return self.begin_exchange()

    def recorded(self, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers to record, without the recorder's own host."""
        return {
            name: value
            for name, value in headers.items()
            if self._is_recorded(name, value)
        }

    def _is_recorded(self, name: str, value: str) -> bool:
        if name == "host":
            return value not in self._own_authorities
        return name in _RECORDED_HEADERS or name.startswith("mcp-")


class _Side(ABC):
    """One side of a connection, which sends HTTP and then possibly WebSocket frames.

    If its bytes cannot be parsed, this is reported once and the rest is ignored.
    """

    sender: Sender
    is_client: bool

    def __init__(self, connection: SniffedConnection) -> None:
        # Whether a head has begun and is not complete.
        self.reads_head = False
        self._connection = connection
        # The exchange of the message that is being read.
        self._exchange: SniffedExchange | None = None
        self._frames: FrameProtocol | None = None
        self._latest = b""
        self._ended = False
        self._headers: dict[str, str] = {}
        self._http = Http()
        self._body = bytearray()
        # The number of bytes of the body that have arrived, and whether the connection
        # was lost before the end.
        self._received = 0
        self._is_cut = False
        self._parser = self._new_parser()
        # The state of this side is the method that reads its bytes: `_read_http`,
        # `_read_frames`, `_hold_back` of a client, or the function `_ignore`.
        self._read: Callable[[bytes], None] = self._read_http

    def __call__(self, data: bytes) -> None:
        """Parse a chunk, which is empty at the end. Never raises."""
        try:
            if data:
                self._latest = data
                self._read(data)
            elif not self._ended:
                self._ended = True
                self._end()
        except Exception as problem:
            say(
                f"cannot parse what the {self.sender} sent, so the rest of this "
                f"connection is forwarded but not recorded: {problem}"
            )
            self._read = _ignore
            self.reads_head = False
            exchange = self._exchange or self._current_exchange()
            self._note(exchange, raw=self._latest.decode("latin-1"))

    def _note(
        self,
        exchange: SniffedExchange,
        data: bytes | None = None,
        **fields: Unpack[LineFields],
    ) -> None:
        """Note a line on the stream of an exchange."""
        fields["stream"] = exchange.stream
        # The first WebSocket is the conversation itself, and has no number.
        if self._frames is not None and exchange.stream == 1:
            fields["stream"] = UNSET
        self._connection.note(self.sender, data, **fields)

    def _end(self) -> None:
        """Note the end of this side, on each stream that is still open."""
        if self.reads_head:
            raise ValueError("it ended in the middle of a head")
        self._is_cut = self._is_incomplete()
        self.on_message_complete()
        for exchange in self._connection.waiting:
            self._connection.client.release(exchange)
            if self._frames is not None or not exchange.ended:
                self._note(exchange, ends=True)
            exchange.ended = True

    def _is_incomplete(self) -> bool:
        """Return whether a part of the current message has not arrived."""
        if self._exchange is None or self._frames is not None or self._exchange.ended:
            return False
        length = self._headers.get("content-length", "")
        if length.isdecimal():
            return self._received < int(length)
        return "chunked" in self._headers.get("transfer-encoding", "").lower()

    @abstractmethod
    def _new_parser(self) -> Any:
        """Return a parser of requests or responses that calls the `on_` methods."""

    @abstractmethod
    def _current_exchange(self) -> SniffedExchange:
        """Return the exchange for bytes that cannot be parsed."""

    # HTTP

    def _read_http(self, data: bytes) -> None:
        try:
            self._parser.feed_data(_OTHER_UPGRADE.sub(b"\r\nx-upgrade:", data))
        except httptools.HttpParserUpgrade as upgrade:
            end_of_http = upgrade.args[0]
            self._on_upgrade(data[end_of_http:])
        # The parser waits for the body that the headers announce, but a response to
        # HEAD does not have one.
        if self._exchange is not None and self._exchange.method == "HEAD":
            self.on_message_complete()
            self._start_http()

    def _start_http(self) -> None:
        """Read the next bytes as HTTP."""
        self._parser = self._new_parser()
        self._read = self._read_http

    @abstractmethod
    def _on_upgrade(self, rest: bytes) -> None:
        """Handle the bytes that follow the head of an upgrade."""

    @abstractmethod
    def _on_head(self) -> None:
        """Handle a complete head."""

    @abstractmethod
    def _on_message(self, exchange: SniffedExchange) -> None:
        """Record a request or response, or what was not recorded of it yet."""

    def on_message_begin(self) -> None:
        """Start a request or response."""
        self.reads_head = True
        self._headers = {}
        self._body = bytearray()
        self._received = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Repeated headers are joined with a comma."""
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1").strip()
        if key in self._headers:
            text = f"{self._headers[key]}, {text}"
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        """Handle the end of the head."""
        self.reads_head = False
        self._on_head()

    def on_body(self, chunk: bytes) -> None:
        """Add a part of the body."""
        self._received += len(chunk)
        self._body += chunk

    def on_message_complete(self) -> None:
        """Handle the end of a request or response, or of the connection within it."""
        exchange = self._exchange
        if exchange is None or self._frames is not None:
            return
        self._on_message(exchange)
        self._exchange = None

    # WebSocket

    def start_frames(self, exchange: SniffedExchange, extensions: str) -> None:
        """Read the next bytes as WebSocket frames."""
        # Only few recordings need it.
        from wsproto.extensions import Extension, PerMessageDeflate
        from wsproto.frame_protocol import FrameProtocol

        used: list[Extension] = []
        if extensions:
            deflate = PerMessageDeflate()
            deflate.finalize(extensions)
            used.append(deflate)
        # The frames of the client are read as a server reads them.
        self._frames = FrameProtocol(client=not self.is_client, extensions=used)
        self._exchange = exchange
        self._read = self._read_frames

    def _read_frames(self, data: bytes) -> None:
        assert self._frames is not None
        self._frames.receive_bytes(data)
        for frame in self._frames.received_frames():
            if frame.opcode is frame.opcode.CLOSE:
                self(b"")
            elif self._exchange is not None and not frame.opcode.iscontrol():
                payload: Any = frame.payload
                if isinstance(payload, str):
                    payload = payload.encode()
                self._body += payload
                if frame.message_finished:
                    self._note(self._exchange, bytes(self._body))
                    self._body.clear()


class _ClientSide(_Side):
    """The client's side: requests, and then possibly WebSocket frames."""

    sender = "client"
    is_client = True

    def __init__(self, connection: SniffedConnection) -> None:
        super().__init__(connection)
        self._path = ""
        # The bytes after an upgrade request. The response decides how to read them.
        self._held_back = bytearray()

    def release(self, exchange: SniffedExchange) -> None:
        """Record an upgrade request that the server did not accept. HTTP continues."""
        if exchange.held is None:
            return
        head = exchange.held
        exchange.held = None
        self._note(exchange, http=head)
        self._start_http()
        self._read_held_back()

    def start_frames(self, exchange: SniffedExchange, extensions: str) -> None:
        """Read the next bytes as WebSocket frames, beginning with those held back."""
        super().start_frames(exchange, extensions)
        self._read_held_back()

    def _hold_back(self, data: bytes) -> None:
        self._held_back += data

    def _read_held_back(self) -> None:
        data = bytes(self._held_back)
        self._held_back.clear()
        if data:
            self(data)

    def _new_parser(self) -> Any:
        return httptools.HttpRequestParser(self)

    def _current_exchange(self) -> SniffedExchange:
        return self._connection.begin_exchange()

    def _on_upgrade(self, rest: bytes) -> None:
        self._read = self._hold_back
        self._hold_back(rest)

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._path = ""

    def on_url(self, url: bytes) -> None:
        """Add a part of the request's path."""
        self._path += url.decode("latin-1")

    def _on_head(self) -> None:
        method = self._parser.get_method().decode()
        headers = self._connection.recorded(self._headers)
        self._exchange = self._connection.begin_exchange(method)
        self._http = Http(method, self._path, headers=headers)

    def _on_message(self, exchange: SniffedExchange) -> None:
        if self._parser.should_upgrade():
            exchange.held = self._http
        else:
            self._note(exchange, bytes(self._body) or None, http=self._http)


class _ServerSide(_Side):
    """The server's side: responses and event streams, and then possibly frames."""

    sender = "server"
    is_client = False

    def __init__(self, connection: SniffedConnection) -> None:
        super().__init__(connection)
        # Reads the body of the response, if that is an event stream.
        self._events: EventParser | None = None

    def _new_parser(self) -> Any:
        return httptools.HttpResponseParser(self)

    def _current_exchange(self) -> SniffedExchange:
        return self._connection.current_exchange()

    def _on_upgrade(self, rest: bytes) -> None:
        self._read(rest)

    def on_message_begin(self) -> None:
        """Start a response."""
        super().on_message_begin()
        self._events = None

    def _on_head(self) -> None:
        status = self._parser.get_status_code()
        if status == _SWITCHING_PROTOCOLS:
            self._switch_to_frames()
        elif status >= 200:
            self._start_response(status)

    def _switch_to_frames(self) -> None:
        """Read the next bytes of both sides as WebSocket frames."""
        self._connection.update_header(transport="ws")
        exchange = self._connection.current_exchange()
        extensions = self._headers.get("sec-websocket-extensions", "")
        self.start_frames(exchange, extensions)
        exchange.held = None
        self._connection.client.start_frames(exchange, extensions)

    def _start_response(self, status: int) -> None:
        """Handle the head of a final response."""
        headers = self._connection.recorded(self._headers)
        self._exchange = self._connection.current_exchange()
        self._connection.client.release(self._exchange)
        self._http = Http(status=status, headers=headers)
        if headers.get("content-type", "").startswith("text/event-stream"):
            self._events = EventParser()
            self._note(self._exchange, http=self._http)

    def on_body(self, chunk: bytes) -> None:
        """Add a part of the body, or note the events that it completes."""
        if self._events is None:
            super().on_body(chunk)
            return
        self._received += len(chunk)
        for fields in self._events.blocks(chunk):
            self._note_event(fields)

    def _note_event(self, fields: list[tuple[str, str]]) -> None:
        """Note an event, unless it is only a comment."""
        data = [value for name, value in fields if name == "data"]
        event = {name: value for name, value in fields if name in _EVENT_FIELDS}
        if self._exchange is not None and (data or event):
            message = "\n".join(data).encode() if data else None
            self._note(self._exchange, message, event=event)
        if event.get("event") == "endpoint":
            self._connection.update_header(transport="sse")

    def _on_message(self, exchange: SniffedExchange) -> None:
        if self._events is None:
            data = bytes(self._body) or None
            self._note(exchange, data, http=self._http, cut=self._is_cut)
        elif not exchange.ended:
            # The connection may end in the middle of an event.
            self.on_body(b"\n\n")
            self._note(exchange, ends=True, cut=self._is_cut)
        if exchange in self._connection.waiting:
            self._connection.waiting.remove(exchange)
