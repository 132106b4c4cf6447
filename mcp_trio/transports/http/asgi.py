"""The same endpoint as an ASGI 3 application, for any host on trio; and hypercorn as that host.

A WebSocket's handshake is refused.
"""

import logging
from typing import Any

import trio

from ...protocol.jsonrpc import MAX_MESSAGE
from ...server.app import Server
from ...server.limiter import network
from ...server.runner import SPOILED, Spoiled
from .messages import TOO_LARGE, TOO_SLOW, Fields, Head, Headers, Reply, refusal
from .service import Exchange, Feed, Service
from .settings import DEFAULT_SETTINGS, HttpSettings

log = logging.getLogger("mcp_trio")

# Seconds for a body, and for the rest of one that was refused.
BODY_TIME, LINGER_TIME = 60.0, 1.0
VERSIONS = ("1.0", "1.1", "2", "3")
CLOSE = ((b"Connection", b"close"),)
# RFC 9112, section 6.1: what comes behind it may be a request, or not
TWO_ENDS = refusal(
    400, "Bad request: Content-Length and Transfer-Encoding exclude each other", CLOSE
)


class Application:
    """What `Server.asgi` gives. Wherever it is mounted, its paths are those that the client sees.

    It runs the server for as long as the host's lifespan lasts, if it is told of it.
    """

    def __init__(
        self, server: Server, settings: HttpSettings = DEFAULT_SETTINGS
    ) -> None:
        self.service = Service(server, settings)
        self.requests: list[Head] = []  # under way

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve what ASGI calls a connection: one request, or the lifespan."""
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "this application runs on trio, as under hypercorn --worker-class trio, not on asyncio"
            )
        if scope["type"] == "lifespan":
            await receive()
            async with self.service.server.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
                self.service.close()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        elif scope["http_version"] not in VERSIONS:  # h11 reads any as if it were 1.1
            wrong = f"Bad request: HTTP/{scope['http_version']} is not spoken here"
            await self._reply(refusal(400, wrong, CLOSE), _head(scope), send)
        elif not self.service.server.is_running:
            raise RuntimeError(
                "not running: the application that mounts this has to enter server.running() itself"
            )
        else:
            head = _head(scope)
            self.requests.append(head)
            try:
                await self._answer(head, receive, send)
            finally:
                self.requests.remove(head)

    async def _answer(self, head: Head, receive: Any, send: Any) -> None:
        self.service.sessions.expire(trio.current_time())
        body: Reply | bytes | None = self.service.admit(head)
        if body is None and self.service.server.access is not None:
            body = await self.service.bearers.identify(head)
        body = body or await _body(head.headers, receive)
        if body is None:
            return
        if isinstance(body, Reply):
            self.service.note_refusal(head, body)
        refused = isinstance(body, Reply) and body is not TWO_ENDS
        answer: Reply | Exchange | Feed
        async with trio.open_nursery() as nursery:
            try:
                # Entered before the request begins, which may enter scopes of its own.
                with trio.CancelScope() as request:
                    try:
                        if isinstance(body, Reply):
                            answer = body
                        else:
                            answer = self.service.answer(head, body)
                    except Spoiled as spoiled:
                        answer = spoiled.value
                    if not isinstance(answer, Reply):
                        nursery.start_soon(self._give, answer, head, receive, send)
                    if isinstance(answer, Exchange):
                        await answer.rest(request)
            except RuntimeError:
                # A request left a cancel scope open; its response is given all the same.
                log.exception(SPOILED)
        if isinstance(answer, Reply):
            await self._reply(answer, head, send, receive if refused else None)

    async def _give(
        self, answer: Exchange | Feed, head: Head, receive: Any, send: Any
    ) -> None:
        """Give what takes its time, and watch meanwhile for the client's going away."""
        done = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, answer, receive, nursery.cancel_scope)
            response = (
                await answer.response() if isinstance(answer, Exchange) else answer
            )
            if isinstance(response, Feed):
                await self._start(200, response.headers, head, send)
                async with response.open(nursery):
                    while block := await response.next():
                        await send(
                            {
                                "type": "http.response.body",
                                "body": block,
                                "more_body": True,
                            }
                        )
            done = True
            nursery.cancel_scope.cancel()
        if done and isinstance(
            response, Reply
        ):  # hypercorn calls even an end a disconnect: nobody may watch any more
            await self._reply(response, head, send)
        elif done:
            await send({"type": "http.response.body"})

    async def _reply(
        self, reply: Reply, head: Head, send: Any, unread: Any = None
    ) -> None:
        """Give a whole response; `unread` is by what comes more of the request."""
        length = (
            ((b"content-length", b"%d" % len(reply.body)),)
            if reply.status != 204
            else ()
        )
        await self._start(reply.status, reply.headers + length, head, send)
        body = {"type": "http.response.body", "body": reply.body}
        if (
            unread is not None
        ):  # a host that closes before all has come makes the client miss the no
            await send({**body, "more_body": True})
            body["body"] = b""
            with trio.move_on_after(LINGER_TIME):
                while (await unread()).get("more_body"):
                    pass
        await send(body)

    async def _start(self, status: int, headers: Fields, head: Head, send: Any) -> None:
        lines = [
            (name.lower(), value)
            for name, value in headers + self.service.guard.cors(head)
        ]  # as ASGI has them
        await send({"type": "http.response.start", "status": status, "headers": lines})


def _head(scope: Any) -> Head:
    headers: dict[bytes, bytes] = {}
    for name, given in scope["headers"]:
        value = given.strip(b" \t")
        headers[name] = headers[name] + b", " + value if name in headers else value
    path = scope["path"].encode().replace(b"?", b"%3F")  # it is decoded
    target = path + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    local, scheme = (scope.get("server") or ("",))[0], scope.get("scheme", "http")
    peer = network((scope.get("client") or ("unknown",))[0])
    return Head(
        scope["method"].encode(), target, headers, local, scheme=scheme, peer=peer
    )


async def _body(headers: Headers, receive: Any) -> bytes | Reply | None:
    """The body, or what is wrong with it; None where the client has gone."""
    declared, body = int(headers.get(b"content-length", 0)), bytearray()
    # To refuse what has two ends before the one that hypercorn sees would have it close without a word.
    two_ends = {b"content-length", b"transfer-encoding"} <= headers.keys()
    with trio.move_on_after(LINGER_TIME if two_ends else BODY_TIME):
        while max(declared, len(body)) <= MAX_MESSAGE:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body"):
                return TWO_ENDS if two_ends else bytes(body)
        return TOO_LARGE
    return TWO_ENDS if two_ends else TOO_SLOW


async def _watch(
    answer: Exchange | Feed, receive: Any, response: trio.CancelScope
) -> None:
    """Wait for the client's going away, all the time: who looks only now and then, hypercorn does not tell."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if isinstance(answer, Exchange):
        answer.client_gone()
    response.cancel()
