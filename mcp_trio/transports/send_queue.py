"""Queues of messages with many producers and one consumer, which takes all at once."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from ..server.accounts import Account
from ..server.channel import Channel
from ..server.ledger import Ledger, Meter, Priority

HIGH_WATER = 16 * 2**20
NO_HEADERS: Mapping[bytes, bytes] = {}
_EMPTY = memoryview(b"")
# What a stream raises if its other end has disconnected, or if it was closed here.
DISCONNECTED = (trio.BrokenResourceError, trio.ClosedResourceError)


class SendQueue:
    """A queue that counts its bytes.

    Producers can wait until it is below the high-water mark. The consumer either takes
    whole messages with `take`, or writes them joined together: `next_block` returns
    what to write next, and `mark_written` notes how much of it was written.

    `size` is the number of queued bytes that were not taken or written, including the
    `end` that is written after each message.
    """

    def __init__(self, high_water: int = HIGH_WATER, end: bytes = b"\n") -> None:
        self.closed = False
        self.size = 0
        self.high_water = high_water
        self._end = end
        self._messages: list[bytes] = []
        self._block = _EMPTY  # joined messages, without those that were written
        self._consumer = trio.lowlevel.ParkingLot()
        self._producers = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether more is queued than the high-water mark."""
        return self.size > self.high_water

    def put(self, message: bytes) -> None:
        """Queue a message. A closed queue drops it."""
        if not self.closed:
            self._messages.append(message)
            self.size += len(message) + len(self._end)

    def send(self, message: bytes) -> None:
        """Queue a message and wake the task in `wait`."""
        self.put(message)
        self.wake()

    def wake(self) -> None:
        """Wake the task in `wait`. It runs when the current task first waits."""
        if self._consumer:
            self._consumer.unpark_all()

    async def wait(self) -> None:
        """Wait until there is something to take or the queue is closed."""
        while self.size == 0 and not self.closed:
            await self._consumer.park()

    def take(self) -> list[bytes]:
        """Take all messages."""
        messages = self._messages
        self._messages = []
        self.mark_written(self.size)
        return messages

    def next_block(self) -> memoryview:
        """Return what to write next: the rest of the last block, or all messages.

        It still counts towards `size` until `mark_written` is called.
        """
        if not self._block:
            self._block = memoryview(self._end.join([*self._messages, b""]))
            self._messages.clear()
        return self._block

    def mark_written(self, size: int) -> None:
        """Note that the first `size` bytes of the block were written."""
        # An empty slice would keep the written block in memory.
        self._block = self._block[size:] or _EMPTY
        # The size is 0 already if everything was discarded in the meantime.
        self.size = max(0, self.size - size)
        if self._producers and not self.is_full:
            self._producers.unpark_all()

    async def drained(self) -> None:
        """Wait until the queue is below the high-water mark.

        Returns immediately, without a checkpoint, if it already is.
        """
        while self.is_full:
            self.wake()
            await self._producers.park()

    def close(self, *, discard: bool = False) -> None:
        """Accept no more messages. With `discard`, drop those that are queued."""
        self.closed = True
        if discard:
            self.take()
        self.wake()


class ChargedQueue(SendQueue):
    """A queue whose bytes are charged to a client, unless there are only a few.

    If its memory is needed for other clients, it is closed and drops its messages.
    """

    def __init__(
        self,
        ledger: Ledger,
        account: Account,
        kind: str,
        priority: Priority,
        end: bytes = b"\n",
    ) -> None:
        super().__init__(end=end)
        self._meter = Meter(ledger, account, kind, priority, self.give_up)

    def put(self, message: bytes) -> None:
        """Queue a message, and charge it."""
        super().put(message)
        self._meter.set(self.size)

    def mark_written(self, size: int) -> None:
        """Note that the first `size` bytes of the block were written."""
        super().mark_written(size)
        self._meter.set(self.size)

    def give_up(self) -> bool:
        """Close the queue and drop its messages."""
        self.close(discard=True)
        return True


class QueuedWire:
    """A wire that receives its messages from a queue.

    It sends messages to a channel: another queue, or an HTTP response. `headers` are
    those of the HTTP request that opened the wire, with names in lower case.
    """

    def __init__(
        self,
        incoming: SendQueue,
        outgoing: Channel,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> None:
        self.headers = headers
        self.incoming = incoming
        self.outgoing = outgoing
        self.send = outgoing.send
        self.drained = outgoing.drained

    async def receive(self) -> list[bytes | None]:
        """Wait for messages and return all of them, or an empty list at the end.

        Returns without a checkpoint if messages are queued already.
        """
        await self.incoming.wait()
        return [*self.incoming.take()]

    def flush(self) -> None:
        """Do nothing: the messages of one turn are taken together anyway."""


async def call_when_set(event: trio.Event, function: Callable[[], None]) -> None:
    """Wait for an event, then call a function."""
    await event.wait()
    function()


async def close_gracefully(stream: trio.abc.Stream, seconds: float) -> None:
    """Close a stream so that the client can still read the last messages.

    The system resets a connection that is closed with unread input, so this first reads
    what the client has sent, for at most this many seconds.
    """
    with suppress(*DISCONNECTED), trio.move_on_after(seconds, shield=True):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while await stream.receive_some():
            pass
    await trio.aclose_forcefully(stream)
