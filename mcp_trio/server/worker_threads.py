"""Worker threads for functions that may block.

A thread cannot be taken back: a function that hangs, or whose request was cancelled,
keeps its thread until it returns. So the threads are shared: an account holds at most
three quarters of them, including those that its cancelled requests left running, and
the accounts that wait get the freed threads in turn.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from math import inf
from typing import Any, cast

import trio

from ..protocol.errors import TooManyCalls
from .accounts import Account
from .limits import BUSY

log = logging.getLogger("mcp_trio")

# The part of the threads that one account may hold.
SHARE = 0.75
# Seconds that a call waits for a thread while none becomes free.
PATIENCE = 30.0
# Seconds between two log lines about abandoned threads.
LOG_INTERVAL = 1.0


class WorkerThreads:
    """Runs calls in trio's threads: at most `most` at a time.

    `busy` and `abandoned` count the threads that run a call, by whether anybody waits
    for its result. `waiting` counts the calls that wait for a thread.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = 0
        self.abandoned = 0
        self._held: Counter[Account] = Counter()
        self._abandoned_by: Counter[Account] = Counter()
        # The calls that wait for a thread. The first account that may hold one more
        # gets a freed thread, and becomes the last. Many calls may be cancelled at
        # once, so each is found without a search.
        self._queues: dict[Account, OrderedDict[_Slot, None]] = {}
        # When a thread last became free: of each account that holds some, and of all.
        self._freed_at: dict[Account, float] = {}
        self._any_freed_at = -inf
        self._log_at = -inf

    @property
    def waiting(self) -> int:
        """The calls that wait for a thread."""
        return sum(map(len, self._queues.values()))

    async def run(self, call: Callable[[], Any], account: Account, label: str) -> Any:
        """Run a call in a thread and return its result.

        `label` names the function in the log. If this is cancelled, the thread is
        abandoned: the call ends by itself, early if it uses
        `trio.from_thread.check_cancelled`. Raises TooManyCalls if no thread can be had.
        """
        slot = _Slot(self, call, account)
        # trio documents that any object with the same two methods will do.
        limiter = cast(trio.CapacityLimiter, slot)
        try:
            await trio.to_thread.run_sync(slot, abandon_on_cancel=True, limiter=limiter)
        except trio.Cancelled:
            if slot.is_held:
                self._abandon(slot, label)
            raise
        except RuntimeError:
            if slot.has_begun:
                raise
            # The system has no thread left, or no memory for one.
            raise _busy("no thread can be started") from None
        return slot.value

    # Taking threads and giving them back

    async def take(self, slot: "_Slot") -> None:
        """Wait until the slot's account may hold one more thread, and count it."""
        account = slot.account
        if account not in self._queues and self._has_room(account):
            self._hold(slot)
            return
        if self._is_stuck(account):
            raise self._stuck(account)
        self._queues.setdefault(account, OrderedDict())[slot] = None
        try:
            await self._wait_for_turn(slot)
        except BaseException:
            if slot.is_held:
                self.give_back(slot)
            else:
                self._leave_queue(slot)
            raise

    async def _wait_for_turn(self, slot: "_Slot") -> None:
        """Wait in the queue. Raises TooManyCalls if no thread becomes free for long."""
        while not slot.turn.is_set():
            with trio.move_on_after(PATIENCE):
                await slot.turn.wait()
            if not slot.turn.is_set() and self._is_stalled(slot.account):
                raise _busy(f"no worker thread became free within {PATIENCE:g} s")
        if slot.refusal is not None:
            raise slot.refusal

    def give_back(self, slot: "_Slot") -> None:
        """Count a thread as free, and let the next call have it."""
        slot.is_held = False
        self._count_down(self._held, slot.account)
        if slot.is_abandoned:
            self.abandoned -= 1
            self._count_down(self._abandoned_by, slot.account)
        else:
            self.busy -= 1
        self._any_freed_at = trio.current_time()
        if slot.account in self._held:
            self._freed_at[slot.account] = self._any_freed_at
        else:
            self._freed_at.pop(slot.account, None)
        self._serve_queues()

    def _has_room(self, account: Account) -> bool:
        is_any_free = self.busy + self.abandoned < self.most
        return is_any_free and self._held[account] < self._share_of(account)

    def _share_of(self, account: Account) -> int:
        """Return how many threads an account may hold."""
        if account.is_only_client:
            return self.most
        return max(1, int(self.most * SHARE))

    def _is_stalled(self, account: Account) -> bool:
        """Return whether no thread that the account could get became free for long."""
        freed_at = self._any_freed_at
        if self._held[account] >= self._share_of(account):
            freed_at = self._freed_at.get(account, -inf)
        return freed_at <= trio.current_time() - PATIENCE

    def _hold(self, slot: "_Slot") -> None:
        slot.is_held = True
        self.busy += 1
        self._held[slot.account] += 1

    def _serve_queues(self) -> None:
        """Let one call of each account begin, in turn, as long as threads are free."""
        served = True
        while served:
            served = False
            for account in list(self._queues):
                if self._has_room(account):
                    self._serve_first(account)
                    served = True

    def _serve_first(self, account: Account) -> None:
        """Let an account's first call begin. Its next one comes after all others."""
        queue = self._queues.pop(account)
        slot, _ = queue.popitem(last=False)
        if queue:
            self._queues[account] = queue
        self._hold(slot)
        slot.turn.set()

    def _leave_queue(self, slot: "_Slot") -> None:
        """Take a call out of its queue, unless it was taken out already."""
        queue = self._queues.get(slot.account)
        if queue is not None and slot in queue:
            del queue[slot]
            if not queue:
                del self._queues[slot.account]

    def _count_down(self, counter: "Counter[Account]", account: Account) -> None:
        counter[account] -= 1
        if not counter[account]:
            del counter[account]

    # Abandoned threads

    def _abandon(self, slot: "_Slot", label: str) -> None:
        """Count a thread whose call nobody waits for any more, and log it."""
        slot.is_abandoned = True
        self.busy -= 1
        self.abandoned += 1
        self._abandoned_by[slot.account] += 1
        now = trio.current_time()
        if now >= self._log_at:
            self._log_at = now + LOG_INTERVAL
            log.warning(
                "%s was stopped, but its thread still runs: %d of %d worker threads "
                "are abandoned",
                label,
                self.abandoned,
                self.most,
                extra={"event": "abandoned", "threads": self.abandoned},
            )
        self._refuse_waiting_calls()

    def _refuse_waiting_calls(self) -> None:
        """Refuse the calls that wait, as far as only abandoned threads are left."""
        for account in list(self._queues):
            if self._is_stuck(account):
                refusal = self._stuck(account)
                for slot in self._queues.pop(account):
                    slot.refusal = refusal
                    slot.turn.set()

    def _is_stuck(self, account: Account) -> bool:
        """Return whether abandoned threads leave none that the account could get."""
        if self.abandoned >= self.most:
            return True
        return self._abandoned_by[account] >= self._share_of(account)

    def _stuck(self, account: Account) -> TooManyCalls:
        """Return the refusal of a call that cannot get a thread."""
        if self.abandoned >= self.most:
            return _busy(f"all {self.most} worker threads are stuck in abandoned calls")
        count = self._abandoned_by[account]
        return _busy(f"{count} worker threads are stuck in calls that you abandoned")


class _Slot:
    """One call, and the thread that it holds. For trio it is the thread's limiter."""

    def __init__(
        self, threads: WorkerThreads, call: Callable[[], Any], account: Account
    ) -> None:
        self.account = account
        self.has_begun = False
        self.is_held = False
        self.is_abandoned = False
        self.turn = trio.Event()  # set when it holds a thread, or is refused
        self.refusal: TooManyCalls | None = None
        self.value: Any = None
        self._threads = threads
        self._call = call

    def __call__(self) -> None:
        """In the thread: run the call.

        The value is not returned, because trio refuses one that is awaitable.
        """
        self.has_begun = True
        self.value = self._call()

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Wait for a thread."""
        await self._threads.take(self)

    def release_on_behalf_of(self, borrower: object) -> None:
        """Give the thread back. trio calls this when the call has really ended."""
        self._threads.give_back(self)


def _busy(why: str) -> TooManyCalls:
    return TooManyCalls(f"Busy: {why}; try again in {BUSY:g} s", retry_after=BUSY)
