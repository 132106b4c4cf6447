"""The connections that a load is sent over: stdio, HTTP and WebSocket.

They are small and synchronous, so that the load itself needs little CPU time.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httptools
import msgspec

from ..client.event_parser import EventParser
from ..client.http_connection import bearer_fields, lines_of, target_of
from ..load_spec import UsageError

if TYPE_CHECKING:
    from wsproto.events import Event

# The most bytes that are read at once.
CHUNK = 2**18
# Seconds to wait for a response.
RESPONSE_TIMEOUT = 20.0


class LoadRequest(msgspec.Struct, frozen=True):
    """A request that is sent repeatedly, each time with another id."""

    # The encoded message without its id and its closing brace.
    start: bytes
    # The HTTP headers that repeat parts of the message.
    head: bytes = b""
    # Whether the expected response is an error.
    fails: bool = False
    method: str = ""
    # Seconds that a user waits before sending it.
    think: float = 0.0

    def message(self, id: int) -> bytes:
        """Return the whole message."""
        return b'%b,"id":%d}' % (self.start, id)


class LoadResult(msgspec.Struct):
    """The part of a result that a load needs."""

    failed: bool = msgspec.field(default=False, name="isError")


class LoadReply(msgspec.Struct):
    """The parts of a server's message that a load needs.

    A message with a method is not a response.
    """

    id: Any = None
    method: str = ""
    result: LoadResult | None = None
    error: Any = None


_decode_reply = msgspec.json.Decoder(LoadReply).decode


def read_reply(message: bytes) -> LoadReply:
    """Decode a message from the server. Raises UsageError."""
    try:
        return _decode_reply(message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UsageError(
            f"this is not an MCP server: it sent {message[:80]!r}"
        ) from None


class LoadConnection(ABC):
    """A connection over two non-blocking file descriptors.

    Each transport frames outgoing messages, and splits what it receives into messages.
    """

    # Whether notifications have a response too, as they do over HTTP.
    answers_all = False

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._use(read_fd, write_fd)

    def _use(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._unsent = b""
        if sys.platform == "win32":
            raise NotImplementedError(
                "bench runs on Linux, macOS and other Unix systems"
            )
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    @abstractmethod
    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """Return a message in the framing of the transport."""

    @abstractmethod
    def messages(self, data: bytes) -> list[bytes]:
        """Return the messages that the received data completes. Raises UsageError."""

    def write(self, requests: list[tuple[LoadRequest, int]]) -> bool:
        """Send requests with their ids. Returns whether everything was sent."""
        framed = [self.framed(one.message(id), one.head) for one, id in requests]
        return self.send(b"".join(framed))

    def send(self, data: bytes) -> bool:
        """Send bytes. Returns whether everything was sent."""
        self._unsent += data
        return self.flush()

    def flush(self) -> bool:
        """Send bytes that were not sent yet. Returns whether everything was sent."""
        try:
            self._unsent = self._unsent[os.write(self.write_fd, self._unsent) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            # The next read reports the reason.
            self._unsent = b""
        return not self._unsent

    def read(self) -> list[bytes]:
        """Return the messages that have arrived, without waiting. Raises UsageError."""
        try:
            data = os.read(self.read_fd, CHUNK)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        if not data:
            return self.ended()
        return self.messages(data)

    def ended(self) -> list[bytes]:
        """Handle the end of the connection. Raises UsageError.

        Returns error messages in place of missing responses.
        """
        raise UsageError("the server has ended the conversation")

    def ask(self, message: bytes, head: bytes = b"", id: int | None = None) -> bytes:
        """Send a message outside of a load, and return its response.

        Without an id, this returns any response, or empty bytes if the transport has
        none. Raises UsageError.
        """
        self.send(self.framed(message, head))
        if id is None and not self.answers_all:
            return b""
        while self._wait_readable():
            for reply in self.read():
                if id is None or read_reply(reply).id == id:
                    return reply
        raise UsageError(f"no response from the server within {RESPONSE_TIMEOUT:g} s")

    def _wait_readable(self) -> bool:
        """Wait until there is something to read. Returns False on a timeout."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.read_fd, selectors.EVENT_READ)
            return bool(selector.select(RESPONSE_TIMEOUT))

    @abstractmethod
    def close(self) -> None:
        """Close the file descriptors that the connection has opened."""


