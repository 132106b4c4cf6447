"""A log that several processes write to and follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from .base import Entry, Store, StoreUnavailable
from .retry import until_available

# The bounds of the log, for followers that could not receive messages for a while.
MOST_ENTRIES = 10_000
MOST_BYTES = 64 * 2**20
# The size of the position before an entry, in a message of the channel.
_POSITION_SIZE = 8


class Bulletin:
    """Entries that all followers receive once, in the same order.

    Each entry is appended to a log, and published on a channel of the same name. A
    follower normally receives the message. If it detects a gap in the positions, it
    reads the log.
    """

    def __init__(self, store: Store, name: str, *, ttl: float) -> None:
        self._store = store
        self._name = name
        self._ttl = ttl
        # The position of the last entry that was received; None if not yet known.
        self._position: int | None = None

    async def post(self, data: bytes) -> None:
        """Add an entry. If this raises StoreUnavailable, it may have been added."""
        position = await self._store.append(
            self._name, data, entries=MOST_ENTRIES, size=MOST_BYTES, ttl=self._ttl
        )
        message = position.to_bytes(_POSITION_SIZE, "big") + data
        await self._store.publish(self._name, message)

    async def follow(
        self,
        receive: Callable[[bytes], None],
        missed: Callable[[], None],
        *,
        from_start: bool = False,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Call `receive` with each entry from now on.

        With `from_start`, also call it with the earlier entries. `missed` is called if
        entries have been dropped from the log before they were received.
        """
        if from_start:
            self._position = 0
        async with self._store.subscribe(self._name) as arrivals:
            try:
                await self._begin()
            except StoreUnavailable:
                task_status.started()
                await until_available(self._begin)
            else:
                task_status.started()
            while True:
                messages = await arrivals.receive()
                if not messages:
                    await self._catch_up(receive, missed)
                for message in messages:
                    position = int.from_bytes(message[:_POSITION_SIZE], "big")
                    if position - 1 == self._position:
                        self._position = position
                        receive(message[_POSITION_SIZE:])
                    else:
                        await self._catch_up(receive, missed)

    async def _begin(self) -> None:
        """Start after the last entry in the log, unless the start is known."""
        if self._position is None:
            self._position = _last(await self._read(0))

    async def _catch_up(
        self, receive: Callable[[bytes], None], missed: Callable[[], None]
    ) -> None:
        """Receive the entries in the log that have not been received."""
        known = self._position or 0
        # Includes the last known entry, to check that this is still the same log.
        entries = await until_available(partial(self._read, max(known - 1, 0)))
        if known and (not entries or entries[0].position != known):
            entries = await until_available(partial(self._read, 0))
            if _last(entries) < known:  # the log has expired, and started again
                known = 0
            if entries and entries[0].position > known + 1:
                missed()
        for entry in entries:
            if entry.position > known:
                self._position = entry.position
                receive(entry.data)
        self._position = max(_last(entries), known)

    async def _read(self, after: int) -> list[Entry]:
        page = await self._store.read_log(self._name, after)
        return page.entries


def _last(entries: list[Entry]) -> int:
    return entries[-1].position if entries else 0
