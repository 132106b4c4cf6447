"""Accounting of the memory that the server holds for its clients, in bytes.

All data that a client makes the server keep is a holding of its account: a body that is
being read, a request that waits, unread replies, event history, sessions,
subscriptions. All accounts share one budget. A client may use all free memory, but not
at the expense of others: if the budget is exceeded, the largest account has to give up
holdings.

An account gives up its holdings in this order:

    Priority.IDLE      not in use; the oldest first
    Priority.STREAM    read by a client; the oldest first
    Priority.REQUEST   work in progress; the newest first

A holding is charged when data begins to be kept. A request that is answered by the task
that read it is not charged. Holdings whose size changes often are charged by a `Meter`,
in steps, and not at all while they are small.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from math import inf
from typing import Protocol
from weakref import WeakMethod

import trio

from .accounts import Account
from .allocator import Allocator

log = logging.getLogger("mcp_trio")

# If the budget is exceeded, this fraction of it is freed, so that the next charge does
# not exceed it again.
ROOM = 1 / 16
# If the system is out of memory, this fraction of the held memory is freed.
RELIEF = 1 / 4
# Minimum seconds between two log records about the budget.
LOG_INTERVAL = 10.0
# If more bytes than this are held, the allocator is configured to return large blocks.
MUCH = 2**20
# If more bytes than this were held, and half of them were released, free memory is
# returned to the system. This takes milliseconds, so there is a minimum interval.
MUCH_TO_RETURN = 8 * 2**20
RETURN_INTERVAL = 1.0
# A meter charges in steps of this many bytes.
STEP = 4 * 1024


class Priority(IntEnum):
    """The priority of a holding. The lowest priority is given up first."""

    IDLE = 0
    STREAM = 1
    REQUEST = 2


class Chargeable(Protocol):
    """An object that an account can be charged for.

    Usually this is a `Holding`. Objects such as sessions, of which there may be many
    thousands, have these attributes themselves, which takes less memory.
    """

    kind: str
    size: int  # in bytes
    priority: Priority
    # Set by the ledger: the account's entry, or None if it is not charged.
    entry: "AccountEntry | None"

    def give_up(self) -> bool:
        """Free the memory. Returns False if that is not possible now."""


class Holding:
    """Data that is kept for an account, with its size in bytes.

    `let_go` is called when the account has to give up holdings. It frees the memory and
    returns True, or returns False if that is not possible now. `release` must be called
    when the data is no longer kept, for any reason. Calling it again does nothing.
    """

    __slots__ = ("_ledger", "_let_go", "entry", "kind", "priority", "size")

    def __init__(
        self,
        ledger: "Ledger",
        kind: str,
        size: int,
        priority: Priority,
        let_go: Callable[[], bool],
    ) -> None:
        self.kind = kind
        self.size = size
        self.priority = priority
        self.entry: AccountEntry | None = None
        self._ledger = ledger
        self._let_go: Callable[[], bool] | None = let_go

    @property
    def is_released(self) -> bool:
        """Whether this is no longer charged."""
        return self.entry is None

    def give_up(self) -> bool:
        """Free the memory, if that is possible now."""
        return self._let_go is not None and self._let_go()

    def resize(self, size: int) -> None:
        """Change the size, in bytes."""
        if self.entry is not None:
            self._ledger.charge(self.entry, self.kind, size - self.size)
            self.size = size
            self._ledger.keep_budget()

    def touch(self) -> None:
        """Mark this as just used, so that it is not the oldest of its account."""
        self._ledger.touch(self)

    def reprioritize(self, priority: Priority) -> None:
        """Change the priority. This becomes the newest holding of that priority."""
        if self.entry is not None and priority is not self.priority:
            del self.entry.holdings[self.priority][self]
            self.entry.holdings[priority][self] = None
            self.priority = priority

    def release(self) -> None:
        """Stop charging for this."""
        self._ledger.release(self)
        # Breaks the reference cycle between this and its owner.
        self._let_go = None


class AccountEntry:
    """One account's holdings, by priority. The oldest is first."""

    __slots__ = ("account", "counts", "holdings", "total")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.total = 0
        self.counts: dict[str, int] = {}  # holdings, by kind
        self.holdings: tuple[dict[Chargeable, None], ...] = ({}, {}, {})

    def shrink(self) -> None:
        """Copy the dicts, because a dict does not shrink when its items are deleted."""
        self.holdings = tuple(dict(holdings) for holdings in self.holdings)

    def in_order(self) -> list[Chargeable]:
        """Return the holdings in the order of giving them up."""
        idle, streams, requests = self.holdings
        return [*idle, *streams, *reversed(requests)]


