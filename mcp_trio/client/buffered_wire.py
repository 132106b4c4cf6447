"""Message queues between a client and the tasks that carry its messages."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio


class MessageQueue:
    """A queue of messages, which are taken all at once."""

    def __init__(self) -> None:
        self._messages: list[bytes | None] = []
        self._is_closed = False
        self._changed = trio.lowlevel.ParkingLot()

    def put(self, message: bytes) -> None:
        """Add a message, unless the queue is closed."""
        if not self._is_closed:
            self._messages.append(message)
            self._changed.unpark_all()

    def close(self) -> None:
        """Accept no more messages. Those in the queue can still be taken."""
        self._is_closed = True
        self._changed.unpark_all()

    async def take(self) -> list[bytes | None]:
        """Wait for messages and take all of them. Returns an empty list at the end."""
        while not self._messages and not self._is_closed:
            await self._changed.park()
        messages = self._messages
        self._messages = []
        return messages


class BufferedWire:
    """A wire whose messages are buffered in both directions."""

    def __init__(self) -> None:
        self.incoming = MessageQueue()
        self.outgoing = MessageQueue()

    async def receive(self) -> list[bytes | None]:
        """Wait for messages from the server."""
        return await self.incoming.take()

    def send(self, message: bytes) -> None:
        """Queue a message to the server."""
        self.outgoing.put(message)


@asynccontextmanager
async def open_buffered_wire(
    incoming: AsyncIterable[bytes], send: Callable[[bytes], Awaitable[None]]
) -> AsyncIterator[BufferedWire]:
    """Open a wire that ends when `incoming` ends.

    Messages are sent one after the other, because their order matters.
    """
    wire = BufferedWire()

    async def read() -> None:
        async with trio.open_nursery() as writing:
            writing.start_soon(write)
            async for message in incoming:
                wire.incoming.put(message)
            writing.cancel_scope.cancel()
        wire.incoming.close()
        wire.outgoing.close()

    async def write() -> None:
        while messages := await wire.outgoing.take():
            for message in messages:
                # Let other tasks run, even if many messages are queued.
                await trio.lowlevel.checkpoint()
                await send(message or b"")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield wire
        nursery.cancel_scope.cancel()
