"""Streams of a session, with what a client may miss and come back for; and the sessions."""

import secrets
from typing import Any, cast

from ...auth.principal import Principal, is_same_principal
from ...protocol.revisions import Revision
from ...protocol.session import Session
from ...protocol.types import Json
from ...server.app import Server
from ...server.channel import Channel
from ...server.conversation import EMPTY, Conversation
from .event_stream import NOWHERE, Stream
from .messages import Refused, refusal

# How many ended streams a session keeps.
HISTORY_STREAMS = 8


class HttpSession(Conversation):
    """One client's conversation, from its opening on a session, whose announcements go to the stream that GET reads."""

    __slots__ = ("_streams", "id", "used")
    channel: Stream

    def __init__(self, server: Server, stated: Revision | None = None) -> None:
        super().__init__(
            Session(server.revisions, stated),
            NOWHERE,
            transport="http",
            observer=server.on_message,
            on_close=server.subscriptions.closed,
        )
        self._streams: dict[bytes, Stream] = EMPTY
        self.id = b""  # none before it is opened
        self.used = 0.0

    @property
    def revision(self) -> Revision:
        """What was agreed on."""
        return cast(Revision, self.session.revision)

    @property
    def news(self) -> Stream:
        """The stream of announcements, made for the first, or for who waits for it: most sessions live without."""
        if self.channel is NOWHERE:
            self.channel = self.open_stream()
        return self.channel

    @property
    def is_lasting(self) -> bool:  # type: ignore[override]
        """Whether it is a session; else nothing but one message."""
        return bool(self.id)

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way in it, or a stream is read."""
        return bool(self.cancel_scopes) or any(
            stream.readers for stream in (self.channel, *self._streams.values())
        )

    @property
    def kept(self) -> int:
        """Bytes that a client could come back for."""
        return (
            sum(stream.size for stream in self._streams.values())
            if self._streams
            else 0
        )

    def tell(
        self,
        method: str,
        params: Json,
        channel: Channel | None = None,
        revision: Any = None,
    ) -> None:
        """The same; what belongs to no request is an announcement."""
        super().tell(method, params, channel or self.news, revision)

    def open_stream(self) -> Stream:
        """A stream, of announcements or for a request: kept where a client can come back to it."""
        if not self.revision.resumes:
            return Stream()
        kept = dict(self._streams)
        ended = [name for name, stream in kept.items() if stream.closed]
        if len(ended) >= HISTORY_STREAMS:
            del kept[ended[0]]
        number = (
            int(next(reversed(kept), b"-1")) + 1
        )  # the latest is never among those left out
        stream = kept[b"%d" % number] = Stream(
            b"%d" % number, primes=self.revision.primes
        )
        self._streams = kept
        return stream

    def resumed(self, last_event: bytes | None) -> tuple[Stream, int | None]:
        """The stream that an event's id names, and the event's number; otherwise the one of announcements."""
        if last_event is None or not self.revision.resumes:
            return self.news, None
        name, _, number = last_event.partition(b"-")
        if name not in self._streams or not number.isdigit() or len(number) > 15:
            raise Refused(
                refusal(
                    400,
                    "Last-Event-ID: no event of a stream that this session still has",
                )
            )
        return self._streams[name], int(number)

    def end(self) -> None:
        """Stop all that goes on in it."""
        for scope in self.cancel_scopes.values():
            scope.cancel()
        self.close()
        self.channel.close()


class Sessions(dict[bytes, HttpSession]):
    """All sessions by their ids, the least recently used first: so many at most, idle for so many seconds at most."""

    most = 10_000
    most_kept = 256 * 2**20  # bytes that all of them keep for clients that come back
    idle = 1800.0
    now = 0.0  # when `expire` was last called

    def open(self, session: HttpSession) -> bool:
        """Take in a session; where there are too many, in place of the one longest idle. False if all are busy."""
        if len(self) >= self.most:
            oldest = next((other for other in self.values() if not other.is_busy), None)
            if oldest is None:
                return False
            self.end(oldest)
        session.id = secrets.token_urlsafe(18).encode()
        session.used = self.now
        self[session.id] = session
        return True

    def find(self, id: bytes, principal: Principal | None) -> HttpSession | None:
        """The session of that id, which is now in use. Another principal's is not found."""
        session = self.get(id)
        if session is None or not is_same_principal(session.principal, principal):
            return None
        session.used = self.now
        self[id] = self.pop(id)
        return session

    def end(self, session: HttpSession) -> None:
        """End one."""
        if self.pop(session.id, None):
            session.end()
        if not self:
            self.clear()  # a table that has grown keeps its size until then

    def expire(self, now: float) -> None:
        """End those unused for too long, and some where all keep too much. To be called often: it tells the time."""
        if now - self.now >= 1:
            self._shed()
        self.now = now
        while (
            oldest := next(iter(self.values()), None)
        ) and oldest.used + self.idle <= now:
            if oldest.is_busy:
                self.find(oldest.id, oldest.principal)
            else:
                self.end(oldest)

    def _shed(self) -> None:
        kept = sum(session.kept for session in self.values())
        for session in list(self.values()) if kept > self.most_kept else ():
            if kept > self.most_kept and session.kept and not session.is_busy:
                kept -= session.kept
                self.end(session)
