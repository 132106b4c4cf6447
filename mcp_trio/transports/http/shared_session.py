"""A session that is served by all processes that share the server's store."""

from __future__ import annotations

import secrets
from math import inf
from typing import Any

import trio
from msgspec import Raw

from ...auth.principal import Principal
from ...protocol import jsonrpc
from ...protocol.revisions import Revision, Revisions
from ...protocol.session import Answer
from ...protocol.types import Json
from ...server.app import Server
from ...server.channel import Channel
from ...server.conversation import Conversation
from ...stores.peer_messages import QuestionAnswered, RequestCancelled
from ...stores.peers import Identity, Peers, process_of
from .event_stream import NOWHERE, EventStream
from .messages import NO_REQUESTS, PostedRequests
from .session_record import SessionChanges, SessionRecord, StreamRecord
from .sessions import HISTORY_STREAMS, HttpSession, Sessions
from .stored_stream import Announcements, StoredStream
from .stream_logs import StreamLogs

# The beginning of the ids of the server's own requests.
QUESTION = "ask-"


class SessionKeeper(Sessions):
    """The interface of `SharedSessions` to its sessions."""

    peers: Peers
    logs: StreamLogs
    is_stopping: bool

    async def store(self, session: SharedHttpSession) -> None:
        """Store what a client has set in a session. Raises StoreUnavailable."""
        raise NotImplementedError


