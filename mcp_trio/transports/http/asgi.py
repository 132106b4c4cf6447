"""The MCP endpoint as an ASGI 3 application, for hosts that run on trio.

The handshake of a WebSocket is refused.
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
from .messages import TOO_LARGE, TOO_SLOW, Fields, Head, Reply, refusal
from .service import Pending, Service
from .settings import DEFAULT_SETTINGS, HttpSettings

log = logging.getLogger("mcp_trio")

# As the ASGI specification names them. Every host and framework has its own types for
# these dictionaries; the ones here fit all of them.
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Any], Awaitable[None]]

# Seconds for a body, and for the rest of one that was refused.
BODY_TIME = 60.0
LINGER_TIME = 1.0
VERSIONS = ("1.0", "1.1", "2", "3")
CLOSE = ((b"Connection", b"close"),)
# RFC 9112, section 6.1: bytes that follow such a request may be another one, or not.
TWO_ENDS = refusal(
    400, "Bad request: Content-Length and Transfer-Encoding exclude each other", CLOSE
)


class Application:
    """The ASGI application that `Server.asgi` returns.

    Wherever it is mounted, its paths are those that the client sees. If the host sends
    lifespan events to it, the server runs from startup to shutdown.
    """

    def __init__(
        self, server: Server, settings: HttpSettings = DEFAULT_SETTINGS
    ) -> None:
        self.service = Service(server, settings)
        self.requests: list[Head] = []  # those that are served now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope: a request, a WebSocket or the lifespan."""
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "this application runs on trio, as under hypercorn --worker-class "
                "trio, not on asyncio"
            )
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            await self._serve_request(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Run the server for as long as the host's lifespan lasts."""
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
                "not running: the application that mounts this has to enter "
                "server.running() itself"
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
            refused = await service.bearers.identify(head)
        if refused is None:
            body = await _read_body(head, receive)
            if body is None:
                return  # the client has gone
            if not isinstance(body, Reply):
                await self._answer(head, body, receive, send)
                return
            refused = body
        service.note_refusal(head, refused)
        if refused is TWO_ENDS:
            await self._send_reply(refused, head, send)
        else:
            await self._send_refusal(refused, head, receive, send)

    async def _answer(
        self, head: Head, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Answer a request, whose call runs in this task if it waits."""
        answer: Reply | Exchange | Feed
        async with trio.open_nursery() as nursery:
            try:
                # The call may enter scopes of its own, inside of this one.
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
        """Send a response that takes its time, unless the client goes away."""
        reply = None
        is_done = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, answer, receive, nursery.cancel_scope)
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
        # hypercorn reports a disconnect at the end of a response, too. Nothing must
        # watch for it any more when the end is sent.
        if reply is not None:
            await self._send_reply(reply, head, send)
        else:
            await send({"type": "http.response.body"})

    # Sending

    async def _send_blocks(
        self, feed: Feed, head: Head, nursery: trio.Nursery, send: Send
    ) -> None:
        """Send a stream of events, except for the end of the response."""
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
        """Send a whole response to a request that was not read to its end.

        A client that still sends may not see the response if the host closes the
        connection. So the rest of the request is read before the response ends.
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
        """Send the head of a response. ASGI has the names of headers in lower case."""
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
    # ASGI's path is decoded, so a question mark in it is not the query's.
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
    """Return the body, or its refusal; None if the client has gone."""
    headers = head.headers
    declared = int(headers.get(b"content-length", 0))
    # Such a request is refused when its first end has come. At the second one hypercorn
    # would close the connection without a response.
    has_two_ends = b"content-length" in headers and b"transfer-encoding" in headers
    body = bytearray()
    with trio.move_on_after(LINGER_TIME if has_two_ends else BODY_TIME):
        while max(declared, len(body)) <= MAX_MESSAGE:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body"):
                return TWO_ENDS if has_two_ends else bytes(body)
        return TOO_LARGE
    return TWO_ENDS if has_two_ends else TOO_SLOW


async def _watch(
    answer: Exchange | Feed, receive: Receive, response: trio.CancelScope
) -> None:
    """Cancel a response when the client goes away.

    This has to wait all the time: hypercorn does not tell those that look only once in
    a while.
    """
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
    if isinstance(answer, Exchange):
        answer.client_gone()
    response.cancel()
