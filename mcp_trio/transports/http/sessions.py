"""HTTP sessions, and the streams that their clients can resume."""

import secrets
from typing import cast

from ...auth.access import Denied
from ...auth.principal import Principal, can_stand_in_for, is_same_principal
from ...protocol.revisions import Revision, Revisions
from ...protocol.session import Session
from ...protocol.types import Json
from ...server.accounts import Account, account_of
from ...server.app import Server
from ...server.channel import Channel
from ...server.conversation import Conversation
from ...server.ledger import AccountEntry, Ledger, Priority
from ...server.limits import MEMORY, Limits
from ...server.request import Environment
from .event_stream import NOWHERE, EventStream
from .messages import NO_REQUESTS, PostedRequests, Refused, refusal

# The kind under which the ledger charges sessions.
KIND = "sessions"
# The most ended streams that a session keeps.
HISTORY_STREAMS = 8
# Bytes that are charged for a session, without its streams.
SESSION_SIZE = 2 * 1024
# The most digits of an event's number in a Last-Event-ID.
MAX_DIGITS = 15

NO_SUCH_SESSION = refusal(
    404, "Mcp-Session-Id: no such session, or it has ended; initialize a new one"
)


NO_SUCH_EVENT = refusal(
    400, "Last-Event-ID: no event of a stream that this session still has"
)
TOO_MANY_SESSIONS = refusal(
    503, "Too many sessions, and all of them are busy; try again later"
)


class SessionNotLoaded(Exception):
    """Raised if only the store knows whether there is a session with this id."""

    def __init__(self, id: bytes) -> None:
        self.id = id


def parse_event_id(event: bytes) -> tuple[bytes, int]:
    """Return the name of the stream, and the event's number. Raises Refused."""
    name, _, number = event.partition(b"-")
    if not number.isdigit() or len(number) > MAX_DIGITS:
        raise Refused(NO_SUCH_EVENT)
    return name, int(number)


class StreamHistory:
    """The streams that the client of a session can resume: the latest few."""

    __slots__ = ("by_name", "count")

    def __init__(self) -> None:
        # The oldest first. It is replaced and not changed, as others may iterate it.
        self.by_name: dict[bytes, EventStream] = {}
        self.count = 0  # of all streams ever opened, as names are never reused

    def new_name(self) -> bytes:
        """Return the name of the next stream."""
        name = b"%d" % self.count
        self.count += 1
        return name

    def add(self, name: bytes, stream: EventStream) -> None:
        """Keep a stream. If there are too many, forget the oldest that has ended."""
        streams = {
            name: stream for name, stream in self.by_name.items() if not stream.is_lost
        }
        ended = [name for name, stream in streams.items() if stream.closed]
        if len(ended) >= HISTORY_STREAMS:
            del streams[ended[0]]
        streams[name] = stream
        self.by_name = streams

    def forget(self, stream: EventStream) -> None:
        """Forget a stream, so that it cannot be resumed."""
        self.by_name = {
            name: other for name, other in self.by_name.items() if other is not stream
        }


# The history of all sessions that have not opened a stream.
NO_HISTORY = StreamHistory()


class HttpSession(Conversation):
    """One client's conversation over HTTP: a session, or a single message without one.

    It becomes a session when it gets an id, with the reply to `initialize`. From then
    on, the ledger charges its client for it, so it is a `Chargeable`.
    """

    __slots__ = (
        "_history",
        "entry",
        "id",
        "last_used",
        "sessions",
    )
    kind = KIND
    size = SESSION_SIZE
    priority = Priority.IDLE
    channel: EventStream

    def __init__(
        self,
        server: Server,
        sessions: "Sessions",
        stated: Revision | None = None,
        revisions: Revisions | None = None,
    ) -> None:
        super().__init__(
            Session(revisions or server.revisions, stated),
            NOWHERE,
            transport="http",
            observer=server.on_message,
            on_close=server.on_conversation_closed,
        )
        self._history = NO_HISTORY
        self.id = b""  # empty unless it is a session
        self.last_used = 0.0  # when its last request arrived
        self.entry: AccountEntry | None = None  # set if it is a session
        self.sessions = sessions  # where it is added when it becomes a session

    @property
    def account(self) -> Account:
        """The account that is charged for the session and its streams."""
        if self.entry is not None:
            return self.entry.account
        return account_of(self, self.principal)

    @property
    def revision(self) -> Revision:
        """The revision that was agreed on."""
        return cast(Revision, self.session.revision)

    @property
    def announcements(self) -> EventStream:
        """The stream that a GET reads, for messages that belong to no request.

        It is made when it is first used, because most sessions never need it.
        """
        if self.channel is NOWHERE or self.channel.is_lost:
            self.channel = self.open_stream()
        return self.channel

    @property
    def is_persistent(self) -> bool:  # type: ignore[override]
        """Whether this is a session."""
        return bool(self.id)

    @property
    def is_busy(self) -> bool:
        """Whether a request is running in the session, or a stream of it is read."""
        if self.cancel_scopes or self.channel.readers:
            return True
        return any(stream.readers for stream in self._history.by_name.values())

    def notify(
        self,
        method: str,
        params: Json,
        channel: Channel | None = None,
        revision: Revision | None = None,
    ) -> None:
        """Send a notification. Without a channel, it is an announcement."""
        super().notify(method, params, channel or self.announcements, revision)

    def open_stream(
        self,
        principal: Principal | None = None,
        requests: PostedRequests = NO_REQUESTS,
    ) -> EventStream:
        """Open a stream for requests, which can be resumed if the revision allows it.

        To resume it, a client needs a token with the scopes of this principal.
        """
        if not self.revision.resumes:
            stream = EventStream()
            stream.charge_to(self.sessions.ledger, self.account)
            return stream
        name = self._get_history().new_name()
        stream = EventStream(name, primes=self.revision.primes, principal=principal)
        stream.charge_to(self.sessions.ledger, self.account)
        self._history.add(name, stream)
        return stream

    def _get_history(self) -> StreamHistory:
        """Return the history, which is made when it is first needed."""
        if self._history is NO_HISTORY:
            self._history = StreamHistory()
        return self._history

    def forget_stream(self, stream: EventStream) -> None:
        """Forget a stream, so that it cannot be resumed."""
        self._history.forget(stream)

    def resume(self, last_event: bytes | None) -> tuple[EventStream, int | None]:
        """Return the stream that a `Last-Event-ID` names, and the event's number.

        Without a `Last-Event-ID`, this is the stream of announcements and None. Raises
        Refused if the session has no such stream, and Denied if its principal lacks a
        scope that the stream's request had.
        """
        if last_event is None or not self.revision.resumes:
            return self.announcements, None
        name, number = parse_event_id(last_event)
        stream = self._history.by_name.get(name)
        if stream is None or stream.is_lost:
            raise Refused(NO_SUCH_EVENT)
        self.check_may_resume(stream.principal)
        return stream, number

    def check_may_resume(self, principal: Principal | None) -> None:
        """Raise Denied if the session's principal may not resume another's stream."""
        if principal and not can_stand_in_for(self.principal, principal):
            raise Denied(
                403,
                "insufficient_scope",
                "Last-Event-ID: the token lacks a scope that the request had",
            )

    def close_announcements(self) -> None:
        """Close the stream of announcements, because the server is stopping."""
        self.announcements.close()

    def end(self) -> None:
        """Cancel everything that runs in the session."""
        for scope in self.cancel_scopes.values():
            scope.cancel()
        self.close()
        self.channel.close()
        for stream in self._history.by_name.values():
            stream.stop_charging()

    def give_up(self) -> bool:
        """End this session to make room for others, unless it is busy."""
        if self.entry is None or self.is_busy:
            return False
        self.sessions.end(self)
        return True


