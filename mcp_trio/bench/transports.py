"""What a load goes over: a server's standard input and output, HTTP connections, WebSockets."""

from __future__ import annotations

import os
import select
import socket
from typing import Any
from urllib.parse import urlsplit

import httptools
import msgspec

from ..client.event_parser import EventParser
from ..client.http_connection import bearing, lines_of, target_of
from ..load_spec import UsageError

CHUNK = 2**18
# Seconds in which something has to come as long as something is owed.
PATIENCE = 20.0


class Request(msgspec.Struct, frozen=True):
    """What is sent again and again, each time under another id."""

    start: bytes  # the message but for its id and the closing brace
    head: bytes = b""  # what HTTP says of it in headers
    fails: bool = False  # whether an error is what it is to be answered with

    def message(self, id: int) -> bytes:
        """The whole message."""
        return b'%b,"id":%d}' % (self.start, id)


class Outcome(msgspec.Struct):
    """What is looked at of a result."""

    failed: bool = msgspec.field(default=False, name="isError")


class Reply(msgspec.Struct):
    """What is looked at of a message that comes: with a method it is none."""

    id: Any = None
    method: str = ""
    result: Outcome | None = None
    error: Any = None


decode = msgspec.json.Decoder(Reply).decode


def read_reply(message: bytes) -> Reply:
    """What a load wants to know of a message. Raises UsageError."""
    try:
        return decode(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UsageError(
            f"what answered is no MCP server: it sent {message[:80]!r}"
        ) from None


class Wire:
    """What all have in common. Each kind says how a message stands on it, and finds those that come."""

    answers_all = False  # also what is no request

    def __init__(self, reads: int, writes: int) -> None:
        self.reads, self.writes = reads, writes
        self._unsent = b""
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)

    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """A message with what stands around it."""
        raise NotImplementedError

    def messages(self, data: bytes) -> list[bytes]:
        """The messages that are complete with what has come."""
        raise NotImplementedError

    def write(self, requests: list[tuple[Request, int]]) -> bool:
        """Send requests under ids; whether all of them have left."""
        return self.send(
            b"".join(
                [
                    self.framed(request.message(id), request.head)
                    for request, id in requests
                ]
            )
        )

    def send(self, data: bytes) -> bool:
        """Send bytes; whether all of them have left."""
        self._unsent += data
        return self.flush()

    def flush(self) -> bool:
        """Send what has not left; whether it has now."""
        try:
            self._unsent = self._unsent[os.write(self.writes, self._unsent) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            self._unsent = b""  # who reads sees why
        return not self._unsent

    def read(self) -> list[bytes]:
        """The messages that have come. Raises UsageError."""
        try:
            data = os.read(self.reads, CHUNK)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        return self.messages(data) if data else self.ended()

    def ended(self) -> list[bytes]:
        """The server has closed it: what is to be taken for its answer. Raises UsageError."""
        raise UsageError("the server has ended the conversation")

    def ask(self, message: bytes, head: bytes = b"", id: int | None = None) -> bytes:
        """Send a message before the load, and wait for what answers it, if anything does. Raises UsageError."""
        self.send(self.framed(message, head))
        if id is None and not self.answers_all:
            return b""
        readable = select.poll()
        readable.register(self.reads, select.POLLIN)
        while readable.poll(PATIENCE * 1000):
            for come in self.read():
                if id is None or read_reply(come).id == id:
                    return come
        raise UsageError(f"the server has not answered within {PATIENCE:g} s")

    def close(self) -> None:
        """The load is over."""


class Pipes(Wire):
    """Standard input and output: a message a line."""

    _rest = b""

    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """A line."""
        return message + b"\n"

    def messages(self, data: bytes) -> list[bytes]:
        """The lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


def connected(url: str) -> socket.socket:
    """A connection to where a URL leads. Raises UsageError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "ws"):
        raise UsageError(
            f"{url}: TLS is not measured; give the http or ws URL behind it"
        )
    try:
        made = socket.create_connection(
            (parts.hostname or "localhost", parts.port or 80), PATIENCE
        )
    except OSError as error:
        raise UsageError(
            f"{url} cannot be reached: {error.strerror or error}"
        ) from None
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class SocketWire(Wire):
    """One over the network."""

    def __init__(self, socket: socket.socket) -> None:
        super().__init__(socket.fileno(), os.dup(socket.fileno()))
        self._socket = socket

    def close(self) -> None:
        """The load is over."""
        self._socket.close()
        os.close(self.writes)


