"""Slots limit how many tasks a process runs at a time."""

import trio


class Slots:
    """The slots of a process. `free` may be negative for a short time."""

    def __init__(self, number: int) -> None:
        self.free = number
        self._changed = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        """Wait until a slot is free, without acquiring it."""
        while self.free <= 0:
            await self._changed.park()

    def release(self) -> None:
        """Release a slot."""
        self.free += 1
        self._changed.unpark_all()


class Slot:
    """The slot of one task. A task that waits for answers releases its slot."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._is_acquired = False

    async def acquire(self) -> None:
        """Wait for a free slot, and acquire it."""
        await self._slots.wait()
        self.acquire_nowait()

    def acquire_nowait(self) -> None:
        """Acquire a slot, even if none is free."""
        self._slots.free -= 1
        self._is_acquired = True

    def release(self) -> None:
        """Release the slot. Does nothing if it is not acquired."""
        if self._is_acquired:
            self._is_acquired = False
            self._slots.release()
