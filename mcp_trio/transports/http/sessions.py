"""HTTP sessions, and the streams that their clients can resume."""

import secrets
from typing import cast

from ...auth.access import Denied
from ...auth.principal import Principal, can_stand_in_for, is_same_principal
from ...protocol.revisions import Revision
from ...protocol.session import Session
from ...protocol.types import Json
from ...server.app import Server
from ...server.channel import Channel
from ...server.conversation import EMPTY, Conversation
from .event_stream import NOWHERE, EventStream
from .messages import Refused, refusal

# Ended streams that a session keeps.
HISTORY_STREAMS = 8
# Digits of an event's number in a Last-Event-ID.
MAX_DIGITS = 15


class HttpSession(Conversation):
    """One client's conversation over HTTP: a session, or a single message without one.

    It becomes a session when it gets an id, with the reply to `initialize`.
    """

    __slots__ = ("_stream_count", "_streams", "id", "used")
    channel: EventStream

    def __init__(self, server: Server, stated: Revision | None = None) -> None:
        super().__init__(
            Session(server.revisions, stated),
            NOWHERE,
            transport="http",
            observer=server.on_message,
            on_close=server.subscriptions.closed,
        )
        # The streams that can be resumed, by name; the oldest first.
        self._streams: dict[bytes, EventStream] = EMPTY
        self._stream_count = 0  # how many were ever opened; names are never reused
        self.id = b""  # empty unless it is a session
        self.used = 0.0  # when its last request came

    @property
    def revision(self) -> Revision:
        """The revision that was agreed on."""
        return cast(Revision, self.session.revision)

    @property
    def announcements(self) -> EventStream:
        """The stream that a GET reads, for messages that belong to no request.

        It is made when it is first used, because most sessions never need it.
        """
        if self.channel is NOWHERE:
            self.channel = self.open_stream()
        return self.channel

    @property
    def is_lasting(self) -> bool:  # type: ignore[override]
        """Whether this is a session."""
        return bool(self.id)

    @property
    def is_busy(self) -> bool:
        """Whether a request is running in the session, or a stream of it is read."""
        if self.cancel_scopes or self.channel.readers:
            return True
        return any(stream.readers for stream in self._streams.values())

    @property
    def history_size(self) -> int:
        """The bytes that are kept for a client that resumes a stream."""
        if not self._streams:
            return 0
        return sum(stream.size for stream in self._streams.values())

    def tell(
        self,
        method: str,
        params: Json,
        channel: Channel | None = None,
        revision: Revision | None = None,
    ) -> None:
        """Send a notification; without a channel, as an announcement."""
        super().tell(method, params, channel or self.announcements, revision)

    def open_stream(self, principal: Principal | None = None) -> EventStream:
        """Open a stream, which can be resumed if the revision has that.

        To resume it, a token needs the scopes of this principal.
        """
        if not self.revision.resumes:
            return EventStream()
        streams = dict(self._streams)
        ended = [name for name, stream in streams.items() if stream.closed]
        if len(ended) >= HISTORY_STREAMS:
            del streams[ended[0]]
        name = b"%d" % self._stream_count
        self._stream_count += 1
        stream = EventStream(name, primes=self.revision.primes, principal=principal)
        streams[name] = stream
        self._streams = streams
        return stream

    def forget_stream(self, stream: EventStream) -> None:
        """Let nobody resume a stream any more."""
        self._streams = {
            name: other for name, other in self._streams.items() if other is not stream
        }

    def resume(self, last_event: bytes | None) -> tuple[EventStream, int | None]:
        """Return the stream that a `Last-Event-ID` names, and the event's number.

        Without one, it is the stream of announcements, from the first unsent event.
        Raises Refused if the session has no such stream, and Denied if its principal
        lacks a scope that the stream's request had.
        """
        if last_event is None or not self.revision.resumes:
            return self.announcements, None
        name, _, number = last_event.partition(b"-")
        is_number = number.isdigit() and len(number) <= MAX_DIGITS
        if name not in self._streams or not is_number:
            problem = "no event of a stream that this session still has"
            raise Refused(refusal(400, f"Last-Event-ID: {problem}"))
        stream = self._streams[name]
        if stream.principal and not can_stand_in_for(self.principal, stream.principal):
            raise Denied(
                403,
                "insufficient_scope",
                "Last-Event-ID: the token lacks a scope that the request had",
            )
        return stream, int(number)

    def end(self) -> None:
        """Cancel everything that runs in the session."""
        for scope in self.cancel_scopes.values():
            scope.cancel()
        self.close()
        self.channel.close()


class Sessions(dict[bytes, HttpSession]):
    """All sessions by id, the least recently used first.

    Their number, their history and the time that they may be idle are bounded.
    """

    max_sessions = 10_000
    max_history = 256 * 2**20  # bytes in all sessions together
    idle_timeout = 1800.0  # seconds
    now = 0.0  # when `expire` was last called

    def open(self, session: HttpSession) -> bool:
        """Add a session; if there are too many, end the one that was idle longest.

        Returns False if all of them are busy.
        """
        if len(self) >= self.max_sessions:
            idle = (other for other in self.values() if not other.is_busy)
            oldest = next(idle, None)
            if oldest is None:
                return False
            self.end(oldest)
        session.id = secrets.token_urlsafe(18).encode()
        session.used = self.now
        self[session.id] = session
        return True

    def find(self, id: bytes, principal: Principal | None) -> HttpSession | None:
        """Return a principal's session, and count it as just used."""
        session = self.get(id)
        if session is None or not is_same_principal(session.principal, principal):
            return None
        session.used = self.now
        self[id] = self.pop(id)
        return session

    def end(self, session: HttpSession) -> None:
        """End one session."""
        if self.pop(session.id, None) is not None:
            session.end()
        if not self:
            # A dict that has grown shrinks only when it is cleared.
            self.clear()

    def expire(self, now: float) -> None:
        """End idle sessions, and those whose history is too much.

        Call this often: it also sets the time that a session was last used.
        """
        if now - self.now >= 1:
            self._bound_history()
        self.now = now
        while self:
            oldest = next(iter(self.values()))
            if oldest.used + self.idle_timeout > now:
                return
            if oldest.is_busy:
                self.find(oldest.id, oldest.principal)
            else:
                self.end(oldest)

    def _bound_history(self) -> None:
        """End the longest idle sessions while all together keep too much."""
        kept = sum(session.history_size for session in self.values())
        if kept <= self.max_history:
            return
        for session in list(self.values()):
            if kept <= self.max_history:
                return
            size = session.history_size
            if size and not session.is_busy:
                kept -= size
                self.end(session)
