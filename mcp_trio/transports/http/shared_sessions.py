"""Sessions in the server's store, which every process can serve.

These are the keys in the store. Each also contains the name of the server.

    record session:ID          the session
    log stream:ID:a            its announcements: messages that belong to no request
    record stream:ID:NAME      the stream of a POST, with the ids of its requests
    log stream:ID:NAME         the events of that stream

A process reads the record of a session when it first needs it, and keeps the session in
memory. A process that changes or ends a session notifies the others. So most requests
do not use the store.

One process is the *home* of a session. At first this is the process that has opened the
session, and later the one that serves its latest GET. The home sends the announcements.
It also counts the session, and ends it if the client has too many. The other processes
have a copy, which they can drop at any time.

The requests of a POST belong to the process that has received it. The id of that
process is part of the stream's name. If the client resumes the stream at another
process, that process reads the log. If the owner is lost, it adds an error reply for
the requests: see `followed_stream`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from sys import intern
from typing import Any

from msgspec import MsgspecError, Raw
from msgspec.structs import replace

from ...auth.principal import Principal
from ...protocol.errors import ServiceUnavailable
from ...protocol.params import NO_CAPABILITIES, decode_params, shared_client_info
from ...protocol.revisions import Revision, Revisions
from ...protocol.session import Answer, Batch, Event, Notice
from ...server.app import Server
from ...server.handlers import handle_notification
from ...server.subscriptions import KINDS
from ...stores.base import Entry
from ...stores.peer_messages import (
    AboutSession,
    AnyMessage,
    QuestionAnswered,
    RequestCancelled,
    SessionChanged,
    SessionClaimed,
    SessionEnded,
    StreamFollowed,
    StreamGrew,
)
from ...stores.peers import Identity, Peers
from ...stores.retry import until_available
from .event_stream import NOWHERE
from .feed import Feed
from .followed_stream import FollowedFeed, new_replica
from .messages import Refused
from .session_record import SessionRecord, decode_session, encode_record
from .sessions import (
    NO_SUCH_EVENT,
    NO_SUCH_SESSION,
    TOO_MANY_SESSIONS,
    HttpSession,
    SessionNotLoaded,
    new_session_id,
    parse_event_id,
)
from .shared_session import SessionKeeper, SharedHttpSession
from .stored_stream import ANNOUNCEMENTS, Announcements
from .stream_logs import StreamLogs

# The longest id of a session.
MAX_ID = 64
# Fractions of the idle timeout: how often a session in use is renewed in the store, and
# for how long the store then keeps it.
TOUCH_AFTER = 0.05
KEEP_FOR = 1.25


class SharedSessions(SessionKeeper):
    """The shared sessions that this process knows."""

    def __init__(self, server: Server[Any], peers: Peers, revisions: Revisions) -> None:
        super().__init__(server.ledger, server.environment)
        self.peers = peers
        self.logs = StreamLogs(peers, self.idle_timeout)
        self.is_stopping = False
        self._server = server
        self._revisions = revisions
        self._store = peers.store
        peers.observe(self)

    def new_conversation(self, stated: Revision | None = None) -> SharedHttpSession:
        """Return a conversation that becomes a session with the reply to `initialize`.

        `stated` is the revision that the client states.
        """
        return SharedHttpSession(self._server, self, stated, self._revisions)

    def _find_local(self, id: bytes) -> SharedHttpSession | None:
        """Return a session if this process knows it."""
        session = self.get(id)
        return None if session is None else self.as_shared(session)

    def as_shared(self, session: HttpSession) -> SharedHttpSession:
        """Return a session with its exact type."""
        assert isinstance(session, SharedHttpSession)
        return session

    def _key(self, id: bytes) -> str:
        return self.peers.key("session", id.decode())

    # Finding sessions

    def find(self, id: bytes, principal: Principal | None) -> HttpSession | None:
        """Return a principal's session. Raises SessionNotLoaded if it is not known."""
        session = self._find_local(id)
        if session is None or session.is_stale:
            raise SessionNotLoaded(id)
        if super().find(id, principal) is None:
            return None
        self._note_use(session)
        return session

    async def load(self, id: bytes, peer: str) -> None:
        """Read a session from the store, and serve it here if it exists.

        Raises StoreUnavailable, and Refused if this process has too many sessions.
        """
        record = await self._read(id)
        session = self._find_local(id)
        if record is None:
            if session is not None:
                self._drop(session)
        elif session is not None:
            if session.is_stale:  # the message that names its home may be missing
                session.note_home(record.home, record.claims)
            self._update(session, record)
        else:
            self._add(id, record, peer)

    async def _read(self, id: bytes) -> SessionRecord | None:
        if len(id) > MAX_ID or not id.isascii():
            return None
        found = await self._store.read(self._key(id))
        return None if found is None else decode_session(found.value)

    def _add(self, id: bytes, record: SessionRecord, peer: str) -> None:
        """Serve a session that another process has opened."""
        revision = self._revisions.opening.get(record.revision)
        if revision is None:  # it is not served by this process
            return
        session = self.new_conversation()
        session.address = peer
        if record.principal is not None:
            session.principal = Principal(record.principal)
        state = session.session
        state.revision = revision
        if record.capabilities != NO_CAPABILITIES:
            state.capabilities = record.capabilities
        if record.client is not None:
            state.client = shared_client_info(record.client)
        state.offered = intern(record.offered)
        session.id = id
        if not self.open(session):
            raise Refused(TOO_MANY_SESSIONS)
        session.note_home(record.home, record.claims)
        self._update(session, record)

    def _update(self, session: SharedHttpSession, record: SessionRecord) -> None:
        """Update a session from its record."""
        session.record = record
        session.is_stale = False
        session.session.log_level = record.log_level
        subscriptions = self._server.subscriptions
        if record.is_initialized:
            subscriptions.add_session(session)
        here = set(subscriptions.subscribed(session))
        for uri in here.difference(record.subscriptions):
            subscriptions.unsubscribe(session, uri)
        for uri in record.subscriptions:
            if uri not in here:
                subscriptions.subscribe(session, uri)

    # Opening, changing and ending them

    async def store(self, session: SharedHttpSession) -> None:
        """Store what a client has set in a session. Raises StoreUnavailable."""
        if session.record is None:
            await self._create(session)
            return
        subscriptions = self._server.subscriptions
        changes = session.changes(
            subscriptions.subscribed(session),
            is_initialized=subscriptions.has_session(session),
        )
        if not changes:
            return
        await self._change(session, changes.apply)
        # Only the home needs to know the subscriptions.
        if changes.log_level is not None or not session.is_home:
            id = session.id.decode()
            await self.peers.post(SessionChanged(id, self.peers.identity.id))

    async def _create(self, session: SharedHttpSession) -> None:
        state = session.session
        principal = session.principal
        record = SessionRecord(
            revision=session.revision.name,
            home=self.peers.identity.id,
            principal=None if principal is None else principal.name,
            capabilities=state.capabilities,
            client=state.client,
            offered=state.offered,
        )
        id = new_session_id()
        await self._store.write(
            self._key(id),
            encode_record(record),
            ttl=KEEP_FOR * self.idle_timeout,
            expected=0,
        )
        session.id = id
        session.record = record
        session.note_home(record.home, record.claims)
        session.touched = self.now

    async def _change(
        self, session: SharedHttpSession, change: Callable[[SessionRecord], object]
    ) -> None:
        """Change the record of a session. `change` may be called more than once.

        Raises StoreUnavailable, and Refused if the session has ended.
        """
        key = self._key(session.id)
        while True:
            found = await self._store.read(key)
            if found is None:
                self._drop(session)
                raise Refused(NO_SUCH_SESSION)
            record = decode_session(found.value)
            change(record)
            encoded = encode_record(record)
            if await self._store.write(key, encoded, expected=found.version):
                self._update(session, record)
                return

    def open(self, session: HttpSession) -> bool:
        """Serve a session here; see `Sessions.open`."""
        if super().open(session):
            return True
        if isinstance(session, SharedHttpSession) and session.record is not None:
            self._end_everywhere_soon(session.id)
        return False

    async def end_everywhere(self, id: bytes) -> None:
        """End a session at all processes. Raises StoreUnavailable."""
        await self._store.delete(self._key(id))
        await self._store.delete_log(self._announcements_key(id))
        await self.peers.post(SessionEnded(id.decode()))
        session = self.get(id)
        if session is not None:
            self._drop(session)

    def _announcements_key(self, id: bytes) -> str:
        return self.peers.key("stream", f"{id.decode()}:{ANNOUNCEMENTS}")

    def _end_everywhere_soon(self, id: bytes) -> None:
        end = partial(self.end_everywhere, id)
        self.peers.start_soon(partial(until_available, end))

    def end(self, session: HttpSession) -> None:
        """End a session to make room for others. If this is only a copy, drop it."""
        if isinstance(session, SharedHttpSession) and session.is_home:
            self._end_everywhere_soon(session.id)
        self._drop(session)

    def _drop(self, session: HttpSession) -> None:
        """Stop serving a session at this process."""
        if self.get(session.id) is session:
            super().end(session)

    def close(self) -> None:
        """Stop serving sessions here. They continue at other processes."""
        self.is_stopping = True
        for session in list(self.values()):
            self._drop(session)
        self.peers.stop_observing(self)

    # Idle sessions

    def note_use(self, session: HttpSession) -> None:
        """Count a session as just used, at all processes."""
        super().note_use(session)
        self._note_use(self.as_shared(session))

    def _note_use(self, shared: SharedHttpSession) -> None:
        if shared.touched + TOUCH_AFTER * self.idle_timeout < self.now:
            shared.touched = self.now
            self.peers.start_soon(partial(self._touch, shared))

    async def _touch(self, session: SharedHttpSession) -> None:
        try:
            ttl = KEEP_FOR * self.idle_timeout
            exists = await self._store.touch(self._key(session.id), ttl)
            has_home = session.is_home or await self.peers.exists(session.home)
            if exists and session.is_home:
                await session.keep_announcements()
        except ServiceUnavailable:
            session.touched = -inf
            return
        if not exists:
            self._drop(session)
        elif not has_home:
            self._claim_soon(session)

    def end_idle(self, session: HttpSession) -> None:
        """Drop a session that was idle here for too long.

        Its home keeps it if it is in use elsewhere.
        """
        shared = self.as_shared(session)
        if not shared.is_home:
            self._drop(shared)
            return
        super().note_use(shared)
        # The next request loads the session from the store, if it still exists.
        shared.is_stale = True
        self.peers.start_soon(partial(self._drop_if_gone, shared))

    async def _drop_if_gone(self, session: SharedHttpSession) -> None:
        if await until_available(partial(self._read, session.id)) is None:
            self._drop(session)
        else:
            await until_available(session.keep_announcements)

    # Streams

    async def open_feed(
        self, session: SharedHttpSession, last_event: bytes | None, plain: Feed
    ) -> Feed:
        """Return a feed of the stream that a `Last-Event-ID` names.

        Without a `Last-Event-ID`, that is the stream of announcements. `plain` is a
        feed without a stream. Raises StoreUnavailable, Refused and Denied.
        """
        name = ANNOUNCEMENTS
        after = None
        if last_event is not None and session.revision.resumes:
            stream_name, after = parse_event_id(last_event)
            name = stream_name.decode("latin-1")
        if name == ANNOUNCEMENTS:
            await self._listen(session, after)
            return replace(plain, stream=session.announcements, after=after)
        assert after is not None
        local = session.local_stream(name.encode("latin-1"))
        if local is not None:
            session.check_may_resume(local.principal)
            return replace(plain, stream=local, after=after)
        record = await self.logs.find(session.id.decode(), name)
        if record is None:
            raise Refused(NO_SUCH_EVENT)
        session.check_may_resume(record.stored_principal())
        return FollowedFeed(
            new_replica(name, after, primes=session.revision.primes),
            plain.metrics,
            after,
            plain.access,
            plain.principal,
            plain.token,
            session=session,
            logs=self.logs,
            record=record,
            name=name,
        )

    # Announcements

    async def _listen(self, session: SharedHttpSession, after: int | None) -> None:
        """Become the home of a session, because its client reads announcements here.

        The client has received those up to `after`, or if it is None, all that were
        sent. Raises StoreUnavailable.
        """
        if not session.is_home:
            await self._become_home(session, after)
        elif session.announcements.is_unread and after is None:
            # They are about to be sent.
            await self._note_sent(session)

    async def _note_sent(self, session: SharedHttpSession) -> None:
        sent = session.announcements.next_number - 1

        def change(record: SessionRecord) -> None:
            record.sent = sent

        await self._change(session, change)

    async def _become_home(
        self, session: SharedHttpSession, after: int | None = None
    ) -> None:
        """Become the process that sends the announcements of a session."""
        before = session.record.sent if session.record is not None else 0
        home = session.home
        id = session.id.decode()
        entries = await self.logs.read(id, ANNOUNCEMENTS, 0)
        me = self.peers.identity.id
        claim = 0

        def change(record: SessionRecord) -> None:
            nonlocal claim
            record.claims += 1
            claim = record.claims
            record.home = me
            if entries:
                record.sent = entries[-1].position

        await self._change(session, change)
        self._load_announcements(session, entries, before if after is None else after)
        await self.peers.post(SessionClaimed(id, me, claim))
        if not await self.peers.exists(home):
            self._announce_everything(session)
        elif home != me:
            self.peers.start_soon(partial(self._check_previous_home, session, home))

    async def _check_previous_home(self, session: SharedHttpSession, home: str) -> None:
        """Make up for what a home has not announced, if it was lost."""
        if await self.peers.turns_out_lost(home) and session.is_home:
            self._announce_everything(session)

    def _claim_soon(self, session: SharedHttpSession) -> None:
        """Become the home of a session whose home was lost, unless it has ended."""

        async def claim() -> None:
            with suppress(Refused):
                await until_available(partial(self._become_home, session))

        self.peers.start_soon(claim)

    def _load_announcements(
        self, session: SharedHttpSession, entries: list[Entry], sent: int
    ) -> None:
        """Open the stream of announcements with those that are in the store."""
        if not session.revision.resumes:
            return
        stream = session.new_announcements()
        stream.begin_with(entries, sent)
        if session.channel is not NOWHERE:
            # A client that has read it here reconnects with another GET.
            session.channel.close()
        session.channel = stream

    def _announce_everything(self, session: SharedHttpSession) -> None:
        """Announce everything that may have changed since the home was lost."""
        stream = session.announcements
        for kind in KINDS:
            if kind in session.session.offered.split():
                session.notify(f"notifications/{kind}/list_changed", {}, stream)
        for uri in self._server.subscriptions.subscribed(session):
            session.notify("notifications/resources/updated", {"uri": uri}, stream)

    # Messages from other processes

    def on_message(self, message: AnyMessage) -> None:
        """Act on a message, if it is about a session that is served here."""
        if not isinstance(message, AboutSession):
            return
        session = self._find_local(message.session.encode())
        if session is not None:
            self._handle_message(session, message)

    def _handle_message(
        self, session: SharedHttpSession, message: AboutSession
    ) -> None:
        if isinstance(message, SessionEnded):
            self._drop(session)
        elif isinstance(message, SessionChanged):
            if message.process != self.peers.identity.id:
                self._reload_soon(session)
        elif isinstance(message, SessionClaimed):
            session.note_home(message.process, message.number)
            if session.is_home:
                self._read_announcements_soon(session)
        elif isinstance(message, RequestCancelled):
            scope = session.cancel_scopes.get(message.request)
            if scope is not None:
                scope.cancel()
        elif isinstance(message, QuestionAnswered):
            session.answer_local_question(_answer_of(message))
        else:
            self._handle_stream_message(session, message)

    def _handle_stream_message(
        self, session: SharedHttpSession, message: AboutSession
    ) -> None:
        if isinstance(message, StreamFollowed):
            stream = session.local_stream(message.stream.encode())
            if stream is not None:
                stream.followers.add(message.process)
                # It may have grown after the process has read it, but before this.
                grew = StreamGrew(message.session, message.stream)
                self.peers.send_soon(message.process, grew)
        elif isinstance(message, StreamGrew):
            session.note_growth()
            if message.stream == ANNOUNCEMENTS and session.is_home:
                self._read_announcements_soon(session)

    def _read_announcements_soon(self, session: SharedHttpSession) -> None:
        """Send the announcements that other processes have added."""
        stream = session.announcements
        if isinstance(stream, Announcements):
            self.peers.start_soon(stream.read)

    def _reload_soon(self, session: SharedHttpSession) -> None:
        load = partial(self.load, session.id, session.address)
        self.peers.start_soon(partial(until_available, load))

    def on_messages_missed(self) -> None:
        """Read every session again: now if it is in use, or when it is next used."""
        for session in list(self.values()):
            shared = self.as_shared(session)
            shared.is_stale = True
            if shared.is_busy or shared.is_home:
                self._reload_soon(shared)

    def on_identity_lost(self, identity: Identity) -> None:
        """Cancel requests that other processes have answered or will answer."""
        for session in list(self.values()):
            shared = self.as_shared(session)
            shared.abandon_streams(identity)
            if shared.home == identity.id:
                self._claim_soon(shared)

    # Notifications and answers of clients

    async def handle_post(
        self, session: SharedHttpSession, event: Event | None
    ) -> None:
        """Act on a POST without requests. Raises StoreUnavailable."""
        parts = event.events if isinstance(event, Batch) else [event]
        for part in parts:
            if isinstance(part, Answer):
                await self._handle_answer(session, part)
            elif isinstance(part, Notice):
                await self._handle_notice(session, part)

    async def _handle_answer(self, session: SharedHttpSession, answer: Answer) -> None:
        process = session.asked_by(answer)
        if process is None:
            session.answer_local_question(answer)
        else:
            await self.peers.send(process, session.message_with(answer))

    async def _handle_notice(self, session: SharedHttpSession, notice: Notice) -> None:
        if notice.method == "notifications/cancelled":
            cancelled = _cancelled_request(session, notice)
            if cancelled is not None:
                await self.peers.post(cancelled)
                return
        handle_notification(self._server, session, notice)
        await session.save()


def _answer_of(message: QuestionAnswered) -> Answer:
    return Answer(
        message.question,
        None if message.result is None else Raw(message.result),
        None if message.error is None else Raw(message.error),
    )


def _cancelled_request(
    session: SharedHttpSession, notice: Notice
) -> RequestCancelled | None:
    """Return a cancellation as a message to others; None if the request runs here."""
    try:
        id = decode_params(notice.method, notice.raw).request_id
    except MsgspecError:
        return None
    if id in session.cancel_scopes:
        return None
    return RequestCancelled(session.id.decode(), id)
