"""Slots: how many tasks a process works on at a time."""

import trio


class Slots:
    """A number of slots."""

    def __init__(self, number: int) -> None:
        self.free = number
        self._changed = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        """Wait until there is a free slot, without taking it."""
        while self.free <= 0:
            await self._changed.park()

    def give_back(self) -> None:
        """Make another slot free."""
        self.free += 1
        self._changed.unpark_all()


class Slot:
    """The slot of one task, while it has one. A task that only waits needs none."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._is_taken = False

    async def take(self) -> None:
        """Take a slot, as soon as one is free."""
        await self._slots.wait()
        self.take_now()

    def take_now(self) -> None:
        """Take a slot, even if that is one too many for a while."""
        self._slots.free -= 1
        self._is_taken = True

    def release(self) -> None:
        """Let another task have the slot. Does nothing if the slot is not taken."""
        if self._is_taken:
            self._is_taken = False
            self._slots.give_back()
