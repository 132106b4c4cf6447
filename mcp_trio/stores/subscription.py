"""The inbox of a subscriber."""

from collections import deque

import trio

from .base import MOST_UNREAD


class Inbox:
    """The unread messages of a subscriber: the `Subscription` of all stores."""

    def __init__(self) -> None:
        self._unread: deque[bytes] = deque()
        self._has_missed = False
        self._arrived = trio.lowlevel.ParkingLot()

    def deliver(self, message: bytes) -> None:
        """Add a message."""
        if len(self._unread) >= MOST_UNREAD:
            self._unread.popleft()
            self._has_missed = True
        self._unread.append(message)
        self._arrived.unpark_all()

    def note_gap(self) -> None:
        """Note that messages may have been lost."""
        self._has_missed = True
        self._arrived.unpark_all()

    async def receive(self) -> list[bytes]:
        """Wait for messages. Returns an empty list if some may have been lost."""
        while not self._unread and not self._has_missed:
            await self._arrived.park()
        if self._has_missed:
            self._has_missed = False
            return []
        messages = list(self._unread)
        self._unread.clear()
        return messages
