"""Worker threads for functions that may block.

A thread cannot be killed: a function that hangs, or whose request was cancelled, keeps
its thread until it returns. So the threads are shared fairly. An account may use at
most three quarters of them, including threads that its cancelled requests left running.
Waiting accounts take turns in getting freed threads.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from math import inf
from typing import Any

import trio

from ..protocol.errors import TooManyCalls
from .accounts import Account
from .limits import BUSY
from .thread_pool import ThreadCall, ThreadPool

log = logging.getLogger("mcp_trio")

# Why a call is refused if the system cannot start a thread.
NO_THREAD = "no thread can be started"
# The share of the threads that one account may use.
SHARE = 0.75
# Seconds that a call waits for a thread while none becomes free.
PATIENCE = 30.0
# Seconds between checks whether calls have waited for so long.
CHECK_INTERVAL = 1.0
# Minimum seconds between two log records about abandoned threads.
LOG_INTERVAL = 1.0
# Seconds until the system is asked again for a thread that it could not start: the
# first pause, and the longest one. CPython 3.11 to 3.13 leaks memory each time.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


class WorkerThreads:
    """Runs calls in trio's threads, at most `most` at a time.

    `busy` counts the calls that are awaited and have a thread, or are about to get one,
    and `abandoned` those that were cancelled but still run. `waiting` counts the calls
    that wait for a thread.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy = 0
        self.abandoned = 0
        self._held: Counter[Account] = Counter()
        self._abandoned_by: Counter[Account] = Counter()
        # The calls that wait for a thread. A freed thread goes to the first account
        # that is below its share, which then becomes the last. Each call can be removed
        # without a search, because many may be cancelled at once.
        self._queues: dict[Account, OrderedDict[_Call, None]] = {}
        # When a thread of each account that holds one, and when any thread, last
        # became free.
        self._freed_at: dict[Account, float] = {}
        self._any_freed_at = -inf
        self._is_checking = False
        self._log_at = -inf
        # When the system last could not start a thread: how many were in use, and until
        # when it is not asked again.
        self._startable: float = inf
        self._pause = FIRST_PAUSE
        self._paused_until = -inf
        self._is_pause_logged = True
        self._pool: ThreadPool[_Call] = ThreadPool(self._resume, self._fail)

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return sum(map(len, self._queues.values()))

    @trio.lowlevel.enable_ki_protection
    async def run(
        self, function: Callable[[], Any], account: Account, label: str
    ) -> Any:
        """Call a function in a thread and return its result.

        `label` names the function in the log, and the thread during the call. If this
        is cancelled, the thread is abandoned: the call continues until it returns, or
        until it calls `trio.from_thread.check_cancelled`. Raises TooManyCalls if no
        thread is free.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._needs_start_in_pause():
            raise _busy(NO_THREAD)
        call = _Call(function, account, label)
        if account not in self._queues and self._has_room(account):
            self._hold(call)
        elif self._is_stuck(account):
            raise self._stuck(account)
        else:
            self._enqueue(call)

        def stop_waiting(raise_cancel: object) -> trio.lowlevel.Abort:
            self._stop_waiting(call)
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(stop_waiting)
        finally:
            self._log_what_happened(call)
        return call.result()

    def _stop_waiting(self, call: "_Call") -> None:
        """Forget a call that was cancelled, or abandon its thread."""
        call.task = None
        if not call.is_held:
            self._leave_queue(call)
        elif self._pool.withdraw(call):
            self._release([call])
        elif self._pool.abandon(call):
            self._abandon(call)

    # Acquiring and releasing threads

    def _enqueue(self, call: "_Call") -> None:
        """Let a call wait for a thread."""
        if not self._is_checking:
            self._is_checking = True
            trio.lowlevel.spawn_system_task(self._refuse_stalled_calls)
        call.waits_since = trio.current_time()
        self._queues.setdefault(call.account, OrderedDict())[call] = None

    def _hold(self, call: "_Call") -> None:
        """Give a call the right to a thread."""
        call.is_held = True
        self.busy += 1
        self._held[call.account] += 1
        self._pool.submit(call)

    def _resume(self, calls: "list[_Call]") -> None:
        """Resume the tasks whose calls have returned, and start calls that wait."""
        self._release(calls)
        for call in calls:
            if call.task is not None:
                trio.lowlevel.reschedule(call.task)
            else:
                # Its traceback refers to the call.
                call.error = None

    def _release(self, calls: "list[_Call]") -> None:
        """Count the threads of calls as free, and start calls that wait for them."""
        for call in calls:
            self._uncount(call)
            self._freed_at[call.account] = trio.current_time()
        self._any_freed_at = trio.current_time()
        self._serve_queues()
        self._forget_times(calls)

    def _forget_times(self, calls: "list[_Call]") -> None:
        """Remove the times of accounts that hold no thread any more."""
        for call in calls:
            if call.account not in self._held:
                self._freed_at.pop(call.account, None)

    def _uncount(self, call: "_Call") -> None:
        call.is_held = False
        self._count_down(self._held, call.account)
        if call.is_abandoned:
            self.abandoned -= 1
            self._count_down(self._abandoned_by, call.account)
        else:
            self.busy -= 1

    def _fail(self, calls: "list[_Call]") -> None:
        """Refuse calls for which the system could not start a thread."""
        for call in calls:
            self._uncount(call)
            self._refuse(call, _busy(NO_THREAD))
        self._forget_times(calls)
        self._pause_starts()

    def _pause_starts(self) -> None:
        """Note that the system is out of threads or memory."""
        now = trio.current_time()
        if now > self._paused_until + LONGEST_PAUSE:
            self._pause = FIRST_PAUSE
        else:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._paused_until = now + self._pause
        self._startable = self._pool.threads
        self._is_pause_logged = False

    def _needs_start_in_pause(self) -> bool:
        """Return whether a call needs a thread that the system could not start."""
        if self.busy + self.abandoned < self._startable:
            return False
        return trio.current_time() < self._paused_until

    def _has_room(self, account: Account) -> bool:
        is_any_free = self.busy + self.abandoned < self.most
        return is_any_free and self._held[account] < self._share_of(account)

    def _share_of(self, account: Account) -> int:
        """Return how many threads an account may use."""
        if account.is_only_client:
            return self.most
        return max(1, int(self.most * SHARE))

    def _serve_queues(self) -> None:
        """Start waiting calls while threads are free, one of each account in turn."""
        while not self._needs_start_in_pause():
            account = next(filter(self._has_room, self._queues), None)
            if account is None:
                return
            self._serve_first(account)

    def _serve_first(self, account: Account) -> None:
        """Start an account's first call, and move the account to the end."""
        queue = self._queues.pop(account)
        call, _ = queue.popitem(last=False)
        if queue:
            self._queues[account] = queue
        self._hold(call)

    def _leave_queue(self, call: "_Call") -> None:
        """Remove a call from its queue."""
        queue = self._queues[call.account]
        del queue[call]
        if not queue:
            del self._queues[call.account]

    async def _refuse_stalled_calls(self) -> None:
        """Refuse calls that waited for `PATIENCE` while no thread became free.

        This task ends when no calls wait.
        """
        try:
            while self._queues:
                await trio.sleep(CHECK_INTERVAL)
                self._serve_queues()
                for account in list(self._queues):
                    self._refuse_if_stalled(account)
        finally:
            self._is_checking = False

    def _refuse_if_stalled(self, account: Account) -> None:
        """Refuse the stalled calls of an account."""
        freed_at = self._any_freed_at
        if self._held[account] >= self._share_of(account):
            freed_at = self._freed_at.get(account, -inf)
        limit = trio.current_time() - PATIENCE
        if freed_at > limit:
            return
        why = f"no worker thread became free within {PATIENCE:g} s"
        for call in list(self._queues[account]):
            if call.waits_since > limit:
                return
            self._leave_queue(call)
            self._refuse(call, _busy(why))

    def _refuse(self, call: "_Call", refusal: TooManyCalls) -> None:
        call.error = refusal
        if call.task is not None:
            trio.lowlevel.reschedule(call.task)

    def _count_down(self, counter: "Counter[Account]", account: Account) -> None:
        counter[account] -= 1
        if not counter[account]:
            del counter[account]

    # Abandoned threads

    def _abandon(self, call: "_Call") -> None:
        """Count a thread as abandoned."""
        call.is_abandoned = True
        self.busy -= 1
        self.abandoned += 1
        self._abandoned_by[call.account] += 1
        self._refuse_waiting_calls()

    def _refuse_waiting_calls(self) -> None:
        """Refuse waiting calls whose account can only get abandoned threads."""
        for account in list(self._queues):
            if self._is_stuck(account):
                for call in list(self._queues[account]):
                    self._leave_queue(call)
                    self._refuse(call, self._stuck(account))

    def _is_stuck(self, account: Account) -> bool:
        """Return whether all threads that the account may use are abandoned."""
        if self.abandoned >= self.most:
            return True
        return self._abandoned_by[account] >= self._share_of(account)

    def _stuck(self, account: Account) -> TooManyCalls:
        """Return the error for a call whose account is stuck."""
        if self.abandoned >= self.most:
            return _busy(f"all {self.most} worker threads are stuck in abandoned calls")
        count = self._abandoned_by[account]
        return _busy(f"{count} worker threads are stuck in calls that you abandoned")

    # The log

    def _log_what_happened(self, call: "_Call") -> None:
        """Log that a call was abandoned, or that its thread could not be started.

        This runs in the task of the call, so an error in a handler ends only that.
        """
        if call.is_abandoned:
            self._log_abandoned(call)
        elif not self._is_pause_logged:
            self._is_pause_logged = True
            self._log_pause()

    def _log_abandoned(self, call: "_Call") -> None:
        now = trio.current_time()
        if now < self._log_at:
            return
        self._log_at = now + LOG_INTERVAL
        log.warning(
            "%s was cancelled, but its thread still runs: %d of %d worker threads "
            "are abandoned",
            call.name,
            self.abandoned,
            self.most,
            extra={"event": "abandoned", "threads": self.abandoned},
        )

    def _log_pause(self) -> None:
        log.warning(
            "the system cannot start another worker thread (in use: %d); raise the "
            "limit of processes (ulimit -u), or set fewer threads; the next start is "
            "tried in %g s",
            self._startable,
            self._pause,
            extra={"event": "no_thread", "threads": self._startable},
        )


class _Call(ThreadCall):
    """A call, the account that it is counted for, and the task that awaits it."""

    def __init__(
        self, function: Callable[[], Any], account: Account, label: str
    ) -> None:
        super().__init__(function, label)
        self.account = account
        self.task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self.is_held = False
        self.is_abandoned = False
        self.waits_since = 0.0


def _busy(why: str) -> TooManyCalls:
    return TooManyCalls(f"Busy: {why}; try again in {BUSY:g} s", retry_after=BUSY)
