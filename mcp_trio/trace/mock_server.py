"""Serve a mock over standard input and output, or over Streamable HTTP."""

from __future__ import annotations

import math
import uuid

import httptools
import msgspec
import trio
from msgspec import Struct

from ..protocol.types import Json
from ..transports.address import parse_address
from ..transports.stdio import claim, open_wire
from .compare import ABSENT, json_text, value_at
from .format import JsonValue, parsed
from .mock import MockConversation, MockMessage, MockScript

_CHUNK = 2**16
_REASONS = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
}
_JSON = "application/json"
_EVENTS = "text/event-stream"
# The messages for a client's stream. A trace is small, so there is no limit.
_MessageQueue = trio.MemorySendChannel[MockMessage]


# Standard input and output


async def mock_stdio(script: MockScript) -> None:
    """Serve one client, until its input ends."""
    with claim() as (reading, writing):
        async with open_wire(reading, writing) as wire:
            conversation = MockConversation(script)
            while messages := await wire.receive():
                for message in messages:
                    for reply in conversation.receive(message or b""):
                        wire.send(msgspec.json.encode(reply.message))


# Streamable HTTP


class _Request(Struct):
    """An HTTP request."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = {}
    body: bytes = b""


class _RequestReader:
    """Reads requests from the bytes of a connection."""

    def __init__(self) -> None:
        self.requests: list[_Request] = []
        self._parser = httptools.HttpRequestParser(self)
        self._request = _Request()
        self._body = bytearray()

    def feed(self, data: bytes) -> None:
        """Read a chunk. Raises httptools.HttpParserError."""
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """Start a request."""
        self._request = _Request(headers={})
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        """Add a part of the path."""
        self._request.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._request.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, chunk: bytes) -> None:
        """Add a part of the body."""
        self._body += chunk

    def on_message_complete(self) -> None:
        """Finish a request."""
        self._request.method = self._parser.get_method().decode()
        self._request.body = bytes(self._body)
        self.requests.append(self._request)


class _MockSession:
    """One client: its conversation, and the streams that it has open."""

    def __init__(self, script: MockScript) -> None:
        self.conversation = MockConversation(script)
        # By the id of a request, as JSON: the stream for its answer.
        self.streams: dict[str, _MessageQueue] = {}
        # The stream of a GET request, and the messages that wait for it.
        self.listener: _MessageQueue | None = None
        self.waiting: list[MockMessage] = []

    def deliver(self, message: MockMessage) -> None:
        """Send a message to the stream of its request, or else to the listener."""
        stream = self.streams.get(json_text(message.request))
        if message.request is not ABSENT and stream is not None:
            stream.send_nowait(message)
        elif self.listener is not None:
            self.listener.send_nowait(message)
        else:
            self.waiting.append(message)

    def listen(self, stream: _MessageQueue) -> None:
        """Send the messages that belong to no request to this stream."""
        self.listener = stream
        for message in self.waiting:
            stream.send_nowait(message)
        self.waiting.clear()


class MockHttpServer:
    """A mock server over HTTP. Each `initialize` opens a new session."""

    def __init__(self, script: MockScript) -> None:
        self._script = script
        self._sessions: dict[str, _MockSession] = {}
        # For clients without a session id.
        self._shared = _MockSession(script)

    async def serve(
        self,
        listen: str,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen on `[HOST:]PORT` until cancelled. The task status is the URL.

        Raises ValueError if the address is invalid, and OSError.
        """
        host, port = parse_address(listen)
        listeners = await trio.open_tcp_listeners(port, host=host)
        own_port = listeners[0].socket.getsockname()[1]
        own_host = f"[{host}]" if ":" in host else host
        task_status.started(f"http://{own_host}:{own_port}/mcp")
        await trio.serve_listeners(self._serve_connection, listeners)

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        reader = _RequestReader()
        response = _Response(stream)
        try:
            while True:
                while not reader.requests:
                    chunk = await stream.receive_some(_CHUNK)
                    if not chunk:
                        return
                    reader.feed(bytes(chunk))
                await self._serve_request(reader.requests.pop(0), response)
        except (trio.BrokenResourceError, httptools.HttpParserError):
            return
        finally:
            await trio.aclose_forcefully(stream)

    async def _serve_request(self, request: _Request, response: _Response) -> None:
        id = request.headers.get("mcp-session-id", "")
        session = self._sessions.get(id) if id else self._shared
        if session is None:
            await response.send(404, b"the session does not exist, or has ended")
        elif request.method == "POST":
            await self._post(request, response, session)
        elif request.method == "GET":
            await self._get(response, session)
        elif request.method == "DELETE":
            self._sessions.pop(id, None)
            await response.send(200)
        else:
            await response.send(405)

    async def _post(
        self, request: _Request, response: _Response, session: _MockSession
    ) -> None:
        message = parsed(request.body)
        headers = {}
        if value_at(message, ["method"]) == "initialize":
            id = uuid.uuid4().hex
            session = self._sessions[id] = _MockSession(self._script)
            headers["mcp-session-id"] = id
        ids = _request_ids(message)
        replies = session.conversation.receive(request.body)
        if not ids:
            for reply in replies:
                session.deliver(reply)
            await response.send(202)
            return
        send_channel, receive_channel = trio.open_memory_channel[MockMessage](math.inf)
        for id_text in ids:
            session.streams[id_text] = send_channel
        for reply in replies:
            session.deliver(reply)
        try:
            await self._respond(response, receive_channel, ids, headers)
        finally:
            for id_text in ids:
                session.streams.pop(id_text, None)

    async def _respond(
        self,
        response: _Response,
        messages: trio.MemoryReceiveChannel[MockMessage],
        ids: set[str],
        headers: dict[str, str],
    ) -> None:
        """Send the messages of a response: one as JSON, several as a stream."""
        first = await messages.receive()
        ids.discard(json_text(first.request) if first.is_last else "")
        if not ids and not self._script.streams_answers:
            data = msgspec.json.encode(first.message)
            await response.send(200, data, type=_JSON, headers=headers)
            return
        await response.start_stream(headers)
        await response.send_event(first.message)
        while ids:
            reply = await messages.receive()
            await response.send_event(reply.message)
            if reply.is_last:
                ids.discard(json_text(reply.request))
        await response.end_stream()

    async def _get(self, response: _Response, session: _MockSession) -> None:
        send_channel, receive_channel = trio.open_memory_channel[MockMessage](math.inf)
        await response.start_stream({})
        session.listen(send_channel)
        async for message in receive_channel:
            await response.send_event(message.message)