class _Ranking:
    """The accounts, by the number of their holdings of one kind.

    Counts change by one, so the account with the most is found without a search.
    """

    def __init__(self) -> None:
        # By count. The dicts without values are ordered sets, and never empty.
        self._levels: dict[int, dict[Account, None]] = {}
        self._highest = 0

    def change(self, account: Account, old: int, new: int) -> None:
        """Note that an account's count has changed by one."""
        if new:
            self._levels.setdefault(new, {})[account] = None
            self._highest = max(self._highest, new)
        if old:
            level = self._levels[old]
            del level[account]
            if not level:
                del self._levels[old]
        while self._highest and self._highest not in self._levels:
            self._highest -= 1

    def most(self) -> Account | None:
        """Return an account with the highest count."""
        return next(iter(self._levels[self._highest])) if self._highest else None


class Ledger:
    """All accounts, and the budget that they share.

    `held` is the total of all accounts in bytes, and `by_kind` is its breakdown. The
    allocator is notified when much is held, and when much of it was released.
    """

    def __init__(self, budget: int, allocator: Allocator | None = None) -> None:
        self.budget = budget
        self.held = 0
        self.by_kind: Counter[str] = Counter()
        # The number of holdings that were given up.
        self.given_up = 0
        self._entries: dict[Account, AccountEntry] = {}
        self._rankings: dict[str, _Ranking] = {}
        self._is_making_room = False
        self._has_prepared = False
        self._allocator = allocator or Allocator()
        # The maximum of `held` since memory was last returned, and when that was.
        self._peak = 0
        self._returned_at = -inf
        self._log_at = -inf

    def hold(
        self,
        account: Account,
        kind: str,
        size: int,
        priority: Priority,
        let_go: Callable[[], bool],
    ) -> Holding:
        """Charge an account for data of this size.

        The holding may be given up before this returns: see `Holding.is_released`.
        """
        holding = Holding(self, kind, size, priority, let_go)
        self.add(account, holding)
        return holding

    def add(self, account: Account, kept: Chargeable) -> None:
        """Charge an account for an object, until `release`.

        The object may be given up before this returns.
        """
        entry = self._entries.get(account)
        if entry is None:
            entry = self._entries[account] = AccountEntry(account)
        kept.entry = entry
        entry.holdings[kept.priority][kept] = None
        self.charge(entry, kept.kind, kept.size)
        self.count(entry, kept.kind, 1)
        if self.held > self.budget:
            self.keep_budget()

    def touch(self, kept: Chargeable) -> None:
        """Mark an object as just used, so that it is not the oldest of its account."""
        if kept.entry is not None:
            holdings = kept.entry.holdings[kept.priority]
            del holdings[kept]
            holdings[kept] = None

    def release(self, kept: Chargeable) -> None:
        """Stop charging for an object. Calling it again does nothing."""
        entry = kept.entry
        if entry is not None:
            kept.entry = None
            del entry.holdings[kept.priority][kept]
            self.charge(entry, kept.kind, -kept.size)
            self.count(entry, kept.kind, -1)

    def held_by(self, account: Account) -> int:
        """Return the size of an account's holdings in bytes."""
        entry = self._entries.get(account)
        return 0 if entry is None else entry.total

    # Fair shares of counted holdings

    def rank(self, *kinds: str) -> None:
        """Keep track of the account with the most holdings of each of these kinds.

        Must be called before there are any.
        """
        for kind in kinds:
            self._rankings.setdefault(kind, _Ranking())

    def count_of(self, account: Account, kind: str) -> int:
        """Return how many holdings of a ranked kind an account has."""
        entry = self._entries.get(account)
        return 0 if entry is None else entry.counts.get(kind, 0)

    def most_of(self, kind: str) -> Account | None:
        """Return the account with the most holdings of a ranked kind, or None."""
        return self._rankings[kind].most()

    def give_up_one(self, account: Account, kind: str) -> bool:
        """Let an account give up its oldest idle holding of a kind."""
        entry = self._entries.get(account)
        if entry is None:
            return False
        for holding in list(entry.holdings[Priority.IDLE]):
            if holding.kind == kind and self._give_up(holding):
                return True
        return False

    # For holdings

    def charge(self, entry: AccountEntry, kind: str, change: int) -> None:
        """Change the total of an account, without checking the budget."""
        entry.total += change
        self.held += change
        self.by_kind[kind] += change
        if self.held > self._peak:
            self._peak = self.held
            if self.held > MUCH and not self._has_prepared:
                self._has_prepared = True
                self._allocator.return_large_blocks()
        elif self._peak > MUCH_TO_RETURN:
            self.return_memory()

    def return_memory(self) -> None:
        """Return free memory to the system if much was released.

        Does nothing if this was done recently, so it has to be called again later.
        """
        if self._peak <= MUCH_TO_RETURN or self.held >= self._peak // 2:
            return
        now = time.monotonic()
        if now - self._returned_at >= RETURN_INTERVAL:
            self._returned_at = now
            self._peak = self.held
            for entry in self._entries.values():
                entry.shrink()
            self._allocator.return_free_memory()

    def count(self, entry: AccountEntry, kind: str, change: int) -> None:
        """Count a new holding (1) or a released one (-1)."""
        if kind in self._rankings:
            old = entry.counts.get(kind, 0)
            entry.counts[kind] = old + change
            self._rankings[kind].change(entry.account, old, old + change)
        if change < 0 and not any(entry.holdings):
            self._entries.pop(entry.account, None)

    def keep_budget(self) -> None:
        """If the budget is exceeded, let the largest accounts give up holdings."""
        if self.held > self.budget:
            target = self.budget - int(self.budget * ROOM)
            self._make_room(target, f"more is held than {self.budget:,} bytes")

    def relieve(self) -> bool:
        """Free memory because the system is out of memory.

        Returns whether anything was given up. Some memory is only freed later, when the
        tasks that use it have ended.
        """
        target = self.held - int(self.held * RELIEF)
        return self._make_room(target, "the system has no more memory")

    # Making room

    def _make_room(self, target: int, reason: str) -> bool:
        """Let the largest accounts give up holdings. Returns whether they did."""
        if self._is_making_room:
            # Giving something up may itself be charged, such as for an error reply.
            return False
        self._is_making_room = True
        before = self.given_up
        try:
            self._make_room_down_to(target)
        finally:
            self._is_making_room = False
        count = self.given_up - before
        self._log(reason, count)
        return count > 0

    def _make_room_down_to(self, target: int) -> None:
        unable: set[Account] = set()
        while self.held > target:
            entry = self._largest_except(unable)
            if entry is None:
                break
            if not self._take_from(entry, target):
                unable.add(entry.account)

    def _largest_except(self, unable: set[Account]) -> AccountEntry | None:
        entries = [
            entry for entry in self._entries.values() if entry.account not in unable
        ]
        return max(entries, key=lambda entry: entry.total, default=None)

    def _take_from(self, entry: AccountEntry, target: int) -> bool:
        """Let an account give up holdings, while it is the largest, to reach a target.

        Returns whether it gave up any.
        """
        has_given_up = False
        others = [other.total for other in self._entries.values() if other is not entry]
        next_largest = max(others, default=0)
        for holding in entry.in_order():
            if self.held <= target:
                break
            if has_given_up and entry.total < next_largest:
                # Another account is the largest now.
                break
            if holding.size and self._give_up(holding):
                has_given_up = True
        return has_given_up

    def _give_up(self, holding: Chargeable) -> bool:
        """Give a holding up, if that is possible now."""
        if holding.entry is None or not holding.give_up():
            return False
        self.release(holding)
        self.given_up += 1
        return True

    def _log(self, reason: str, count: int) -> None:
        now = trio.current_time() if trio.lowlevel.in_trio_run() else inf
        if now < self._log_at:
            return
        self._log_at = now + LOG_INTERVAL
        log.warning(
            "%s; freed %d holdings of the clients that hold the most",
            reason,
            count,
            extra={"event": "memory", "held": self.held, "given_up": count},
        )


