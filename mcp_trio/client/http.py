"""Streamable HTTP.

To the client, the wire is one stream of messages in each direction. Internally, each
message is posted by its own task, which passes on the replies. In a revision with
sessions, another task reads the session's own stream.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import msgspec
import trio

from ..protocol import jsonrpc
from ..protocol.mirrored_headers import (
    NAMED_BY,
    NAMED_BY_IN_EXTENSIONS,
    Mirror,
    invalid_mirror,
    mirrors,
)
from ..protocol.params import VENDOR
from ..protocol.types import Json
from .buffered_wire import MessageQueue
from .errors import NotAMessage
from .event_parser import EventParser
from .http_connection import Connections, Fields, Response, target_of
from .messages import split_batch
from .token import Token

# Seconds before a stream that ended is resumed, unless the server sends another time.
RETRY_DELAY = 1.0
# Seconds that ending a session may take.
CLOSE_TIMEOUT = 1.0

_ACCEPT = (b"Accept", b"application/json, text/event-stream")
_CONTENT_TYPE = (b"Content-Type", b"application/json")


def _at(value: Any, *path: str) -> Any:
    """Return the value at a path in nested objects, or None if there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def header_value(value: Any) -> bytes:
    """Encode a value for a header, in base64 if a header cannot contain it."""
    text = value if isinstance(value, str) else jsonrpc.encode(value).decode()
    is_printable = text.isascii() and text.isprintable()
    is_stripped = text == text.strip()
    if is_printable and is_stripped and not text.startswith("=?"):
        return text.encode()
    return b"=?base64?%b?=" % b64encode(text.encode())


def mirrored(message: Json, arguments: Iterable[Mirror] = ()) -> Fields:
    """Return the headers that repeat parts of a stateless request.

    `arguments` are the tool's arguments that are repeated in headers. Messages of
    revisions with sessions have no such headers.
    """
    method = message.get("method")
    version = _at(message, "params", "_meta", f"{VENDOR}protocolVersion")
    if not version or not isinstance(method, str):
        return []
    params = message["params"]
    fields = [
        (b"MCP-Protocol-Version", header_value(version)),
        (b"Mcp-Method", header_value(method)),
    ]
    named_by = NAMED_BY.get(method) or NAMED_BY_IN_EXTENSIONS.get(method)
    if named_by is not None:
        name = params.get(named_by, "")
        fields.append((b"Mcp-Name", header_value(name)))
    for header, path in arguments:
        value = _at(params, "arguments", *path)
        if value is not None:
            fields.append((header, header_value(value)))
    return fields


def _objects_in(message: bytes) -> list[Json]:
    """Return the objects of a batch, or a single object, without further checks."""
    decoded = msgspec.json.decode(message)
    batch = decoded if isinstance(decoded, list) else [decoded]
    return [part for part in batch if isinstance(part, dict)]


class _ClientExchange:
    """One HTTP request and its response, and the requests that resume the response.

    The first request posts `body`, whose messages are `parts`. An exchange without a
    body reads the session's own stream. `accepted` is set when the next message may be
    posted.
    """

    def __init__(self, body: bytes = b"", parts: Sequence[Json] = ()) -> None:
        requests = [part for part in parts if "method" in part and "id" in part]
        self.body = body
        # The message that is repeated in the headers.
        self.message: Json = parts[0] if parts else {}
        # The requests in the body that have no reply yet.
        self.unanswered = [one for one in requests if isinstance(one["id"], str | int)]
        self.accepted = trio.Event()
        self.is_session_stream = not body
        self.opens_session = any(one["method"] == "initialize" for one in requests)
        # Whether the messages that are sent later must not overtake this one.
        self.keeps_order = self.opens_session or not requests
        self.parser = EventParser()

    def resume(self) -> None:
        """Prepare the GET that requests the rest of the stream."""
        self.message = {}
        self.body = b""
        # The response to that GET begins at the start of an event.
        self.parser = EventParser(self.parser.last_id, self.parser.retry)