class Http(SocketWire):
    """A connection over which one request goes after the other, each answered with JSON or a stream of events."""

    answers_all = True
    fields = b""  # what names the session

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        fields = [
            (b"Host", urlsplit(url).netloc.encode()),
            *bearing(token),
            (b"Content-Type", b"application/json"),
        ]
        fields.append((b"Accept", b"application/json, text/event-stream"))
        self._start = b"POST %b HTTP/1.1\r\n%b" % (
            target_of(url).encode(),
            lines_of(fields),
        )
        self.headers: dict[bytes, bytes] = {}
        self._come: list[bytes] = []
        self._begin_on(connected(url))

    def _begin_on(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._parser = httptools.HttpResponseParser(self)
        self._asked: bytes | None = None
        self._closes = False

    def name_session(self, revision: str) -> None:
        """Say from now on in which session requests are: that of the response that was read last."""
        fields = {
            b"Mcp-Session-Id": self.headers.get(b"mcp-session-id"),
            b"MCP-Protocol-Version": revision.encode(),
        }
        self.fields = b"".join(
            b"%b: %b\r\n" % (name, value) for name, value in fields.items() if value
        )

    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """A request."""
        self._asked = message
        return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (
            self._start,
            self.fields,
            head,
            len(message),
            message,
        )

    def messages(self, data: bytes) -> list[bytes]:
        """What a response that is complete has brought."""
        self._come = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            raise UsageError(f"what answered is no HTTP: {problem}") from None
        if self._closes:
            self._connect_anew()
        return self._come

    def on_message_begin(self) -> None:
        """The parser has seen a response."""
        self.headers = {}
        self._body: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has read a header."""
        self.headers[name.lower()] = value

    def on_body(self, chunk: bytes) -> None:
        """The parser has read some of the body."""
        self._body.append(chunk)

    def on_message_complete(self) -> None:
        """The parser has read the end."""
        body, status = b"".join(self._body), self._parser.get_status_code()
        if status < 200:  # the answer is still to come
            return
        self._closes = not self._parser.should_keep_alive()
        if status >= 400:
            self._come = [
                self._failure(f"HTTP {status}: {body[:200].decode(errors='replace')}")
            ]
        elif self.headers.get(b"content-type", b"").startswith(b"text/event-stream"):
            self._come = [event.data.encode() for event in EventParser().feed(body)]
        else:
            self._come = [body]
        self._asked = None

    def ended(self) -> list[bytes]:
        """What was asked has failed; what is asked next goes over a new connection."""
        failed = (
            [self._failure("the server closed the connection without an answer")]
            if self._asked
            else []
        )
        self._connect_anew()
        return failed

    def _connect_anew(self) -> None:
        new = connected(
            self.url
        )  # before the old one is closed: so it has other numbers, which a selector tells apart
        self.close()
        self._begin_on(new)

    def _failure(self, what: str) -> bytes:
        asked = msgspec.json.decode(self._asked or b"{}")
        return msgspec.json.encode(
            {"id": asked.get("id"), "error": {"code": 0, "message": what}}
        )


class WebSocket(SocketWire):
    """A WebSocket: a message a text frame."""

    def __init__(self, url: str, token: str = "") -> None:
        from wsproto import ConnectionType, WSConnection, events

        super().__init__(connected(url))
        self._events, self._text = events, ""
        self._protocol = WSConnection(ConnectionType.CLIENT)
        host, target = urlsplit(url).netloc, target_of(url)
        opening = events.Request(
            host=host, target=target, subprotocols=["mcp"], extra_headers=bearing(token)
        )
        self.send(self._protocol.send(opening))
        readable = select.poll()
        readable.register(self.reads, select.POLLIN)
        while self._protocol.state.name == "CONNECTING" and readable.poll(
            PATIENCE * 1000
        ):
            self.read()

    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """A frame."""
        return bytes(self._protocol.send(self._events.TextMessage(message.decode())))

    def messages(self, data: bytes) -> list[bytes]:
        """The text messages; pings are answered."""
        come = []
        self._protocol.receive_data(data)
        for event in self._protocol.events():
            match event:
                case self._events.TextMessage():
                    self._text += event.data
                    if event.message_finished:
                        come.append(self._text.encode())
                        self._text = ""
                case self._events.Ping():
                    self.send(self._protocol.send(event.response()))
                case self._events.RejectConnection():
                    self.close()
                    raise UsageError(
                        f"there is no WebSocket: the server answers with status {event.status_code}"
                    )
        return come
