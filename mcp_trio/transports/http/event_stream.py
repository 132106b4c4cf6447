"""A stream of server-sent events, which a client can resume after a disconnect."""

from itertools import islice

import trio

from ...auth.principal import Principal
from ...server.accounts import Account
from ...server.ledger import STEP, Ledger, Meter, Priority
from . import sse

# Bytes and events that a stream keeps for a client that resumes it. The last event is
# kept even if it is larger.
HISTORY_BYTES = 256 * 1024
HISTORY_EVENTS = 256
# While more bytes than this are unsent, requests wait before they send more.
HIGH_WATER = 2**20
# The stream of a client that leaves more bytes than this unread is cut off.
MAX_UNSENT = 16 * 2**20
# Bytes that are charged for an event in addition to its size.
EVENT_SIZE = 64


class EventStream:
    """An ordered stream of messages to a client, sent as events.

    A stream with a name can be resumed. Its events have ids, made of the stream's name
    and the event's number, and it keeps the latest ones after they were sent. A client
    that has lost its connection reconnects with a `Last-Event-ID`, and receives all
    later events again before the new ones.

    A stream without a name keeps no events that were sent.

    Several connections may read the same stream. Only the latest of them receives
    events; when it disconnects, the previous one continues.
    """

    def __init__(
        self,
        name: bytes = b"",
        *,
        primes: bool = False,
        principal: Principal | None = None,
        first: int = 1,
    ) -> None:
        self.name = name
        # The principal of the stream's request, with the scopes that it had then.
        self.principal = principal
        self.closed = False
        self.is_lost = False  # whether the events were discarded
        self.size = 0  # the bytes of all kept events
        self.head = b""  # sent before the next event
        # The readers, the latest one last. The value is whether a comment is due.
        self.readers: dict[object, bool] = {}
        self._primes = primes
        # The kept events. The first `_sent` of them were sent, the others were not.
        self._events: list[bytes] = []
        self._first = first  # the number of the first kept event
        self._sent = 0
        self._unsent = 0  # the bytes of the events that were not sent
        # The retry field. The connection is closed when the events and this are sent.
        self._retry = b""
        self._changed = trio.lowlevel.ParkingLot()
        self._meter: Meter | None = None

    @property
    def next_number(self) -> int:
        """The number that the next event will have."""
        return self._first + len(self._events)

    @property
    def is_unread(self) -> bool:
        """Whether there are events that were not sent yet."""
        return self._unsent > 0

    # What is charged

    def charge_to(self, ledger: Ledger, account: Account) -> None:
        """Charge an account for the events that are kept."""
        # A session keeps many streams. Other streams are few and short.
        free = 0 if self.name else STEP
        self._meter = Meter(
            ledger, account, "events", Priority.STREAM, self.give_up, free=free
        )

    def stop_charging(self) -> None:
        """Stop charging, because the session has ended."""
        if self._meter is not None:
            self._meter.close()

    def give_up(self) -> bool:
        """Discard all events and close the stream, because its memory is needed.

        A client that reads it sees that the stream is cut off.
        """
        self.head = b""
        self._retry = b""
        self._first += len(self._events)
        self._events.clear()
        self._sent = 0
        self._unsent = 0
        self.size = 0
        self.is_lost = True
        self.close()
        return True

    def _charge(self) -> None:
        if self._meter is not None:
            self._meter.set(self.size + EVENT_SIZE * len(self._events))

    def _prioritize(self) -> None:
        """Tell the ledger whether the stream is idle, and so may be discarded early."""
        if self._meter is not None:
            is_idle = self.closed and not self.readers
            self._meter.reprioritize(Priority.IDLE if is_idle else Priority.STREAM)

    # Sending

    def send(self, message: bytes) -> None:
        """Add a message. Never waits."""
        if self.closed:
            return
        event = sse.encode(message, id=self._id(len(self._events)))
        self._events.append(event)
        self.size += len(event)
        self._unsent += len(event)
        if not self.name and self._unsent > MAX_UNSENT:
            # A client notices that a stream is cut off. It would not notice a gap.
            self.close()
        self._trim()
        self._charge()
        self._changed.unpark_all()

    def release_client(self, retry: int) -> None:
        """Close the current or next reader's connection, but not the stream.

        The client is asked to reconnect after `retry` milliseconds. Does nothing if the
        stream cannot be resumed.
        """
        if self.name:
            self._retry = sse.encode_retry(retry)
            self._changed.unpark_all()

    def close(self) -> None:
        """Accept no more messages. Readers still receive the remaining ones."""
        self.closed = True
        self._prioritize()
        self._changed.unpark_all()

    async def drained(self) -> None:
        """Wait while a client that reads the stream is too far behind."""
        while self._unsent > HIGH_WATER and self.readers and not self.closed:
            await self._changed.park()

    # Reading

    def attach(self, reader: object, after: int | None = None) -> None:
        """Add a reader, which receives the events that were not sent yet.

        `after` is an event number from a `Last-Event-ID`. All kept events after it are
        sent, even if they were sent before.
        """
        self.readers[reader] = False
        self._prioritize()
        if after is not None and self.name:
            self._rewind(after)
        if self._primes:
            self.head = sse.encode_priming(self._id(self._sent - 1))
        self._changed.unpark_all()

    def detach(self, reader: object) -> None:
        """Remove a reader."""
        self.readers.pop(reader, None)
        self._prioritize()
        self._changed.unpark_all()

    def send_comment(self, reader: object) -> None:
        """Send a comment to a reader, unless there is something else to send."""
        if reader in self.readers:
            self.readers[reader] = True
            self._changed.unpark_all()

    async def take(self, reader: object) -> bytes:
        """Wait for the next bytes to send to a reader, and return them.

        Returns empty bytes when the stream has ended or the reader was removed.
        """
        while not (self._is_latest(reader) and self._has_unsent()):
            if self.closed or reader not in self.readers:
                return b""
            if self.readers[reader]:
                self.readers[reader] = False
                return sse.COMMENT
            await self._changed.park()
        return self._take_unsent()

    def _is_latest(self, reader: object) -> bool:
        return next(reversed(self.readers), None) is reader

    def _has_unsent(self) -> bool:
        return bool(self.head or self._unsent or self._retry)

    def _take_unsent(self) -> bytes:
        """Return everything that was not sent yet, and count it as sent."""
        events = islice(self._events, self._sent, None)
        block = b"".join([self.head, *events, self._retry])
        if self._retry:
            # The latest reader takes the block, and then its connection is closed.
            self.readers.popitem()
        self.head = b""
        self._retry = b""
        self._sent = len(self._events)
        self._unsent = 0
        self._trim()
        self._charge()
        self._changed.unpark_all()
        return block

    # History

    def skip(self, number: int) -> None:
        """Continue after an event with this number, which is not sent here."""
        if not self._events:
            self._first = max(self._first, number + 1)
        while self.next_number <= number:
            self._events.append(b"")

    def count_as_sent(self) -> None:
        """Count all events as sent, because another process has sent them."""
        self._sent = len(self._events)
        self._unsent = 0

    def _id(self, index: int) -> bytes:
        """Return the id of the kept event at an index."""
        if not self.name:
            return b""
        return b"%b-%d" % (self.name, self._first + index)

    def _rewind(self, after: int) -> None:
        """Count the kept events after a number as not sent."""
        # The client has already reconnected.
        self._retry = b""
        index = after + 1 - self._first
        self._sent = min(max(index, 0), len(self._events))
        self._unsent = sum(map(len, islice(self._events, self._sent, None)))

    def _trim(self) -> None:
        """Forget the oldest events, unless they have to be kept."""
        while self._events and self._can_forget_oldest():
            size = len(self._events.pop(0))
            self._first += 1
            self.size -= size
            if self._sent:
                self._sent -= 1
            else:
                self._unsent -= size

    def _can_forget_oldest(self) -> bool:
        """Return whether the oldest event need not be kept."""
        oldest_was_sent = self._sent > 0
        if not self.name:
            return oldest_was_sent
        if len(self._events) == 1:
            return False
        if self.size <= HISTORY_BYTES and len(self._events) <= HISTORY_EVENTS:
            return False
        # The history is too large. An event that a client is about to read is kept
        # anyway, unless that client is too far behind.
        is_awaited = bool(self.readers) and self._unsent <= MAX_UNSENT
        return oldest_was_sent or not is_awaited


# The channel of a conversation that does not have one. It drops all messages.
NOWHERE = EventStream()
NOWHERE.close()
