"""What looks at the bytes of a network connection once they have passed, and notes what they say."""

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httptools
from msgspec import UNSET, Struct

from ..client.event_parser import EventParser
from .format import Http, Sender

KEPT = frozenset(
    "accept allow content-encoding content-type last-event-id origin retry-after www-authenticate".split()
)
EVENT_FIELDS = ("id", "event", "retry")
# With it the parser takes what follows for another protocol. A server that does not speak that goes on in this one.
OTHER_UPGRADE = re.compile(rb"\r\nupgrade:(?! *websocket)", re.IGNORECASE)


def say(problem: str) -> None:
    """One plain line on stderr."""
    with suppress(OSError, ValueError):  # nobody reads it
        print(f"record: {problem}", file=sys.stderr, flush=True)


def public(url: str) -> str:
    """A URL, or its path, without what may be secret: who asks, and the values in its query."""
    place, mark, query = re.sub("(?<=://)[^/?#]*@", "", url).partition("?")
    return place + mark + re.sub("=[^&]*", "=", query)


class Exchange(Struct):
    """A request and its response."""

    stream: int
    method: str = ""
    held: dict[str, Any] | None = (
        None  # of a request to upgrade, what its response decides whether it is noted
    )
    ended: bool = False  # whether one side has gone before the response was complete


class Connection:
    """The taps of one connection: `client` and `server` take what that side sends, nothing at its end."""

    def __init__(
        self,
        note: Callable[..., None],
        know: Callable[..., Any],
        own: str,
        numbers: Iterator[int],
    ) -> None:
        self.note, self.know = note, know  # as a recorder does
        self.waiting: deque[Exchange] = deque()  # those whose response is not complete
        self._numbers, self._own = numbers, (own, f"localhost:{own.rpartition(':')[2]}")
        self._last: Exchange | None = None
        self.client, self.server = Side(self, "client"), Side(self, "server")

    def ask(self, method: str = "") -> Exchange:
        """A request has come."""
        self._last = Exchange(next(self._numbers), method)
        self.waiting.append(self._last)
        return self._last

    def asked(self) -> Exchange:
        """What a response belongs to. One that nobody has asked for is counted to the request before."""
        return self.waiting[0] if self.waiting else self._last or self.ask()

    def matters(self, name: str, value: str) -> bool:
        """Whether to keep a header: none with a secret, and not our own address."""
        return (
            name in KEPT
            or name.startswith("mcp-")
            or (name == "host" and value not in self._own)
        )


