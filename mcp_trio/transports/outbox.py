"""Messages on their way out: put by any task, taken by one, all that are there at once."""

import trio

HIGH_WATER = 16 * 2**20


class Outbox:
    """A queue that counts its bytes, so that those who fill it can wait until it is below the high-water mark."""

    def __init__(self, high_water: int = HIGH_WATER) -> None:
        self.closed = False
        self.size = 0  # bytes put and not yet gone, a line feed for each message included
        self._high_water = high_water
        self._messages: list[bytes] = []
        self._taker = trio.lowlevel.ParkingLot()
        self._fillers = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether more is queued than the high-water mark."""
        return self.size > self._high_water

    def put(self, message: bytes) -> None:
        """Queues a message; once the outbox is closed, there is nobody to take it, and it is dropped."""
        if not self.closed:
            self._messages.append(message)
            self.size += len(message) + 1

    def wake(self) -> None:
        """Lets the task in `wait` go on; it runs when the present one first waits."""
        if self._taker:
            self._taker.unpark_all()

    async def wait(self) -> None:
        """Returns when there is something to take or the outbox is closed."""
        while self.size == 0 and not self.closed:
            await self._taker.park()

    def take(self) -> list[bytes]:
        """Everything queued. Its bytes count until `gone` says that they are."""
        messages, self._messages = self._messages, []
        return messages

    def gone(self, size: int) -> None:
        """So many bytes of what was taken have left."""
        self.size -= size
        if not self.is_full and self._fillers:
            self._fillers.unpark_all()

    async def drained(self) -> None:
        """Returns when the queue is below the mark: at once, without a checkpoint, if it is already."""
        while self.is_full:
            await self._fillers.park()

    def close(self, *, discard: bool = False) -> None:
        """Takes no more messages; with `discard`, forgets those that it has."""
        self.closed = True
        if discard:
            self._messages.clear()
            self.gone(self.size)
        self.wake()