class HttpWire:
    """A wire over Streamable HTTP. Its tasks run in `nursery`.

    If a request fails, the wire replies to it with an error. With `verbatim`, the wire
    receives only what the server sent, unchanged.
    """

    nursery: trio.Nursery

    def __init__(self, url: str, token: Token = "", *, verbatim: bool = False) -> None:
        self._incoming = MessageQueue()
        self.connections = Connections(url, token)
        self._target = target_of(url)
        self._verbatim = verbatim
        # The headers for the revision and the session. Empty until it is open.
        self._session: Fields = []
        # By the id of each request in progress, the scope of the task that posts it.
        self._posts: dict[Any, trio.CancelScope] = {}
        # The next message waits for this, so that it does not overtake others.
        self._accepted = trio.Event()
        self._accepted.set()
        # By the name of a tool, its arguments that are repeated in headers.
        self._mirrors: dict[str, list[Mirror]] = {}

    async def receive(self) -> list[bytes | None]:
        """Wait for messages from the server."""
        return await self._incoming.take()

    def send(self, message: bytes) -> None:
        """Post a message.

        Without a session, a request is cancelled by closing its stream.
        """
        exchange = _ClientExchange(message, _objects_in(message))
        first = exchange.message
        if first.get("method") == "notifications/cancelled" and not self._session:
            self._cancel(_at(first, "params", "requestId"))
            return
        previous = self._accepted
        if exchange.keeps_order:
            self._accepted = exchange.accepted
        self.nursery.start_soon(self._post, exchange, previous)

    def _cancel(self, id: Any) -> None:
        if isinstance(id, str | int) and id in self._posts:
            self._posts[id].cancel()

    async def _post(self, exchange: _ClientExchange, previous: trio.Event) -> None:
        ids = [request["id"] for request in exchange.unanswered]
        await previous.wait()
        with trio.CancelScope() as scope:
            for id in ids:
                self._posts[id] = scope
            await self._run(exchange)
        for id in ids:
            self._posts.pop(id, None)

    async def _run(self, exchange: _ClientExchange) -> None:
        """Make the exchange's request, and resume its response whenever that ends.

        The session's own stream is always resumed, and other responses as long as
        replies are missing.
        """
        while True:
            try:
                has_succeeded = await self._make_request(exchange)
            finally:
                exchange.accepted.set()
            if not has_succeeded:
                return
            can_resume = exchange.parser.last_id and self._session
            if not can_resume:
                self._fail(exchange.unanswered, "the stream ended before the reply")
            if not exchange.is_session_stream and not exchange.unanswered:
                return
            retry = exchange.parser.retry
            await trio.sleep(RETRY_DELAY if retry is None else retry / 1000)
            exchange.resume()

    async def _make_request(self, exchange: _ClientExchange) -> bool:
        """Make one request and receive the messages in its response.

        Returns False if the request failed and the exchange is over.
        """
        request = self.connections.request(
            b"POST" if exchange.body else b"GET",
            self._target,
            self._headers(exchange),
            exchange.body,
        )
        try:
            async with request as response:
                if not exchange.opens_session:
                    exchange.accepted.set()
                if await self._fail_if_refused(exchange, response):
                    return False
                with suppress(trio.BrokenResourceError):
                    async for event in response.events(exchange.parser):
                        self._receive(
                            event.data.encode(), exchange.unanswered, response
                        )
        except trio.BrokenResourceError as problem:
            # A stream is resumed later, as the server may be back by then.
            if exchange.body:
                self._fail_broken(exchange, problem)
                return False
        except OSError as problem:
            self._fail_broken(exchange, problem)
            return False
        return True

    def _headers(self, exchange: _ClientExchange) -> Fields:
        fields = []
        if exchange.body:
            fields.append(_CONTENT_TYPE)
        fields.append(_ACCEPT)
        fields += self._context_headers(exchange.message)
        if not exchange.body and exchange.parser.last_id:
            fields.append((b"Last-Event-ID", exchange.parser.last_id.encode()))
        return fields

    def _context_headers(self, message: Json) -> Fields:
        """Return the headers of a stateless request, or those of the session."""
        arguments: list[Mirror] = []
        if message.get("method") == "tools/call":
            tool = str(_at(message, "params", "name"))
            arguments = self._mirrors.get(tool, [])
        return mirrored(message, arguments) or self._session

    async def _fail_if_refused(
        self, exchange: _ClientExchange, response: Response
    ) -> bool:
        """Fail the requests if the response has no messages. Returns whether it did."""
        if exchange.body:
            if response.status < 400:
                return False
            body = await response.body()
        else:
            if response.status < 400 and response.is_stream:
                return False
            body = b""
        self._fail(exchange.unanswered, f"HTTP {response.status}", body)
        return True

    def _receive(
        self, message: bytes, unanswered: list[Json], response: Response
    ) -> None:
        """Pass on a message, and note which requests it replies to."""
        try:
            parts = split_batch(message)
        except NotAMessage:
            self._fail(unanswered, "expected a JSON-RPC message, got:", message)
            return
        for part in parts:
            if "method" not in part:
                self._note_reply(part, unanswered, response)
        self._incoming.put(message)

    def _note_reply(
        self, reply: Json, unanswered: list[Json], response: Response
    ) -> None:
        """Remove the request that a reply belongs to, and use what the reply says."""
        id = reply.get("id")
        answered = [request for request in unanswered if request["id"] == id]
        for request in answered:
            unanswered.remove(request)
            if request["method"] == "initialize" and "result" in reply:
                self._open_session(response, reply["result"])
            elif request["method"] == "tools/list":
                self._note_mirrors(reply)

    def _note_mirrors(self, reply: Json) -> None:
        for tool in _at(reply, "result", "tools") or ():
            name = str(_at(tool, "name"))
            schema = _at(tool, "inputSchema")
            # An invalid header name must not be used in a request.
            if invalid_mirror(schema) is None:
                self._mirrors[name] = list(mirrors(schema))
            else:
                self._mirrors[name] = []

    def _open_session(self, response: Response, result: Json) -> None:
        """Store the headers of the session, and start to read its own stream."""
        version = result.get("protocolVersion", "").encode()
        self._session = [(b"MCP-Protocol-Version", version)]
        id = response.headers.get(b"mcp-session-id")
        if id:
            self._session.append((b"Mcp-Session-Id", id))
        stream = _ClientExchange()
        self._accepted = stream.accepted
        self.nursery.start_soon(self._run, stream)

    def _fail_broken(self, exchange: _ClientExchange, problem: Exception) -> None:
        reason = str(problem) or f"the connection was lost: {problem.__cause__}"
        self._fail(exchange.unanswered, reason)

    def _fail(self, unanswered: list[Json], reason: str, body: bytes = b"") -> None:
        """Reply to the requests with the error in the body, or else with our own."""
        if self._verbatim:
            if body:
                self._incoming.put(body)
        else:
            error = _error_in(body)
            if error is None:
                shown = " ".join(body[:200].decode(errors="replace").split())
                message = f"{reason} {shown}".strip()
                error = {"code": -32603, "message": message, "ours": True}
            for request in unanswered:
                self._incoming.put(jsonrpc.encode_error(request["id"], error))
        unanswered.clear()

    async def aclose(self) -> None:
        """End the session and close the connections, even in a cancelled scope."""
        with (
            trio.move_on_after(CLOSE_TIMEOUT, shield=True),
            suppress(OSError, trio.BrokenResourceError),
        ):
            await self._end_session()
        await self.connections.aclose()

    async def _end_session(self) -> None:
        has_id = len(self._session) > 1
        if has_id:
            request = self.connections.request(
                b"DELETE", self._target, [_ACCEPT, *self._session]
            )
            async with request as response:
                await response.body()


def _error_in(body: bytes) -> Any:
    """Return the error of a JSON-RPC reply, or None if the body is not one."""
    try:
        return msgspec.json.decode(body)["error"]
    except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError, KeyError):
        return None


@asynccontextmanager
async def open_http(
    url: str, token: Token = "", *, verbatim: bool = False
) -> AsyncIterator[HttpWire]:
    """Open a wire over Streamable HTTP."""
    async with (
        aclosing(HttpWire(url, token, verbatim=verbatim)) as wire,
        trio.open_nursery() as nursery,
    ):
        wire.nursery = nursery
        yield wire
        nursery.cancel_scope.cancel()
