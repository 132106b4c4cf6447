"""Streams of a session, with what a client may miss and come back for; and the sessions."""

import secrets
from itertools import islice
from typing import Any, cast

import trio

from ...protocol.model import Json
from ...protocol.revisions import Revision
from ...server.access import Principal, same
from ...server.app import Server
from ...server.dispatch import NONE, Channel, Conversation
from . import sse
from .endpoint import Refused, refusal

HISTORY_BYTES = 256 * 1024
# What one stream keeps for a client that comes back; the last event is kept in any case.
HISTORY_EVENTS = 256
# How many ended streams a session keeps.
HISTORY_STREAMS = 8
# Unsent bytes beyond which a request that has more to say is made to wait.
HIGH_WATER = 2**20
# Unsent bytes beyond which a stream, whose client does not read, gives up.
MOST_UNSENT = 16 * 2**20


class Stream:
    """Messages on their way to a client, as events in order.

    A stream with a name can be come back to: its events have ids, and those already sent are kept, within bounds. Of
    several readers the latest is sent what comes, and if it goes, the one before.
    """

    def __init__(self, name: bytes = b"", *, primes: bool = False) -> None:
        self.name = name
        self.closed = False
        self._primes = primes
        self._events: list[bytes] = []
        self._first = 1  # the number of the first event kept
        self._sent = 0  # how many of those kept are sent
        self.size = 0  # bytes kept
        self._unsent = 0  # bytes
        self.head = b""  # what is sent before the next event
        self._parting = b""
        self.readers: dict[object, bool] = {}  # the latest last; whether it is to be sent a comment
        self._waiting = trio.lowlevel.ParkingLot()

    def send(self, message: bytes) -> None:
        """Add a message. Never waits."""
        if self.closed:
            return
        event = sse.encode(message, id=self._id(len(self._events)))
        self._events.append(event)
        self.size += len(event)
        self._unsent += len(event)
        if not self.name and self._unsent > MOST_UNSENT:
            self.close()  # better cut off, which its client sees, than silently without some messages
        self._forget()
        self._waiting.unpark_all()

    def let_go(self, retry: int) -> None:
        """End the connection that reads, or first will, not the stream: its client comes back in so many ms."""
        if self.name:
            self._parting = sse.encode_retry(retry)
            self._waiting.unpark_all()

    def close(self) -> None:
        """No more messages. Readers are sent what there is, and then end."""
        self.closed = True
        self._waiting.unpark_all()

    async def drained(self) -> None:
        """Wait while a client that is there is too far behind."""
        while self._unsent > HIGH_WATER and self.readers and not self.closed:
            await self._waiting.park()

    def attach(self, reader: object, after: int | None = None) -> None:
        """Begin to read, from after an event, or from the first not sent."""
        self.readers[reader] = False
        if after is not None and self.name:
            self._parting = b""  # here it is back already
            self._sent = min(max(after + 1 - self._first, 0), len(self._events))
            self._unsent = sum(map(len, islice(self._events, self._sent, None)))
        if self._primes:
            self.head = sse.encode_priming(self._id(self._sent - 1))
        self._waiting.unpark_all()

    def beat(self, reader: object) -> None:
        """Have a reader be sent a comment, unless there is something else."""
        if reader in self.readers:
            self.readers[reader] = True
            self._waiting.unpark_all()

    def detach(self, reader: object) -> None:
        """Read no more."""
        self.readers.pop(reader, None)
        self._waiting.unpark_all()

    async def take(self, reader: object) -> bytes:
        """What is not sent yet, as soon as there is something; nothing at the end."""
        while not (self.head or self._unsent or self._parting) or next(reversed(self.readers), None) is not reader:
            if self.closed or reader not in self.readers:
                return b""
            if self.readers[reader]:
                self.readers[reader] = False
                return sse.COMMENT
            await self._waiting.park()
        block = b"".join([self.head, *islice(self._events, self._sent, None), self._parting])
        if self._parting:
            self.readers.popitem()
        self.head = self._parting = b""
        self._sent = len(self._events)
        self._unsent = 0
        self._forget()
        self._waiting.unpark_all()
        return block

    def _id(self, index: int) -> bytes:
        return b"%b-%d" % (self.name, self._first + index) if self.name else b""

    def _forget(self) -> None:
        """Keep what is not sent, and of the rest what the bounds allow; with nobody reading they hold for all."""
        while self._events and self._is_beyond():
            size = len(self._events.pop(0))
            self._first += 1
            self.size -= size
            if self._sent:
                self._sent -= 1
            else:
                self._unsent -= size

    def _is_beyond(self) -> bool:
        if not self.name:
            return self._sent > 0
        awaited = not self._sent and self.readers and self._unsent <= MOST_UNSENT
        large = self.size > HISTORY_BYTES or len(self._events) > HISTORY_EVENTS
        return large and not awaited and len(self._events) > 1


# The channel of a conversation that has none: what belongs to no request is not sent.
NOWHERE = Stream()
NOWHERE.close()


class HttpSession(Conversation):
    """One client's conversation, from its opening on a session, whose announcements go to the stream that GET reads."""

    __slots__ = ("_streams", "id", "used")
    channel: Stream

    def __init__(self, server: Server, stated: Revision | None = None) -> None:
        super().__init__(server, NOWHERE, stated)
        self._streams: dict[bytes, Stream] = NONE
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
    def lasts(self) -> bool:  # type: ignore[override]
        """Whether it is a session; else nothing but one message."""
        return bool(self.id)

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way in it, or a stream is read."""
        return bool(self.waiting) or any(stream.readers for stream in (self.channel, *self._streams.values()))

    @property
    def kept(self) -> int:
        """Bytes that a client could come back for."""
        return sum(stream.size for stream in self._streams.values()) if self._streams else 0

    def tell(self, method: str, params: Json, channel: Channel | None = None, revision: Any = None) -> None:
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
        number = int(next(reversed(kept), b"-1")) + 1  # the latest is never among those left out
        stream = kept[b"%d" % number] = Stream(b"%d" % number, primes=self.revision.primes)
        self._streams = kept
        return stream

    def resumed(self, last_event: bytes | None) -> tuple[Stream, int | None]:
        """The stream that an event's id names, and the event's number; otherwise the one of announcements."""
        if last_event is None or not self.revision.resumes:
            return self.news, None
        name, _, number = last_event.partition(b"-")
        if name not in self._streams or not number.isdigit() or len(number) > 15:
            raise Refused(refusal(400, "Last-Event-ID: no event of a stream that this session still has"))
        return self._streams[name], int(number)

    def end(self) -> None:
        """Stop all that goes on in it."""
        for scope in self.waiting.values():
            scope.cancel()
        self.hang_up()
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
        if session is None or not same(session.principal, principal):
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
        while (oldest := next(iter(self.values()), None)) and oldest.used + self.idle <= now:
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
