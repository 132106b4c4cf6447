"""Queues of messages: put by any task, taken by one, all that are there at once."""

from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from ..server.accounts import Account
from ..server.channel import Channel
from ..server.ledger import Ledger, Meter, Priority

HIGH_WATER = 16 * 2**20
NO_HEADERS: Mapping[bytes, bytes] = {}
_NOTHING = memoryview(b"")
# What a stream raises if its other end is gone, or if it was closed on our side.
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class SendQueue:
    """A queue that counts its bytes.

    Tasks that fill it can wait until it is below the high-water mark. The task that
    empties it either takes whole messages with `take`, or writes them joined as a
    block: `block` returns what to write next, and `gone` says how much was written.

    `size` is the number of bytes that were put and are not gone, including the `end`
    that is written after each message.
    """

    def __init__(self, high_water: int = HIGH_WATER, end: bytes = b"\n") -> None:
        self.closed = False
        self.size = 0
        self.high_water = high_water
        self._end = end
        self._messages: list[bytes] = []
        self._block = _NOTHING  # joined messages; some of them may have been written
        self._taker = trio.lowlevel.ParkingLot()
        self._fillers = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether more is queued than the high-water mark."""
        return self.size > self.high_water

    def put(self, message: bytes) -> None:
        """Queue a message. A closed queue drops it, because nobody would take it."""
        if not self.closed:
            self._messages.append(message)
            self.size += len(message) + len(self._end)

    def send(self, message: bytes) -> None:
        """Queue a message and wake the task in `wait`."""
        self.put(message)
        self.wake()

    def wake(self) -> None:
        """Wake the task in `wait`. It runs when the present task first waits."""
        if self._taker:
            self._taker.unpark_all()

    async def wait(self) -> None:
        """Wait until there is something to take or the queue is closed."""
        while self.size == 0 and not self.closed:
            await self._taker.park()

    def take(self) -> list[bytes]:
        """Take all messages."""
        messages = self._messages
        self._messages = []
        self.gone(self.size)
        return messages

    def block(self) -> memoryview:
        """Return what to write next: the rest of the last block, or all messages.

        Its size still counts, until `gone` is called.
        """
        if not self._block:
            self._block = memoryview(self._end.join([*self._messages, b""]))
            self._messages.clear()
        return self._block

    def gone(self, size: int) -> None:
        """Note that so many bytes of the block were written."""
        # An empty slice would keep the written block in memory.
        self._block = self._block[size:] or _NOTHING
        # The size is 0 already if everything was discarded in the meantime.
        self.size = max(0, self.size - size)
        if self._fillers and not self.is_full:
            self._fillers.unpark_all()

    async def drained(self) -> None:
        """Wait until the queue is below the high-water mark.

        Returns at once, without a checkpoint, if it is already.
        """
        while self.is_full:
            self.wake()
            await self._fillers.park()

    def close(self, *, discard: bool = False) -> None:
        """Take no more messages. With `discard`, forget those that are queued."""
        self.closed = True
        if discard:
            self.take()
        self.wake()


class ChargedQueue(SendQueue):
    """A queue whose bytes are charged to a client, unless they are few.

    If its memory is needed for others, the queue is closed and forgets its messages.
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

    def gone(self, size: int) -> None:
        """Note that so many bytes of the block were written."""
        super().gone(size)
        self._meter.set(self.size)

    def give_up(self) -> bool:
        """Close the queue and forget its messages."""
        self.close(discard=True)
        return True


class QueuedWire:
    """A wire whose incoming messages are in a queue.

    Outgoing messages go to a channel: another queue, or an HTTP response. `headers` are
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
        """Wait for messages and return all of them; an empty list at the end.

        Returns without a checkpoint if there are messages already.
        """
        await self.incoming.wait()
        return [*self.incoming.take()]

    def flush(self) -> None:
        """Do nothing: messages of one turn are taken together anyway."""


async def after(event: trio.Event, act: Callable[[], None]) -> None:
    """Wait for an event, then call a function."""
    await event.wait()
    act()


async def let_go(stream: trio.abc.Stream, within: float) -> None:
    """Close a stream so that the client can still read the last messages.

    Data that the client has sent and nobody has read would make the system reset the
    connection, so it is read first, for so many seconds at most.
    """
    with suppress(*GONE), trio.move_on_after(within, shield=True):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while await stream.receive_some():
            pass
    await trio.aclose_forcefully(stream)