class StdioLoadConnection(LoadConnection):
    """The standard input and output of a process, with a message on each line."""

    _rest = b""

    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """Return a line."""
        return message + b"\n"

    def messages(self, data: bytes) -> list[bytes]:
        """Return the lines that the received data completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def close(self) -> None:
        """Do nothing. Both pipes belong to the process."""


def _connect(url: str) -> socket.socket:
    """Open a TCP connection to the server at a URL. Raises UsageError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "ws"):
        raise UsageError(
            f"{url}: expected an http or ws URL, as bench does not support TLS"
        )
    address = (parts.hostname or "localhost", parts.port or 80)
    try:
        connection = socket.create_connection(address, RESPONSE_TIMEOUT)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{url} cannot be reached: {reason}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class SocketLoadConnection(LoadConnection):
    """A TCP connection to the server at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._use_socket(_connect(url))

    def _use_socket(self, connection: socket.socket) -> None:
        self._socket = connection
        # A descriptor can be registered with a selector only once, so reading and
        # writing need one each.
        self._use(connection.fileno(), os.dup(connection.fileno()))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        os.close(self.write_fd)


class HttpLoadConnection(SocketLoadConnection):
    """An HTTP connection with one request at a time.

    A response is JSON or an event stream. A closed connection is reopened.
    """

    answers_all = True
    # The encoded headers for the session.
    session_headers = b""

    def __init__(self, url: str, token: str = "") -> None:
        headers = [
            (b"Host", urlsplit(url).netloc.encode()),
            *bearer_fields(token),
            (b"Content-Type", b"application/json"),
            (b"Accept", b"application/json, text/event-stream"),
        ]
        target = target_of(url).encode()
        self._start = b"POST %b HTTP/1.1\r\n%b" % (target, lines_of(headers))
        # The headers of the response that was read last, with names in lower case.
        self.headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._replies: list[bytes] = []
        super().__init__(url)

    def _use_socket(self, connection: socket.socket) -> None:
        super()._use_socket(connection)
        self._parser = httptools.HttpResponseParser(self)
        # The message that has no response yet.
        self._request: bytes | None = None
        # Whether the server closes the connection after the response.
        self._closes = False

    def name_session(self, revision: str) -> None:
        """Add the session id of the last response, and a revision, to all requests."""
        headers = []
        session_id = self.headers.get(b"mcp-session-id")
        if session_id:
            headers.append((b"Mcp-Session-Id", session_id))
        if revision:
            headers.append((b"MCP-Protocol-Version", revision.encode()))
        self.session_headers = lines_of(headers)

    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """Return an HTTP request."""
        self._request = message
        return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (
            self._start,
            self.session_headers,
            head,
            len(message),
            message,
        )

    def messages(self, data: bytes) -> list[bytes]:
        """Return the messages of a response that the data completes."""
        self._replies = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as problem:
            raise UsageError(f"the response is not valid HTTP: {problem}") from None
        if self._closes:
            self._reconnect()
        return self._replies

    def on_message_begin(self) -> None:
        """Begin a response. Called by the parser."""
        self.headers = {}
        self._body = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Called by the parser."""
        self.headers[name.lower()] = value

    def on_body(self, chunk: bytes) -> None:
        """Add a part of the body. Called by the parser."""
        self._body.append(chunk)

    def on_message_complete(self) -> None:
        """Store the messages of a response. Called by the parser."""
        body = b"".join(self._body)
        status = self._parser.get_status_code()
        # The final response follows an interim one.
        if status < 200:
            return
        self._closes = not self._parser.should_keep_alive()
        if status >= 400:
            text = body[:200].decode(errors="replace")
            self._replies = [self._failure(f"HTTP {status}: {text}")]
        elif self.headers.get(b"content-type", b"").startswith(b"text/event-stream"):
            self._replies = [event.data.encode() for event in EventParser().feed(body)]
        else:
            self._replies = [body]
        self._request = None

    def ended(self) -> list[bytes]:
        """Open a new connection. Returns an error for a request without a response."""
        replies = []
        if self._request:
            problem = "the server closed the connection without a response"
            replies.append(self._failure(problem))
        self._reconnect()
        return replies

    def _reconnect(self) -> None:
        # The new socket is opened before the old one is closed, so that a selector sees
        # different descriptor numbers.
        connection = _connect(self.url)
        self.close()
        self._use_socket(connection)

    def _failure(self, message: str) -> bytes:
        """Return an error response to the current request."""
        request = msgspec.json.decode(self._request or b"{}")
        error = {"code": 0, "message": message}
        return msgspec.json.encode({"id": request.get("id"), "error": error})


class WebSocketLoadConnection(SocketLoadConnection):
    """A WebSocket, with each message in a text frame."""

    def __init__(self, url: str, token: str = "") -> None:
        # Only this transport needs it.
        from wsproto import ConnectionType, WSConnection, events

        super().__init__(url)
        self._events = events
        # The part of the current message that has arrived.
        self._text = ""
        self._protocol = WSConnection(ConnectionType.CLIENT)
        handshake = events.Request(
            host=urlsplit(url).netloc,
            target=target_of(url),
            subprotocols=["mcp"],
            extra_headers=bearer_fields(token),
        )
        self.send(self._protocol.send(handshake))
        while self._protocol.state.name == "CONNECTING" and self._wait_readable():
            self.read()

    def framed(self, message: bytes, head: bytes = b"") -> bytes:
        """Return a text frame."""
        return bytes(self._protocol.send(self._events.TextMessage(message.decode())))

    def messages(self, data: bytes) -> list[bytes]:
        """Return the messages that the received data completes, and answer pings."""
        messages: list[bytes] = []
        self._protocol.receive_data(data)
        for event in self._protocol.events():
            if isinstance(event, self._events.TextMessage):
                self._text += event.data
                if event.message_finished:
                    messages.append(self._text.encode())
                    self._text = ""
            else:
                self._handle_control(event)
        return messages

    def _handle_control(self, event: Event) -> None:
        """Answer a ping, and report a handshake that the server rejected."""
        if isinstance(event, self._events.Ping):
            self.send(self._protocol.send(event.response()))
        elif isinstance(event, self._events.RejectConnection):
            self.close()
            raise UsageError(
                "the server rejected the WebSocket handshake with status "
                f"{event.status_code}"
            )