class SharedHttpSession(HttpSession):
    """A session as this process knows it.

    `record` is the session in the store as it was last read or written, and None until
    the session is opened. `touched` is when the record's time to live was last renewed.
    """

    __slots__ = (
        "_claim",
        "_grown",
        "_growth",
        "_keeper",
        "followed",
        "home",
        "is_stale",
        "record",
        "touched",
    )

    def __init__(
        self,
        server: Server[Any],
        keeper: SessionKeeper,
        stated: Revision | None = None,
        revisions: Revisions | None = None,
    ) -> None:
        super().__init__(server, keeper, stated, revisions)
        self._keeper = keeper
        self.record: SessionRecord | None = None
        # The process that sends the session's announcements, and the number of its
        # claim.
        self.home = ""
        self._claim = 0
        self.touched = -inf
        # Whether others may have changed the session without this process's knowledge.
        self.is_stale = False
        # Streams of other processes that are sent to clients here, by name.
        self.followed: dict[str, dict[EventStream, None]] = {}
        # How often one of them has grown.
        self._growth = 0
        self._grown = trio.lowlevel.ParkingLot()

    @property
    def is_shared(self) -> bool:  # type: ignore[override]
        """Whether this is a session, and not a single message."""
        return bool(self.id)

    @property
    def is_home(self) -> bool:
        """Whether this process sends the session's announcements."""
        return self.home == self._keeper.peers.identity.id

    def note_home(self, process: str, claim: int) -> None:
        """Note which process sends the announcements.

        Two may claim that at the same time. The later claim counts, in whatever order
        this process hears of them.
        """
        if claim >= self._claim:
            self.home = process
            self._claim = claim

    @property
    def is_busy(self) -> bool:
        """Whether a request is running in the session, or a stream of it is read."""
        return bool(self.followed) or super().is_busy

    # Streams of other processes

    def note_growth(self) -> None:
        """Wake the tasks that follow streams of other processes."""
        self._growth += 1
        self._grown.unpark_all()

    def growth(self) -> int:
        """Return the value for `wait_for_growth`. Call this before reading a stream."""
        return self._growth

    async def wait_for_growth(self, since: int, seconds: float) -> None:
        """Wait until a stream has grown since then, for at most this many seconds."""
        with trio.move_on_after(seconds):
            while self._growth == since:
                await self._grown.park()

    # What the client sets

    async def save(self) -> None:
        """Store what the client has set. Raises StoreUnavailable."""
        # Without `initialize` there is no session.
        if self.session.revision is not None:
            await self._keeper.store(self)

    def changes(self, uris: list[str], *, is_initialized: bool) -> SessionChanges:
        """Return the settings that are not in the record yet.

        `uris` are the resources that are subscribed to here.
        """
        record = self.record or SessionRecord("", "")
        log_level = self.session.log_level
        return SessionChanges(
            log_level if log_level != record.log_level else None,
            is_initialized and not record.is_initialized,
            frozenset(uris).difference(record.subscriptions),
            frozenset(record.subscriptions).difference(uris),
        )

    # Announcements

    @property
    def announcements(self) -> EventStream:
        """The stream of announcements, also if another process sends them."""
        if not self.id or not self.revision.resumes:
            return super().announcements
        if self.channel is NOWHERE or self.channel.is_lost:
            self.channel = self.new_announcements()
        return self.channel

    def new_announcements(self) -> Announcements:
        """Return an empty stream of announcements."""
        stream = Announcements(
            self._keeper.logs, self.id.decode(), self, primes=self.revision.primes
        )
        stream.charge_to(self.sessions.ledger, self.account)
        return stream

    async def keep_announcements(self) -> None:
        """Keep the announcements in the store for longer. Raises StoreUnavailable."""
        if isinstance(self.channel, Announcements):
            await self.channel.keep()

    def close_announcements(self) -> None:
        """Close the streams that clients read here. The session continues elsewhere."""
        self.channel.close()
        for streams in self.followed.values():
            for stream in streams:
                stream.close()

    def notify(
        self,
        method: str,
        params: Json,
        channel: Channel | None = None,
        revision: Revision | None = None,
    ) -> None:
        """Send a notification. An announcement is sent by the home only."""
        if channel is not None or self.is_home or not self.id:
            super().notify(method, params, channel, revision)

    # Streams of requests

    def open_stream(
        self,
        principal: Principal | None = None,
        requests: PostedRequests = NO_REQUESTS,
    ) -> EventStream:
        """Open a stream for requests, which can be resumed at any process."""
        if not self.revision.resumes:
            return super().open_stream(principal, requests)
        ended = [stream for stream in self._history.by_name.values() if stream.closed]
        if len(ended) >= HISTORY_STREAMS:
            self.forget_stream(ended[0])
        record = StreamRecord(list(requests.ids), requests.in_batch)
        if principal is not None:
            record.principal = principal.name
            record.scopes = sorted(principal.scopes)
        stream = StoredStream(
            self._keeper.logs,
            self.id.decode(),
            record,
            primes=self.revision.primes,
            principal=principal,
        )
        stream.charge_to(self.sessions.ledger, self.account)
        history = self._get_history()
        history.by_name = {**history.by_name, stream.name: stream}
        return stream

    def local_stream(self, name: bytes) -> StoredStream | None:
        """Return a stream that this process has opened, if it can still be resumed."""
        stream = self._history.by_name.get(name)
        if isinstance(stream, StoredStream) and not stream.is_lost:
            return stream
        return None

    def forget_stream(self, stream: EventStream) -> None:
        """Forget a stream, so that it cannot be resumed.

        If this process is stopping, another one answers the requests.
        """
        super().forget_stream(stream)
        if isinstance(stream, StoredStream):
            if self._keeper.is_stopping and not stream.closed:
                stream.abandon()
            else:
                stream.forget()

    def abandon_streams(self, identity: Identity) -> None:
        """Cancel the requests whose streams belong to an identity that was lost."""
        for stream in list(self._history.by_name.values()):
            if isinstance(stream, StoredStream) and stream.identity is identity:
                if stream.closed and not stream.is_lost:
                    continue
                stream.abandon()
                for id in stream.record.requests:
                    if id in self.cancel_scopes:
                        self.cancel_scopes[id].cancel()
        # The answers would be sent to a process that no longer exists.
        self.settle_questions()

    def end(self) -> None:
        """Cancel everything that runs in the session at this process."""
        super().end()
        for streams in self.followed.values():
            for stream in streams:
                stream.close()

    # Questions and cancellation

    async def ask(
        self, method: str, params: Json, channel: Channel, revision: Revision
    ) -> Raw:
        """Ask the client a question, whose answer may be posted to any process."""
        await self._keeper.peers.wait_until_known()
        return await super().ask(method, params, channel, revision)

    def new_question_id(self) -> str:
        """Return an id that contains the name of this process."""
        return f"{QUESTION}{self._keeper.peers.new_name()}.{secrets.token_hex(8)}"

    def asked_by(self, answer: Answer) -> str | None:
        """Return the other process that waits for an answer; None if it is this one."""
        if not isinstance(answer.id, str) or not answer.id.startswith(QUESTION):
            return None
        process = process_of(answer.id.removeprefix(QUESTION))
        return None if process == self._keeper.peers.identity.id else process

    def answer_question(self, answer: Answer) -> None:
        """Pass an answer to the task that waits for it, at whichever process."""
        process = self.asked_by(answer)
        if process is None:
            super().answer_question(answer)
        else:
            message = self.message_with(answer)
            self._keeper.peers.send_soon(process, message)

    def message_with(self, answer: Answer) -> QuestionAnswered:
        """Return an answer as a message to another process."""
        return QuestionAnswered(
            self.id.decode(),
            str(answer.id),
            None if answer.result is None else bytes(answer.result),
            None if answer.error is None else bytes(answer.error),
        )

    def answer_local_question(self, answer: Answer) -> None:
        """Pass an answer to the task of this process that waits for it."""
        Conversation.answer_question(self, answer)

    def cancel_elsewhere(self, id: jsonrpc.Id) -> None:
        """Cancel a request that runs in another process."""
        message = RequestCancelled(self.id.decode(), id)
        self._keeper.peers.post_soon(message)