class Side:
    """The tap of one side. Where it cannot read on, it says so once, and looks no more."""

    def __init__(self, connection: Connection, sender: Sender) -> None:
        self.reads_head = False  # whether a head has begun and is not whole
        self._connection = connection
        self._sender: Sender = sender
        self._asks = sender == "client"
        self._exchange: Exchange | None = None  # the one that is read
        self._frames: Any = None  # what reads them, on a WebSocket
        self._behind = bytearray()  # what has come behind a request to upgrade
        self._latest = b""
        self._over = False
        self.renew()

    def renew(self) -> None:
        """Read HTTP."""
        self._parser: Any = (
            httptools.HttpRequestParser if self._asks else httptools.HttpResponseParser
        )(self)
        self._go_on_with(self._read_http)

    def _go_on_with(self, read: Any) -> None:
        self._read, behind, self._behind = read, bytes(self._behind), bytearray()
        if behind:
            self(behind)

    def __call__(self, data: bytes) -> None:
        """Look at what was sent; nothing is the end. Nothing is raised."""
        try:
            if data:
                self._latest = data
                self._read(data)
            elif not self._over:
                self._over = True
                self._end()
        except Exception as problem:
            say(
                f"what the {self._sender} sent cannot be read, and passes unseen from here on: {problem}"
            )
            self._read, self.reads_head = len, False
            exchange = self._exchange or (
                self._connection.ask() if self._asks else self._connection.asked()
            )
            self._note(exchange, raw=self._latest.decode("latin-1"))

    def _note(
        self, exchange: Exchange, data: bytes | None = None, **about: Any
    ) -> None:
        stream = (
            UNSET if self._frames and exchange.stream == 1 else exchange.stream
        )  # a first WebSocket has no number
        self._connection.note(self._sender, data, stream=stream, **about)

    def _end(self) -> None:
        if self.reads_head:
            raise ValueError("it ended within a head")
        self.on_message_complete()
        for exchange in self._connection.waiting:
            self._connection.client.release(exchange)
            if self._frames or not exchange.ended:
                self._note(exchange, ends=True)
            exchange.ended = True

    def release(self, exchange: Exchange) -> None:
        """A request to upgrade has turned out to be one like others."""
        if exchange.held:
            held, exchange.held = exchange.held, None
            self._note(exchange, **held)
            self.renew()

    # HTTP

    def _read_http(self, data: bytes) -> None:
        try:
            self._parser.feed_data(OTHER_UPGRADE.sub(b"\r\nx-upgrade:", data))
        except httptools.HttpParserUpgrade as upgrade:
            if self._asks:
                self._read = self._behind.extend
            self._read(data[upgrade.args[0] :])
        if (
            self._exchange and self._exchange.method == "HEAD"
        ):  # the parser waits for a body that does not come
            self.on_message_complete()
            self.renew()

    def on_message_begin(self) -> None:
        self.reads_head = True
        self._path = ""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._events: EventParser | None = None  # what reads a stream of them

    def on_url(self, url: bytes) -> None:
        self._path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self._headers[key] = (
            f"{self._headers[key]}, {text}" if key in self._headers else text
        )

    def on_headers_complete(self) -> None:
        self.reads_head = False
        headers = {
            name: value
            for name, value in self._headers.items()
            if self._connection.matters(name, value)
        }
        if self._asks:
            self._exchange = self._connection.ask(self._parser.get_method().decode())
            self._http = Http(
                self._exchange.method, public(self._path), headers=headers
            )
        elif (status := self._parser.get_status_code()) == 101:
            self._connection.know(transport="ws")
            for side in (self, self._connection.client):
                side.speak_frames(
                    self._connection.asked(),
                    self._headers.get("sec-websocket-extensions", ""),
                )
        elif status > 199:  # else it is not the last word
            self._exchange = self._connection.asked()
            self._connection.client.release(self._exchange)
            self._http = Http(status=status, headers=headers)
            if headers.get("content-type", "").startswith("text/event-stream"):
                self._events = EventParser()
                self._note(self._exchange, http=self._http)

    def on_body(self, chunk: bytes) -> None:
        if self._events is None:
            self._body += chunk
            return
        for fields in self._events.blocks(chunk):
            data = [value for name, value in fields if name == "data"]
            event = {name: value for name, value in fields if name in EVENT_FIELDS}
            if self._exchange and (data or event):  # else a comment
                self._note(
                    self._exchange,
                    "\n".join(data).encode() if data else None,
                    event=event,
                )
            if event.get("event") == "endpoint":
                self._connection.know(transport="sse")

    def on_message_complete(self) -> None:  # or all of it has come that will
        exchange = self._exchange
        if exchange is None or self._frames:
            return
        if self._asks and self._parser.should_upgrade():
            exchange.held = {"http": self._http}
        elif self._events is None:
            self._note(exchange, bytes(self._body) or None, http=self._http)
        elif not exchange.ended:
            self.on_body(b"\n\n")  # an event that was cut
            self._note(exchange, ends=True)
        if not self._asks and exchange in self._connection.waiting:
            self._connection.waiting.remove(exchange)
        self._exchange = None

    # WebSocket

    def speak_frames(self, exchange: Exchange, extensions: str) -> None:
        """HTTP is over."""
        from wsproto.extensions import PerMessageDeflate
        from wsproto.frame_protocol import FrameProtocol

        deflate = PerMessageDeflate()
        deflate.finalize(extensions)
        self._frames = FrameProtocol(not self._asks, [deflate] if extensions else [])
        self._exchange, exchange.held = exchange, None
        self._go_on_with(self._read_frames)

    def _read_frames(self, data: bytes) -> None:
        self._frames.receive_bytes(data)
        for frame in self._frames.received_frames():
            if frame.opcode is frame.opcode.CLOSE:
                self(b"")
            elif self._exchange and not frame.opcode.iscontrol():
                self._body += (
                    frame.payload.encode()
                    if isinstance(frame.payload, str)
                    else frame.payload
                )
                if frame.message_finished:
                    self._note(self._exchange, bytes(self._body))
                    self._body.clear()
