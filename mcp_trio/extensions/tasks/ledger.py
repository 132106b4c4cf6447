"""Limits on the tasks of one client."""

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count

import trio
from msgspec import Struct

from ...protocol.errors import TooManyCalls

# The size of a task without its params and its result, in bytes.
OVERHEAD = 1024
# Seconds after which a client that exceeds a limit may try again.
LATER = 5.0


class _Holding(Struct):
    client: Hashable
    size: int


class _Total(Struct):
    tasks: int = 0
    size: int = 0


class TaskLedger:
    """The number and the size of each client's tasks, until they expire."""

    def __init__(self, most_tasks: int, most_bytes: int) -> None:
        self._most_tasks = most_tasks
        self._most_bytes = most_bytes
        self._holdings: dict[str, _Holding] = {}
        self._totals: dict[Hashable, _Total] = {}
        self._expiries: list[tuple[float, int, str]] = []
        self._numbers = count()

    def admit(self, client: Hashable, size: int) -> None:
        """Raise TooManyCalls if a client cannot have another task of this size."""
        self.forget_expired()
        total = self._totals.get(client, _Total())
        if total.tasks >= self._most_tasks:
            raise TooManyCalls(
                f"Too many tasks: {total.tasks:,} are kept for this client, and at "
                f"most {self._most_tasks:,} may be; try again later",
                retry_after=LATER,
            )
        if total.size + size + OVERHEAD > self._most_bytes:
            raise TooManyCalls(
                f"Too many tasks: {total.size:,} bytes are kept for this client, and "
                f"at most {self._most_bytes:,} may be; try again later",
                retry_after=LATER,
            )

    def add(self, id: str, client: Hashable, size: int, ttl: float) -> None:
        """Count a task of a client until it expires."""
        self._holdings[id] = _Holding(client, size + OVERHEAD)
        total = self._totals.setdefault(client, _Total())
        total.tasks += 1
        total.size += size + OVERHEAD
        expires = trio.current_time() + ttl
        heappush(self._expiries, (expires, next(self._numbers), id))

    def has_room(self, id: str, size: int) -> bool:
        """Count the result of a task. Returns False if it exceeds the limit."""
        holding = self._holdings.get(id)
        if holding is None:  # created by another process
            return True
        total = self._totals[holding.client]
        if total.size + size > self._most_bytes:
            return False
        holding.size += size
        total.size += size
        return True

    def forget_expired(self) -> list[str]:
        """Stop counting expired tasks, and return their ids."""
        now = trio.current_time()
        expired = []
        while self._expiries and self._expiries[0][0] <= now:
            _, _, id = heappop(self._expiries)
            self._forget(id)
            expired.append(id)
        return expired

    def _forget(self, id: str) -> None:
        holding = self._holdings.pop(id, None)
        if holding is None:
            return
        total = self._totals[holding.client]
        total.tasks -= 1
        total.size -= holding.size
        if not total.tasks:
            del self._totals[holding.client]
