"""What carries a client's messages over the network: Streamable HTTP, HTTP+SSE, WebSocket.

Each looks to the client like one stream of messages both ways: one end of a wire in memory; what comes is put in at the
other. Over Streamable HTTP a task a message posts it and reads what it is answered with.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import (
    AsyncIterator,
    Iterable,
)
from contextlib import (
    aclosing,
    asynccontextmanager,
    suppress,
)
from typing import Any

import msgspec
import trio

from ..protocol import jsonrpc
from ..protocol.mirrored_headers import NAMED_BY, Mirror, mirrors
from ..protocol.params import VENDOR
from ..protocol.types import Json
from .event_parser import Parser
from .http_connection import Connections, Fields, Response, target_of
from .messages import NotAMessage, parts_of
from .queued_wire import MessageQueue

# Seconds before a stream that has ended is asked for again, where the server has not said.
PATIENCE = 1.0


def _at(value: Any, *path: str) -> Any:
    """What is at a place within objects; None where there is no such place."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def header_value(value: Any) -> bytes:
    """A value as a header has it: encoded where a header could not hold it."""
    text = value if isinstance(value, str) else jsonrpc.encode(value).decode()
    plain = (
        text.isascii()
        and text.isprintable()
        and text == text.strip()
        and not text.startswith("=?")
    )
    return text.encode() if plain else b"=?base64?%b?=" % b64encode(text.encode())


def mirrored(message: Json, wanted: Iterable[Mirror] = ()) -> Fields:
    """What a stateless request repeats in its head: what is wanted of its arguments, too."""
    method, version = (
        message.get("method"),
        _at(message, "params", "_meta", f"{VENDOR}protocolVersion"),
    )
    if not version or not isinstance(method, str):
        return []
    params = message["params"]
    fields = [
        (b"MCP-Protocol-Version", header_value(version)),
        (b"Mcp-Method", header_value(method)),
    ]
    if method in NAMED_BY:
        fields.append((b"Mcp-Name", header_value(params.get(NAMED_BY[method], ""))))
    values = [(header, _at(params, "arguments", *path)) for header, path in wanted]
    return fields + [
        (header, header_value(value)) for header, value in values if value is not None
    ]


