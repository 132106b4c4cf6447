"""HTTP+SSE, the transport of the first revisions.

A GET opens a stream, whose first event says where to post messages. The replies come on
that stream.
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

# What the query of a stream's address begins with.
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
    prefix: str  # what a proxy puts before our paths, for clients
    request_headers: Headers
    query: bytes  # of the address that messages are posted to

    @asynccontextmanager
    async def open(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Serve the conversation inside of this block."""
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
    """A server's side of HTTP+SSE.

    `prefix` is what a proxy puts before the paths of the server, for its clients.
    """

    def __init__(self, server: Server, metrics: Metrics, prefix: str = "") -> None:
        self._prefix = prefix
        self._server = server
        self._metrics = metrics
        # The open feeds, by the query of the address that messages are posted to.
        self._feeds: dict[bytes, LegacyFeed] = {}

    def new_query(self) -> bytes:
        """Return the query of the address to which a client posts its messages."""
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
        """Take a message for the conversation that the query names."""
        feed = self._feeds.get(head.query)
        if feed is None or not can_stand_in_for(head.principal, feed.principal):
            return NO_SUCH_STREAM
        if feed.inbox.is_full:
            return refusal(503, "Too many messages that are not answered yet")
        feed.inbox.send(body)
        return Reply(202)

    def end_input(self) -> None:
        """Take no more messages; every conversation ends when it has replied."""
        for feed in self._feeds.values():
            feed.inbox.close()

    def close(self) -> None:
        """Stop using what belongs to the server, not to the streams."""
