"""The response to a POST: one reply, or a stream of events."""

import trio
from msgspec import Struct

from ...auth.principal import Principal
from ...server.request import Request
from .event_stream import EventStream
from .messages import (
    JSON,
    NO_REQUESTS,
    Accepted,
    Headers,
    PostedRequests,
    Reply,
    reply,
)
from .sessions import TOO_MANY_SESSIONS, HttpSession, Sessions


class PostResponse(Struct, eq=False):
    """The response to one POST, and the channel of the requests in it.

    It is a stream if a request sends something before its result, or if the client
    prefers a stream. Otherwise it is a reply, whose status depends on the result.
    """

    conversation: HttpSession
    accepted: Accepted
    sessions: Sessions | None  # None if the server keeps none
    headers: Headers = {}  # the headers of the POST
    # The principal of this POST. A later POST may have a token with other scopes.
    principal: Principal | None = None
    # Set in shared sessions only, where other processes may have to answer them.
    requests: PostedRequests = NO_REQUESTS
    reply: Reply | None = None
    _stream: EventStream | None = None
    _decided: trio.Event | None = None  # set when it is either a reply or a stream

    @property
    def is_in_session(self) -> bool:
        """Whether the client can reconnect for the rest of the response."""
        return bool(self.conversation.id)

    # The channel

    def send(self, message: bytes) -> None:
        """Send a message before the result.

        If the client does not accept a stream, the message is sent as an announcement
        of its session.
        """
        if self.accepted.stream:
            self._open_stream().send(message)
        elif self.is_in_session:
            self.conversation.announcements.send(message)

    async def drained(self) -> None:
        """Wait while the client is too far behind."""
        if self._stream is not None:
            await self._stream.drained()

    def release_client(self, retry: int) -> None:
        """Close the connection but continue the request, if the client can reconnect.

        It is asked to do so after `retry` milliseconds.
        """
        if not (self.is_in_session and self.accepted.stream):
            return
        if self.conversation.revision.primes:
            self._open_stream().release_client(retry)

    # The end

    def finish(self, message: bytes | None, request: Request | None) -> None:
        """Complete the response with a result or an error.

        `message` is None if the request was cancelled, and `request` is None for a
        batch.
        """
        if message is None:
            self._end_without_reply()
        elif self._ends_as_stream(message, request):
            stream = self._open_stream()
            stream.send(message)
            stream.close()
        elif request is None:
            self.reply = reply(message, None, None)
        elif request.call.method == "initialize" and request.error is None:
            self.reply = self._open_session(message)
        else:
            self.reply = reply(message, request.error, request.call.revision)
        if self._decided is not None:
            self._decided.set()

    def _end_without_reply(self) -> None:
        """Complete the response to a request that was cancelled.

        A client that has an event id reconnects until it has the reply, which would be
        forever here. So that id becomes invalid, or if nothing was sent yet, the client
        does not get one.
        """
        if self._stream is not None:
            self.conversation.forget_stream(self._stream)
        elif self.accepted.stream:
            self._stream = EventStream()
        else:
            self.reply = Reply(204)
        if self._stream is not None:
            self._stream.close()

    def _ends_as_stream(self, message: bytes, request: Request | None) -> bool:
        if self._stream is not None:
            return True
        if not self.accepted.prefers_stream:
            return False
        if request is None:
            return True
        # Only a reply can have the status of an error, or a Mcp-Session-Id header.
        return request.error is None and request.call.method != "initialize"

    def _open_session(self, message: bytes) -> Reply:
        """Open the session, and return the reply to the successful `initialize`."""
        session = self.conversation
        if self.sessions is None:
            return Reply(200, message, JSON)
        if not self.sessions.open(session):
            return TOO_MANY_SESSIONS
        return Reply(200, message, (*JSON, (b"Mcp-Session-Id", session.id)))

    # For the host

    async def decided(self) -> Reply | EventStream:
        """Wait until this is either a reply or a stream, and return that."""
        if self.reply is None and self._stream is None:
            self._decided = trio.Event()
            await self._decided.wait()
        return self.reply or self._open_stream()

    def _open_stream(self) -> EventStream:
        """Return the stream. This makes the response a stream."""
        if self._stream is None:
            if self.is_in_session:
                self._stream = self.conversation.open_stream(
                    self.principal, self.requests
                )
            else:
                self._stream = EventStream()
                ledger = self.conversation.sessions.ledger
                self._stream.charge_to(ledger, self.conversation.account)
            if self._decided is not None:
                self._decided.set()
        return self._stream
