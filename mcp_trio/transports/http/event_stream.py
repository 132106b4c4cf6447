"""TODO"""

from itertools import islice

import trio

from . import sse

HISTORY_BYTES = 256 * 1024
# What one stream keeps for a client that comes back; the last event is kept in any case.
HISTORY_EVENTS = 256
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
        self.readers: dict[
            object, bool
        ] = {}  # the latest last; whether it is to be sent a comment
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
        while (
            not (self.head or self._unsent or self._parting)
            or next(reversed(self.readers), None) is not reader
        ):
            if self.closed or reader not in self.readers:
                return b""
            if self.readers[reader]:
                self.readers[reader] = False
                return sse.COMMENT
            await self._waiting.park()
        block = b"".join(
            [self.head, *islice(self._events, self._sent, None), self._parting]
        )
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
