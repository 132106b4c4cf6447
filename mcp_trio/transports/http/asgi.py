"""The MCP endpoint as an ASGI 3 application, for servers that run on trio.

WebSocket handshakes are refused.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from ...protocol.jsonrpc import MAX_MESSAGE
from ...server.app import Server
from ...server.limiter import network
from ...server.runner import LEAKED_SCOPE, ScopeLeaked
from .exchange import Exchange
from .feed import Feed
from .messages import REQUEST_TIMEOUT, TOO_LARGE, Fields, Head, Reply, refusal
from .service import Pending, Service
from .settings import DEFAULT_SETTINGS, HttpSettings

log = logging.getLogger("mcp_trio")

# Named as in the ASGI specification. Every server and framework has its own types for
# these dictionaries, and the ones here are compatible with all of them.
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Any], Awaitable[None]]

# Seconds to receive a body, and to receive the rest of one that was refused.
BODY_TIME = 60.0
LINGER_TIME = 1.0
VERSIONS = ("1.0", "1.1", "2", "3")
CLOSE = ((b"Connection", b"close"),)
# RFC 9112, section 6.1: it is not certain where such a request ends, so the connection
# cannot be used for another one.
AMBIGUOUS_LENGTH = refusal(
    400, "Bad request: expected Content-Length or Transfer-Encoding, got both", CLOSE
)


class Application:
    """The ASGI application that `Server.asgi` returns.

    It matches the whole path of a request, even if it is mounted under a prefix. If it
    receives lifespan events, the server runs from startup to shutdown.
    """

    def __init__(
        self, server: Server, settings: HttpSettings = DEFAULT_SETTINGS
    ) -> None:
        self.service = Service(server, settings)
        self.requests: list[Head] = []  # the requests in progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope: a request, a WebSocket or the lifespan."""
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "expected an ASGI server that runs on trio, got one on asyncio; use, "
                "for example, hypercorn --worker-class trio"
            )
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            await self._serve_request(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Run the server between the startup and the shutdown event."""
        await receive()
        async with self.service.server.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.service.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = _read_head(scope)
        # h11 reads any version as if it were 1.1.
        version = scope["http_version"]
        if version not in VERSIONS:
            problem = f"Bad request: HTTP/{version} is not spoken here"
            await self._send_reply(refusal(400, problem, CLOSE), head, send)
            return
        if not self.service.server.is_running:
            raise RuntimeError(
                "the server is not running; if another application mounts this one, "
                "enter server.running() in its lifespan"
            )
        self.requests.append(head)
        try:
            self.service.sessions.expire(trio.current_time())
            admit = self.service.admission(_address_of_client(scope))
            await self._handle(head, admit(head), receive, send)
        finally:
            self.requests.remove(head)

    async def _handle(
        self, head: Head, refused: Reply | None, receive: Receive, send: Send
    ) -> None:
        """Read the body of a request and answer it, unless it is refused."""
        service = self.service
        if refused is None and service.server.access is not None:
            refused = await service.bearer_auth.identify(head)
        if refused is None:
            body = await _read_body(head, receive)
            if body is None:
                return  # the client has disconnected
            if not isinstance(body, Reply):
                await self._answer(head, body, receive, send)
                return
            refused = body
        service.note_refusal(head, refused)
        if refused is AMBIGUOUS_LENGTH:
            await self._send_reply(refused, head, send)
        else:
            await self._send_refusal(refused, head, receive, send)

    async def _answer(
        self, head: Head, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Answer a request. A call that waits keeps running in this task."""
        answer: Reply | Exchange | Feed
        async with trio.open_nursery() as nursery:
            try:
                # The call may enter its own scopes inside this one.
                with trio.CancelScope() as scope:
                    try:
                        answer_now = self.service.answer(head, body)
                        if isinstance(answer_now, Pending):
                            answer = await answer_now.wait()
                        else:
                            answer = answer_now
                    except ScopeLeaked as leaked:
                        answer = leaked.value
                    if not isinstance(answer, Reply):
                        nursery.start_soon(self._respond, answer, head, receive, send)
                    if isinstance(answer, Exchange):
                        await answer.rest(scope)
            except RuntimeError:
                # The call left a cancel scope open. Its client still gets the response.
                log.exception(LEAKED_SCOPE)
        if isinstance(answer, Reply):
            await self._send_reply(answer, head, send)

    async def _respond(
        self, answer: Exchange | Feed, head: Head, receive: Receive, send: Send
    ) -> None:
        """Wait for a response and send it, unless the client disconnects."""
        reply = None
        is_done = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                _cancel_on_disconnect, answer, receive, nursery.cancel_scope
            )
            if isinstance(answer, Exchange):
                response = await answer.response()
            else:
                response = answer
            if isinstance(response, Reply):
                reply = response
            else:
                await self._send_blocks(response, head, nursery, send)
            is_done = True
            nursery.cancel_scope.cancel()
        if not is_done:
            return
        # hypercorn also reports a disconnect at the end of each response, so nothing
        # may wait for one any more when the end is sent.
        if reply is not None:
            await self._send_reply(reply, head, send)
        else:
            await send({"type": "http.response.body"})

    # Sending

    async def _send_blocks(
        self, feed: Feed, head: Head, nursery: trio.Nursery, send: Send
    ) -> None:
        """Send a stream of events, but not the end of the response."""
        await self._send_start(200, feed.headers, head, send)
        async with feed.open(nursery):
            while True:
                block = await feed.next()
                if not block:
                    return
                await send(_body(block, more_body=True))

    async def _send_reply(self, reply: Reply, head: Head, send: Send) -> None:
        """Send a whole response."""
        await self._send_reply_start(reply, head, send)
        await send(_body(reply.body))

    async def _send_refusal(
        self, reply: Reply, head: Head, receive: Receive, send: Send
    ) -> None:
        """Send a whole response to a request that was not read completely.

        A client that is still sending may not see the response if the connection is
        closed. So the rest of the request is read before the response ends.
        """
        await self._send_reply_start(reply, head, send)
        await send(_body(reply.body, more_body=True))
        with trio.move_on_after(LINGER_TIME):
            while True:
                message = await receive()
                if not message.get("more_body"):
                    break
        await send(_body(b""))

    async def _send_reply_start(self, reply: Reply, head: Head, send: Send) -> None:
        headers = reply.headers
        if reply.status != 204:
            headers += ((b"content-length", b"%d" % len(reply.body)),)
        await self._send_start(reply.status, headers, head, send)

    async def _send_start(
        self, status: int, headers: Fields, head: Head, send: Send
    ) -> None:
        """Send the head of a response. ASGI requires header names in lower case."""
        fields = headers + self.service.guard.cors(head)
        lines = [(name.lower(), value) for name, value in fields]
        await send({"type": "http.response.start", "status": status, "headers": lines})