def new_session_id() -> bytes:
    """Return an id that cannot be guessed."""
    return secrets.token_urlsafe(18).encode()


class Sessions(dict[bytes, HttpSession]):
    """All sessions by id, the least recently used first.

    Their number and idle time are limited; the environment has the limit on their
    number. The ledger charges clients for their sessions and the history of these.
    """

    idle_timeout = 1800.0  # seconds
    now = 0.0  # when `expire` was last called

    def __init__(
        self, ledger: Ledger | None = None, environment: Environment | None = None
    ) -> None:
        super().__init__()
        self.ledger = Ledger(MEMORY) if ledger is None else ledger
        self.ledger.rank(KIND)
        self._environment = environment or Environment(Limits(), b"")

    def open(self, session: HttpSession) -> bool:
        """Add a session. If there are too many, the client with the most loses one.

        Returns False if no other client has more sessions, and all are busy.
        """
        account = session.account
        most = self._environment.limits.max_sessions
        if len(self) >= most and not self._make_room(account):
            return False
        session.id = session.id or new_session_id()
        session.last_used = self.now
        self[session.id] = session
        self.ledger.add(account, session)
        return session.id in self

    def _make_room(self, account: Account) -> bool:
        """End a session of the client with the most, an idle one if possible."""
        most = self.ledger.most_of(KIND)
        if most is None:
            return False
        count = self.ledger.count_of(most, KIND)
        if count > 1:
            if self.ledger.give_up_one(most, KIND):
                return True
            if self.ledger.count_of(account, KIND) >= count:
                return False
            busy = (session for session in self.values() if session.account == most)
            self.end(next(busy))
            return True
        # No client has more than one, so the session ends that was idle the longest.
        return any(session.give_up() for session in list(self.values()))

    def find(self, id: bytes, principal: Principal | None) -> HttpSession | None:
        """Return a principal's session, and count it as just used."""
        session = self.get(id)
        if session is None or not is_same_principal(session.principal, principal):
            return None
        # The same as `note_use`, without another call for each request.
        session.last_used = self.now
        self[id] = self.pop(id)
        self.ledger.touch(session)
        return session

    def note_use(self, session: HttpSession) -> None:
        """Count a session as just used."""
        session.last_used = self.now
        self[session.id] = self.pop(session.id)
        self.ledger.touch(session)

    def end(self, session: HttpSession) -> None:
        """End one session."""
        if self.pop(session.id, None) is not None:
            session.end()
            self.ledger.release(session)
        if not self:
            # A dict that has grown shrinks only when it is cleared.
            self.clear()

    def expire(self, now: float) -> None:
        """End idle sessions.

        Call this often: it also sets the time that sessions count as last used.
        """
        self.now = now
        while self:
            oldest = next(iter(self.values()))
            if oldest.last_used + self.idle_timeout > now:
                return
            if oldest.is_busy:
                self.note_use(oldest)
            else:
                self.end_idle(oldest)

    def end_idle(self, session: HttpSession) -> None:
        """End a session that was idle for too long."""
        self.end(session)

    def close(self) -> None:
        """End all sessions, because the server is stopping."""
        for session in list(self.values()):
            self.end(session)