class HttpWire:
    """Streamable HTTP, with a session where the revision opens one. It works in `nursery`."""

    nursery: trio.Nursery

    def __init__(self, url: str, token: str = "") -> None:
        self._incoming = MessageQueue()
        self.receive = self._incoming.take
        self.put = self._incoming.put
        self._connections = Connections(url, token)
        self._target = target_of(url)
        self._session: Fields = []  # what names it, and its revision
        self._posts: dict[Any, trio.CancelScope] = {}
        self._accepted = trio.Event()  # what the next message has to wait for
        self._accepted.set()
        self._mirrors: dict[str, list[Mirror]] = {}

    def send(self, message: bytes) -> None:
        """Post a message. A stateless request is cancelled by closing its stream."""
        decoded = msgspec.json.decode(message)
        parts = [
            part
            for part in (decoded if isinstance(decoded, list) else [decoded])
            if isinstance(part, dict)
        ]
        if (
            not self._session
            and parts
            and parts[0].get("method") == "notifications/cancelled"
        ):
            id = _at(parts[0], "params", "requestId")
            if isinstance(id, str | int) and id in self._posts:
                self._posts[id].cancel()
            return
        before, accepted = self._accepted, trio.Event()
        asks = [part["method"] for part in parts if "method" in part and "id" in part]
        if not asks or "initialize" in asks:
            self._accepted = accepted  # what comes behind it must not overtake it
        self.nursery.start_soon(self._post, message, parts, before, accepted)

    async def _post(
        self,
        message: bytes,
        parts: list[Json],
        before: trio.Event,
        accepted: trio.Event,
    ) -> None:
        owed = [
            part
            for part in parts
            if "method" in part and isinstance(part.get("id"), str | int)
        ]
        ids = [part["id"] for part in owed]
        await before.wait()
        headers = [
            (b"Content-Type", b"application/json"),
            *self._headers(parts[0] if parts else {}),
        ]
        with trio.CancelScope() as scope:
            self._posts.update(dict.fromkeys(ids, scope))
            await self._exchange(headers, message, owed, accepted)
        for id in ids:
            self._posts.pop(id, None)

    def _headers(self, message: Json) -> Fields:
        accept = (b"Accept", b"application/json, text/event-stream")
        is_call = message.get("method") == "tools/call"
        wanted = (
            self._mirrors.get(str(_at(message, "params", "name")), ())
            if is_call
            else ()
        )
        return [accept, *(mirrored(message, wanted) or self._session)]

    async def _exchange(
        self, headers: Fields, message: bytes, owed: list[Json], accepted: trio.Event
    ) -> None:
        """Post a message, or without one listen, and hand on what comes.

        A stream that ends is asked for again with GET: the session's own always, another where it still owes replies.
        """
        listens, opens = (
            not message,
            any(part["method"] == "initialize" for part in owed),
        )
        parser = Parser()
        while True:
            method = b"POST" if message else b"GET"
            try:
                async with self._connections.request(
                    method, self._target, headers, message
                ) as response:
                    if not opens:
                        accepted.set()
                    if response.status >= 400 or not (message or response.is_stream):
                        self._fail(
                            owed,
                            f"HTTP {response.status}",
                            await response.body() if message else b"",
                        )
                        return
                    with suppress(trio.BrokenResourceError):
                        async for event in response.events(parser):
                            self._take(event.data.encode(), owed, response)
            except (OSError, trio.BrokenResourceError) as problem:
                if message or isinstance(
                    problem, OSError
                ):  # else nobody is there just now
                    self._fail(
                        owed,
                        str(problem) or f"the connection broke: {problem.__cause__}",
                    )
                    return
            finally:
                accepted.set()
            if not (parser.last_id and self._session):
                self._fail(owed, "the stream ended before the reply")
            if not listens and not owed:
                return
            await trio.sleep(PATIENCE if parser.retry is None else parser.retry / 1000)
            parser = Parser(parser.last_id, parser.retry)
            headers, message = self._headers({}), b""
            if parser.last_id:
                headers.append((b"Last-Event-ID", parser.last_id.encode()))

    def _take(self, message: bytes, owed: list[Json], response: Response) -> None:
        """Hand a message on; a request that it answers is owed no more."""
        try:
            parts = parts_of(message)
        except NotAMessage:
            self._fail(owed, "this is no message of JSON-RPC:", message)
            return
        for part in parts:
            for asked in [
                one
                for one in owed
                if "method" not in part and one["id"] == part.get("id")
            ]:
                owed.remove(asked)
                if asked["method"] == "initialize" and "result" in part:
                    self._open(response, part["result"])
                elif asked["method"] == "tools/list":
                    for tool in _at(part, "result", "tools") or ():
                        self._mirrors[str(_at(tool, "name"))] = list(
                            mirrors(_at(tool, "inputSchema"))
                        )
        self.put(message)

    def _open(self, response: Response, result: Json) -> None:
        """The session is open: its stream, where the server has one, brings what belongs to no request."""
        self._session = [
            (b"MCP-Protocol-Version", result.get("protocolVersion", "").encode())
        ]
        if session := response.headers.get(b"mcp-session-id"):
            self._session.append((b"Mcp-Session-Id", session))
        self._accepted = trio.Event()
        self.nursery.start_soon(
            self._exchange, self._headers({}), b"", [], self._accepted
        )

    def _fail(self, owed: list[Json], what: str, body: bytes = b"") -> None:
        """Whoever waits for a reply hears what came in its place."""
        try:
            error = msgspec.json.decode(body)["error"]
        except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError, KeyError):
            shown = " ".join(body[:200].decode(errors="replace").split())
            error = {"code": -32603, "message": f"{what} {shown}".strip(), "ours": True}
        for asked in owed:
            self.put(jsonrpc.encode_error(asked["id"], error))
        owed.clear()

    async def aclose(self) -> None:
        """End the session, where there is one: also when all else is cancelled, if it does not take too long."""
        with (
            trio.move_on_after(PATIENCE, shield=True),
            suppress(OSError, trio.BrokenResourceError),
        ):
            if self._session[1:]:
                async with self._connections.request(
                    b"DELETE", self._target, self._headers({})
                ) as response:
                    await response.body()
        await self._connections.aclose()


@asynccontextmanager
async def open_http(
    url: str, token: str = "", kind: type[HttpWire] = HttpWire
) -> AsyncIterator[HttpWire]:
    """A wire over Streamable HTTP."""
    async with aclosing(kind(url, token)) as wire, trio.open_nursery() as wire.nursery:
        yield wire
        wire.nursery.cancel_scope.cancel()
