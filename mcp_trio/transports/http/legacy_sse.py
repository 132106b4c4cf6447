"""HTTP+SSE, the transport of the first revisions.

A GET opens a stream, whose first event says where to post messages. The replies are
sent on that stream.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ...auth.principal import can_stand_in_for
from ...server.accounts import account_at
from ...server.app import Server
from ...server.ledger import Priority
from ...server.serve_conversation import serve_conversation
from ..send_queue import ChargedQueue, QueuedWire, SendQueue
from . import sse
from .event_stream import EventStream
from .feed import Feed
from .messages import Head, Headers, Reply, refusal
from .metrics import Metrics

# The beginning of the query in the URL that messages are posted to.
SESSION = b"session="

NO_SUCH_STREAM = refusal(
    404, "session: no stream of this name is open; GET /sse opens one and names it"
)


class LegacyFeed(Feed, kw_only=True):
    """The stream of one GET. Its conversation lasts as long as the stream."""

    server: Server
    feeds: "dict[bytes, LegacyFeed]"  # the feed adds itself while it is open
    inbox: SendQueue
    address: str
    prefix: str  # the path under which a proxy exposes the server
    request_headers: Headers
    query: bytes  # of the URL that messages are posted to

    @asynccontextmanager
    async def open(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Serve the conversation inside this block."""
        self.feeds[self.query] = self
        try:
            async with super().open(nursery):
                endpoint = self.prefix.encode() + b"/messages?" + self.query
                self.stream.head = sse.encode(endpoint, name=b"endpoint")
                nursery.start_soon(self._converse)
                yield
        finally:
            del self.feeds[self.query]

    async def _converse(self) -> None:
        await serve_conversation(
            self.server,
            QueuedWire(self.inbox, self.stream, self.request_headers),
            self.principal,
            transport="sse",
            address=self.address,
        )
        self.stream.close()


class LegacySse:
    """The server side of HTTP+SSE.

    `prefix` is the path under which a proxy exposes the server.
    """

    def __init__(self, server: Server, metrics: Metrics, prefix: str = "") -> None:
        self._prefix = prefix
        self._server = server
        self._metrics = metrics
        # The open feeds, by the query of the URL that messages are posted to.
        self._feeds: dict[bytes, LegacyFeed] = {}

    def new_query(self) -> bytes:
        """Return the query of the URL to which a client posts its messages."""
        return SESSION + secrets.token_urlsafe(24).encode()

    def get(self, head: Head) -> LegacyFeed:
        """Return the response to a GET: a stream that begins a conversation."""
        stream = EventStream()
        account = account_at(head.peer, head.principal)
        stream.charge_to(self._server.ledger, account)
        return LegacyFeed(
            stream,
            self._metrics,
            access=self._server.access,
            principal=head.principal,
            token=head.token,
            server=self._server,
            feeds=self._feeds,
            inbox=ChargedQueue(
                self._server.ledger, account, "bodies", Priority.REQUEST
            ),
            address=head.peer,
            prefix=self._prefix,
            request_headers=head.headers,
            query=self.new_query(),
        )

    def post(self, head: Head, body: bytes) -> Reply:
        """Receive a message for the conversation that the query names."""
        feed = self._feeds.get(head.query)
        if feed is None or not can_stand_in_for(head.principal, feed.principal):
            return NO_SUCH_STREAM
        if feed.inbox.is_full:
            return refusal(
                503, "Too many unanswered messages; wait for replies and try again"
            )
        feed.inbox.send(body)
        return Reply(202)

    def end_input(self) -> None:
        """Accept no more messages. Each conversation ends after its last reply."""
        for feed in self._feeds.values():
            feed.inbox.close()

    def close(self) -> None:
        """Release what does not belong to a single stream. Here, there is nothing."""
