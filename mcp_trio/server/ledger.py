"""What the server holds for its clients, in bytes, and who pays when it is too much.

Whatever a client makes the server keep is a `Holding` of its account: a body that is
being read, a request that waits, replies that are not read, event history, sessions,
subscriptions. All accounts share one budget. A client may use all of what is free, but
never what another one needs: when the budget is exceeded, the account that holds most
gives something up.

Each account gives up its holdings in this order:

    Priority.IDLE      nobody uses it now; the oldest first
    Priority.STREAM    a client reads it, or should; the oldest first
    Priority.REQUEST   work that is under way; the newest first

A holding is charged when something begins to be kept, never on the way of a request
that is answered in the turn that read it.
"""

import logging
from collections import Counter
from collections.abc import Callable
from enum import IntEnum

from .accounts import Account

log = logging.getLogger("mcp_trio")


class Priority(IntEnum):
    """What an account gives up first has the lowest priority."""

    IDLE = 0
    STREAM = 1
    REQUEST = 2


class Holding:
    """Something that is kept for an account, with its size in bytes.

    `give_up` is called when the account has to pay. It lets go of whatever is held and
    returns True, or returns False if that is not possible now. `release` must be called
    when the thing is gone, for whatever reason; calling it twice does nothing.
    """

    __slots__ = ("_entry", "_give_up", "_is_released", "_ledger", "_priority", "kind")

    def __init__(
        self,
        ledger: "Ledger",
        entry: "_Entry",
        kind: str,
        priority: Priority,
        give_up: Callable[[], bool],
    ) -> None:
        self.kind = kind
        self._ledger = ledger
        self._entry = entry
        self._priority = priority
        self._give_up = give_up
        self._is_released = False

    @property
    def account(self) -> Account:
        """The account that pays for this."""
        return self._entry.account

    @property
    def size(self) -> int:
        """The bytes that are charged for this."""
        return self._entry.holdings[self._priority].get(self, 0)

    def resize(self, size: int) -> None:
        """Charge another number of bytes from now on."""
        if self._is_released:
            return
        self._ledger._charge(self, size)

    def touch(self) -> None:
        """Count this as just used, so it is not the oldest of its account."""
        if not self._is_released:
            holdings = self._entry.holdings[self._priority]
            holdings[self] = holdings.pop(self)

    def reprioritize(self, priority: Priority) -> None:
        """Change when this is given up; it becomes the newest of its new priority."""
        if self._is_released or priority is self._priority:
            return
        size = self._entry.holdings[self._priority].pop(self)
        self._entry.holdings[priority][self] = size
        self._priority = priority

    def release(self) -> None:
        """Charge nothing for this any more."""
        if not self._is_released:
            self._ledger._charge(self, 0)
            self._is_released = True
            self._ledger._forget(self)


class _Entry:
    """One account's holdings, by priority; the oldest is first."""

    __slots__ = ("account", "counts", "holdings", "total")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.total = 0
        self.counts: Counter[str] = Counter()  # holdings, by kind
        self.holdings: tuple[dict[Holding, int], ...] = ({}, {}, {})

    @property
    def is_empty(self) -> bool:
        return not any(self.holdings)

    def in_order(self) -> list[Holding]:
        """Return the holdings, in the order in which they are given up."""
        idle, streams, requests = self.holdings
        return [*idle, *streams, *reversed(requests)]


class Ledger:
    """All accounts, and the budget that they share.

    `held` is what all accounts hold together, and `by_kind` says what it is.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.held = 0
        self.by_kind: Counter[str] = Counter()
        # How many holdings had to be given up.
        self.given_up = 0
        self._entries: dict[Account, _Entry] = {}
        self._is_making_room = False

    def hold(
        self,
        account: Account,
        kind: str,
        size: int,
        priority: Priority,
        give_up: Callable[[], bool],
    ) -> Holding:
        """Charge an account for something that is kept from now on."""
        entry = self._entries.get(account)
        if entry is None:
            entry = self._entries[account] = _Entry(account)
        holding = Holding(self, entry, kind, priority, give_up)
        entry.holdings[priority][holding] = 0
        entry.counts[kind] += 1
        self._charge(holding, size)
        return holding

    def held_by(self, account: Account) -> int:
        """Return the bytes that an account holds."""
        entry = self._entries.get(account)
        return 0 if entry is None else entry.total

    def count_of(self, account: Account, kind: str) -> int:
        """Return how many holdings of a kind an account has."""
        entry = self._entries.get(account)
        return 0 if entry is None else entry.counts[kind]

    def most_of(self, kind: str) -> Account | None:
        """Return the account with the most holdings of a kind, if any has some."""
        entries = [entry for entry in self._entries.values() if entry.counts[kind]]
        if not entries:
            return None
        return max(entries, key=lambda entry: entry.counts[kind]).account

    # For holdings

    def _charge(self, holding: Holding, size: int) -> None:
        entry = holding._entry
        holdings = entry.holdings[holding._priority]
        change = size - holdings[holding]
        holdings[holding] = size
        entry.total += change
        self.held += change
        self.by_kind[holding.kind] += change
        if change > 0 and self.held > self.budget:
            self._make_room()

    def _forget(self, holding: Holding) -> None:
        entry = holding._entry
        del entry.holdings[holding._priority][holding]
        entry.counts[holding.kind] -= 1
        if entry.is_empty:
            self._entries.pop(entry.account, None)

    # Making room

    def _make_room(self) -> None:
        """Have the largest accounts give holdings up until the budget is kept."""
        if self._is_making_room:
            # What is given up may charge something itself, such as an error reply.
            return
        self._is_making_room = True
        try:
            unable: set[Account] = set()
            while self.held > self.budget:
                entry = self._largest_except(unable)
                if entry is None:
                    log.warning(
                        "the memory budget is exceeded, and all of it is in use"
                    )
                    return
                if not self._take_from(entry):
                    unable.add(entry.account)
        finally:
            self._is_making_room = False

    def _largest_except(self, unable: set[Account]) -> _Entry | None:
        entries = [
            entry for entry in self._entries.values() if entry.account not in unable
        ]
        return max(entries, key=lambda entry: entry.total, default=None)

    def _take_from(self, entry: _Entry) -> bool:
        """Have an account give up holdings while it is the largest and must.

        Returns whether it gave up any.
        """
        has_given_up = False
        others = [other.total for other in self._entries.values() if other is not entry]
        next_largest = max(others, default=0)
        for holding in entry.in_order():
            if self.held <= self.budget:
                break
            if has_given_up and entry.total < next_largest:
                # Another account is the largest now.
                break
            if holding.size and holding._give_up():
                holding.release()
                self.given_up += 1
                has_given_up = True
        return has_given_up