class Meter:
    """Charges an account for data whose size changes often.

    Up to `free` bytes are not charged, so small data costs almost nothing.

    `give_up` is a method of the owner. The meter only has a weak reference to it, and
    the charge ends when the owner is deleted.
    """

    __slots__ = (
        "_account",
        "_charged",
        "_free",
        "_give_up",
        "_holding",
        "_is_closed",
        "_kind",
        "_ledger",
        "_priority",
    )

    def __init__(
        self,
        ledger: Ledger,
        account: Account,
        kind: str,
        priority: Priority,
        give_up: Callable[[], bool],
        *,
        free: int = STEP,
    ) -> None:
        self._ledger = ledger
        self._account = account
        self._kind = kind
        self._priority = priority
        self._give_up = WeakMethod(give_up)
        self._free = free
        self._charged = 0
        self._is_closed = False
        self._holding: Holding | None = None

    def __del__(self) -> None:
        if self._holding is not None:
            self._holding.release()

    def set(self, size: int) -> None:
        """Set the size. This may call the owner's `give_up` before it returns."""
        if size <= self._free:
            self._stop_charging()
        elif not self._charged - STEP < size <= self._charged:
            self._charge(-(-size // STEP) * STEP)

    def reprioritize(self, priority: Priority) -> None:
        """Change the priority."""
        self._priority = priority
        if self._holding is not None:
            self._holding.reprioritize(priority)

    def close(self) -> None:
        """Stop charging, whatever the size."""
        self._stop_charging()
        self._is_closed = True

    def _charge(self, size: int) -> None:
        if self._is_closed:
            return
        self._charged = size
        if self._holding is not None and not self._holding.is_released:
            self._holding.resize(size)
            return
        method = self._give_up

        def give_up() -> bool:
            found = method()
            return found is None or found()

        self._holding = self._ledger.hold(
            self._account, self._kind, size, self._priority, give_up
        )

    def _stop_charging(self) -> None:
        self._charged = 0
        if self._holding is not None:
            self._holding.release()
            self._holding = None
