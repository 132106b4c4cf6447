"""One HTTP request to the MCP endpoint while it is answered, the same for every host."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from ...server.dispatch import Conversation, Request, Rest, Work, converse
from ..outbox import Outbox, QueuedWire
from . import endpoint, sse
from .endpoint import Head, Headers, Reply, refusal
from .streams import HttpSession, Stream

if TYPE_CHECKING:
    from .service import Service

# Seconds after which a stream that is silent says a comment.
HEARTBEAT = 15.0


class Feed:
    """A response that is a stream of events. A host sends `headers`, and every block that `next` gives."""

    headers = endpoint.EVENTS

    def __init__(self, service: Service, stream: Stream, after: int | None = None) -> None:
        self._service = service
        self._stream = stream
        self._after = after
        self._begin = b""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While it is entered the stream is this feed's."""
        self._begin = self._stream.attach(self, self._after)
        self._service.metrics.streams += 1
        try:
            yield
        finally:
            self._service.metrics.streams -= 1
            self._stream.detach(self)

    async def next(self) -> bytes:
        """What has to be sent next; nothing at the end."""
        if self._begin:
            block, self._begin = self._begin, b""
            return block
        with trio.move_on_after(HEARTBEAT):
            return await self._stream.take(self)
        return sse.COMMENT


class Exchange:
    """A POST with requests in it: a whole reply, or a stream as soon as one of them has something to say first.

    A host calls `begin` in the turn in which it has read the request. Where that gives no reply, the task in which it
    was called goes on with `rest`, while another takes the response from `response`. For the requests it is the
    channel.
    """

    # What most exchanges, which never wait, have no need of
    scope: trio.CancelScope | None = None
    _stream: Stream | None = None
    _reply: Reply | None = None
    _request: Request | None = None  # None: a batch
    _rest: Rest | None = None

    def __init__(self, service: Service, conversation: Conversation, headers: Headers) -> None:
        self._service = service
        self._conversation = conversation
        self._session = conversation if isinstance(conversation, HttpSession) and conversation.id else None
        self._streams = endpoint.accepts(headers)[1]
        self._prefers_stream = self._streams and endpoint.prefers_stream(headers)
        self._started = perf_counter()
        self._known = trio.Event()  # of which kind the response is

    def send(self, message: bytes) -> None:
        """Say something before the result. Where the client takes no stream, its session's own may carry it."""
        if self._streams:
            self._opened_stream().send(message)
        else:
            self._conversation.channel.send(message)

    async def drained(self) -> None:
        """Wait while the client is too far behind."""
        if self._stream is not None:
            await self._stream.drained()

    def let_go(self, retry: int) -> None:
        """End the connection, not the request: a client that was told where it is comes back for the rest."""
        if self._streams and self._session and self._session.revision.primes:
            self._opened_stream().let_go(retry)

    # For the host

    def begin(self, work: Work) -> Reply | None:
        """Run a request, or a batch, until it first waits: its reply, if it is a whole one that never did."""
        self._request, message, self._rest = self._conversation.begin(work, self)
        if self._rest is None:
            self._end(message)
            return self._reply
        self._service.running.add(self)
        return None

    async def rest(self, scope: trio.CancelScope) -> None:
        """Go on with what waits, in the task that began it, under a scope that ends it."""
        if self._rest is None:
            return
        self.scope = scope
        message = None
        try:
            message = await self._conversation.carry_on(self._request, self._rest, scope)
        finally:
            self._end(message)
            self._service.running.discard(self)

    async def response(self) -> Reply | Feed:
        """The response, as soon as it is known of which kind it is."""
        await self._known.wait()
        return self._reply or Feed(self._service, self._opened_stream())

    def client_gone(self) -> None:
        """The connection has ended. Without a session nobody can come back: that cancels."""
        if self._session is None:
            self.stop()

    def stop(self) -> None:
        """Cancel what still runs."""
        if self.scope is not None:
            self.scope.cancel()

    # The response

    def _opened_stream(self) -> Stream:
        if self._stream is None:
            self._stream = self._session.open_stream() if self._session else Stream()
            self._known.set()
        return self._stream

    def _end(self, message: bytes | None) -> None:
        """Everything is answered; None: cancelled, which has no answer, so that a stream ends without one."""
        request, self._request = self._request, None  # no circle, so that its memory is free at once
        method, error = (request.call.method, request.error) if request else ("other", None)
        outcome = "cancelled" if message is None else "error" if error else "ok"
        self._service.metrics.count(method, outcome, perf_counter() - self._started)
        # An error says what it is by its status, and a new session is named in the head: they are no streams.
        prefers = self._prefers_stream and not error and method != "initialize"
        if self._stream is not None or (self._streams if message is None else prefers):
            stream = self._opened_stream()
            if message is not None:
                stream.send(message)
            stream.close()
        elif message is None:
            self._reply = Reply(204)
        elif request and method == "initialize" and not error and isinstance(self._conversation, HttpSession):
            self._reply = self._service.open_session(self._conversation, request.call.revision, message)
        else:
            status = endpoint.status_of(error, request.call.revision if request else None)
            self._reply = Reply(status, message, endpoint.JSON)
        self._known.set()


# The transport of the first revisions, HTTP+SSE: replies come on the stream of one GET, messages by POST


class LegacyFeed(Feed):
    """The stream of one GET: first it says where to post to. Its conversation ends with it."""

    def __init__(self, service: Service) -> None:
        super().__init__(service, Stream())
        self.inbox = Outbox()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        feeds, id = self._service.legacy_feeds, secrets.token_urlsafe(24).encode()
        feeds[b"session=" + id] = self
        try:
            async with super().open(), trio.open_nursery() as nursery:
                self._begin = sse.encode(b"/messages?session=" + id, name=b"endpoint")
                nursery.start_soon(self._converse)
                yield
                nursery.cancel_scope.cancel()
        finally:
            del feeds[b"session=" + id]

    async def _converse(self) -> None:
        await converse(self._service.server, QueuedWire(self.inbox, self._stream))
        self._stream.close()


def post_legacy(feeds: dict[bytes, LegacyFeed], head: Head, body: bytes) -> Reply:
    """Take a message. What it is answered with comes on the stream that the query names."""
    feed = feeds.get(head.query)
    if feed is None:
        return refusal(404, "session: no stream of this name is open; GET /sse opens one and names it")
    if feed.inbox.is_full:
        return refusal(503, "Too many messages that are not answered yet")
    feed.inbox.send(body)
    return Reply(202)