def _request_ids(message: JsonValue) -> set[str]:
    """Return the ids of the requests in a body, as JSON."""
    parts = message if isinstance(message, list) else [message]
    ids = set()
    for part in parts:
        if isinstance(part, dict) and "method" in part and "id" in part:
            ids.add(json_text(part["id"]))
    return ids


class _Response:
    """Writes responses to a connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send(
        self,
        status: int,
        body: bytes = b"",
        *,
        type: str = "text/plain",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send a whole response."""
        fields = {**(headers or {}), "content-length": str(len(body))}
        if body:
            fields["content-type"] = type
        await self._stream.send_all(_head(status, fields) + body)

    async def start_stream(self, headers: dict[str, str]) -> None:
        """Send the head of an event stream."""
        fields = {
            **headers,
            "content-type": _EVENTS,
            "cache-control": "no-cache",
            "transfer-encoding": "chunked",
        }
        await self._stream.send_all(_head(200, fields))

    async def send_event(self, message: Json) -> None:
        """Send a message as an event."""
        event = b"event: message\ndata: %b\n\n" % msgspec.json.encode(message)
        await self._stream.send_all(b"%x\r\n%b\r\n" % (len(event), event))

    async def end_stream(self) -> None:
        """Send the end of an event stream."""
        await self._stream.send_all(b"0\r\n\r\n")


def _head(status: int, headers: dict[str, str]) -> bytes:
    rows = [f"HTTP/1.1 {status} {_REASONS[status]}"]
    rows.extend(f"{name}: {value}" for name, value in headers.items())
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")
