"""HTTP+SSE with several processes: each message reaches the one that has the stream."""

from __future__ import annotations

import secrets
from typing import Any

from ...auth.principal import Principal, can_stand_in_for
from ...server.app import Server
from ...stores.peer_messages import AnyMessage, SseMessagePosted
from ...stores.peers import Identity, Peers, process_of
from .legacy_sse import NO_SUCH_STREAM, SESSION, LegacyFeed, LegacySse
from .messages import Head, Reply
from .metrics import Metrics


class SharedSse(LegacySse):
    """The server side of HTTP+SSE. Messages may be posted to any process.

    A conversation lasts as long as its stream, so it is lost with its process. The URL
    that a client posts to contains the name of that process.
    """

    def __init__(
        self, server: Server[Any], metrics: Metrics, prefix: str, peers: Peers
    ) -> None:
        super().__init__(server, metrics, prefix)
        self._peers = peers
        peers.observe(self)

    def close(self) -> None:
        """Accept no more messages from other processes."""
        self._peers.stop_observing(self)

    def new_query(self) -> bytes:
        """Return the query of the URL to which a client posts its messages."""
        name = f"{self._peers.new_name()}.{secrets.token_urlsafe(24)}"
        return SESSION + name.encode()

    async def open(self, head: Head) -> LegacyFeed:
        """Return the response to a GET, once messages for it can be forwarded here."""
        await self._peers.wait_until_known()
        return self.get(head)

    def has(self, query: bytes) -> bool:
        """Return whether this process has the stream that a query names."""
        return query in self._feeds

    async def forward(self, head: Head, body: bytes) -> Reply:
        """Send a message to the process that has the stream.

        Raises StoreUnavailable.
        """
        owner = _owner_of(head.query)
        if not await self._peers.exists(owner):
            return NO_SUCH_STREAM
        principal = head.principal
        message = SseMessagePosted(
            head.query,
            body,
            None if principal is None else principal.name,
            [] if principal is None else sorted(principal.scopes),
        )
        await self._peers.send(owner, message)
        return Reply(202)

    # Messages from other processes

    def on_message(self, message: AnyMessage) -> None:
        """Receive a message that was posted to another process."""
        if not isinstance(message, SseMessagePosted):
            return
        feed = self._feeds.get(message.query)
        principal = None
        if message.principal is not None:
            principal = Principal(message.principal, frozenset(message.scopes))
        if feed is None or not can_stand_in_for(principal, feed.principal):
            return
        if not feed.inbox.is_full:
            feed.inbox.send(message.body)

    def on_messages_missed(self) -> None:
        """Do nothing: it is not known which conversations they belonged to."""

    def on_identity_lost(self, identity: Identity) -> None:
        """End the conversations whose messages are not forwarded any more."""
        for query, feed in self._feeds.items():
            if _owner_of(query) == identity.id:
                feed.inbox.close()


def _owner_of(query: bytes) -> str:
    """Return the process that has the stream with this query."""
    return process_of(query.removeprefix(SESSION).decode("latin-1"))