def _body(data: bytes, *, more_body: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more_body}


def _read_head(scope: Scope) -> Head:
    """Return the head of a request."""
    headers: dict[bytes, bytes] = {}
    for name, field in scope["headers"]:
        value = field.strip(b" \t")
        if name in headers:
            value = headers[name] + b", " + value
        headers[name] = value
    # ASGI's path is decoded, so a question mark in it does not begin the query.
    target = scope["path"].encode().replace(b"?", b"%3F")
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    local = scope.get("server") or ("",)
    return Head(
        scope["method"].encode(),
        target,
        headers,
        local[0],
        scheme=scope.get("scheme", "http"),
        peer=network(_address_of_client(scope)),
    )


def _address_of_client(scope: Scope) -> str:
    client = scope.get("client") or ("unknown",)
    address: str = client[0]
    return address


async def _read_body(head: Head, receive: Receive) -> bytes | Reply | None:
    """Return the body, or its refusal; None if the client has disconnected."""
    headers = head.headers
    declared = int(headers.get(b"content-length", 0))
    # With both headers, a body has two possible ends. Such a request is refused at the
    # first one: at the second, hypercorn would close the connection without a response.
    is_ambiguous = b"content-length" in headers and b"transfer-encoding" in headers
    body = bytearray()
    with trio.move_on_after(LINGER_TIME if is_ambiguous else BODY_TIME):
        while max(declared, len(body)) <= MAX_MESSAGE:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body"):
                return AMBIGUOUS_LENGTH if is_ambiguous else bytes(body)
        return TOO_LARGE
    return AMBIGUOUS_LENGTH if is_ambiguous else REQUEST_TIMEOUT


async def _cancel_on_disconnect(
    answer: Exchange | Feed, receive: Receive, response: trio.CancelScope
) -> None:
    """Cancel a response when the client disconnects.

    This has to wait in `receive` all the time: hypercorn reports a disconnect only to a
    call that is waiting for it.
    """
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
    if isinstance(answer, Exchange):
        answer.client_disconnected()
    response.cancel()
