"""Messages on their way: put by any task, taken by one, all that are there at once."""

from collections.abc import Callable
from contextlib import suppress

import trio

from ..server.channel import Channel

HIGH_WATER = 16 * 2**20
_NOTHING = memoryview(b"")
# What a stream raises whose other end is gone, or that was closed on our side.
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


class SendQueue:
    """A queue that counts its bytes, so that those who fill it can wait until it is below the high-water mark."""

    def __init__(self, high_water: int = HIGH_WATER, end: bytes = b"\n") -> None:
        self.closed = False
        self.size = 0  # bytes put and not yet gone, with the `end` of each message
        self.high_water = high_water
        self._end = end
        self._messages: list[bytes] = []
        self._block = _NOTHING  # joined messages, begun to be written
        self._taker = trio.lowlevel.ParkingLot()
        self._fillers = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether more is queued than the high-water mark."""
        return self.size > self.high_water

    def put(self, message: bytes) -> None:
        """Queues a message; once the send_queue is closed, there is nobody to take it, and it is dropped."""
        if not self.closed:
            self._messages.append(message)
            self.size += len(message) + len(self._end)

    def send(self, message: bytes) -> None:
        """Queues a message, and lets the task in `wait` go on."""
        self.put(message)
        self.wake()

    def wake(self) -> None:
        """Lets the task in `wait` go on; it runs when the present one first waits."""
        if self._taker:
            self._taker.unpark_all()

    async def wait(self) -> None:
        """Returns when there is something to take or the send_queue is closed."""
        while self.size == 0 and not self.closed:
            await self._taker.park()

    def take(self) -> list[bytes]:
        """Everything queued, which counts no more."""
        messages, self._messages = self._messages, []
        self.gone(self.size)
        return messages

    def block(self) -> memoryview:
        """What is to be written next: the rest of what was begun, or everything queued. It counts until `gone`."""
        if not self._block:
            self._block = memoryview(self._end.join([*self._messages, b""]))
            self._messages.clear()
        return self._block

    def gone(self, size: int) -> None:
        """So many bytes of the block have left. If all was given up meanwhile, that changes nothing."""
        self._block = (
            self._block[size:] or _NOTHING
        )  # so that what is written is not kept
        self.size = max(0, self.size - size)
        if not self.is_full and self._fillers:
            self._fillers.unpark_all()

    async def drained(self) -> None:
        """Returns when the queue is below the mark: at once, without a checkpoint, if it is already."""
        while self.is_full:
            self.wake()
            await self._fillers.park()

    def close(self, *, discard: bool = False) -> None:
        """Takes no more messages; with `discard`, forgets those that it has."""
        self.closed = True
        if discard:
            self.take()
        self.wake()


class QueuedWire:
    """One end of a conversation whose messages come by a queue; they go by another one, or as the channel has it."""

    def __init__(self, incoming: SendQueue, outgoing: Channel) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self.send, self.drained = outgoing.send, outgoing.drained

    async def receive(self) -> list[bytes | None]:
        """Every message that has come; waits for one, without a checkpoint if it is there. Empty: an end was closed."""
        await self.incoming.wait()
        return [*self.incoming.take()]

    def flush(self) -> None:
        """Nothing to do: what is sent in one turn is taken together."""


async def after(event: trio.Event, act: Callable[[], None]) -> None:
    """Wait for an event, then do this."""
    await event.wait()
    act()


async def let_go(stream: trio.abc.Stream, within: float) -> None:
    """Close so that the client can still read our last words: what it has sent and nobody read would cut them off."""
    with suppress(*GONE), trio.move_on_after(within, shield=True):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while await stream.receive_some():
            pass
    await trio.aclose_forcefully(stream)
