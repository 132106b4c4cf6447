"""Calls of functions in trio's threads.

With `trio.to_thread.run_sync` for each call, each call wakes a thread, and each result
wakes the loop. This takes many times longer than a short function. So here a thread
takes the next call when its function has returned, and the loop collects all results
that are there when it wakes. A thread whose call was abandoned takes no other one, so
`trio.from_thread.check_cancelled` concerns one call only, as trio documents.
"""

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import sniffio
import trio

# Seconds that a thread waits for its next call before it goes back to trio.
LINGER = 0.01
# How many threads are started at once if calls are ready when the loop looks.
MOST_STARTS = 8
# The name of a thread that has no call.
IDLE = "mcp_trio worker"


class ThreadCall:
    """A call of a function in a thread, and its result."""

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._value: Any = None
        self._function = function
        self._context = contextvars.copy_context()
        # Inside the function, no async library runs.
        self._context.run(sniffio.current_async_library_cvar.set, None)

    def run(self) -> None:
        """Call the function, in a thread."""
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:
            self.error = error

    def result(self) -> object:
        """Return the result of the function, or raise its exception, once."""
        error = self.error
        if error is None:
            return self._value
        # The traceback refers to this frame and to the one of `run`. They must not
        # refer to the error, so that it is freed without the garbage collector.
        self.error = None
        try:
            raise error
        finally:
            del error


AnyCall = TypeVar("AnyCall", bound=ThreadCall)


class ThreadPool(Generic[AnyCall]):
    """Runs calls in threads, as many at a time as were submitted.

    In the loop, `on_returned` is called with the calls that have returned. `on_failed`
    is called with the ready calls if the system could not start a thread.

    When a call is submitted, one thread is started or woken, unless one already is.
    When that thread takes the first call and others are ready, it sees to it that more
    threads are woken or started, because its own function may take long. If the
    functions are short, threads that already run take most of the calls.
    """

    def __init__(
        self,
        on_returned: Callable[[list[AnyCall]], object],
        on_failed: Callable[[list[AnyCall]], object],
    ) -> None:
        self._on_returned = on_returned
        self._on_failed = on_failed
        # The lock is held while one of these attributes, or one of a worker, is used.
        self._lock = threading.Lock()
        self._ready: deque[AnyCall] = deque()
        self._returned: list[AnyCall] = []
        self._running: dict[AnyCall, _Worker] = {}
        # The threads that wait for a call. The last one is woken first.
        self._lingering: list[_Worker] = []
        # How many threads are being started or woken.
        self._starting = 0
        self._is_collected_soon = False

    # In the loop

    @property
    def threads(self) -> int:
        """How many threads run a call or wait for one."""
        with self._lock:
            return len(self._running) + len(self._lingering)

    def submit(self, call: AnyCall) -> None:
        """Run a call in a thread soon."""
        with self._lock:
            self._ready.append(call)
        self._start(1)

    def withdraw(self, call: AnyCall) -> bool:
        """Return whether a call was not yet started. If so, it never will be."""
        with self._lock:
            try:
                self._ready.remove(call)
            except ValueError:
                return False
            return True

    def abandon(self, call: AnyCall) -> bool:
        """Return whether a call is running, and let its thread know that it should end.

        When it has returned, `on_returned` is called as usual.
        """
        with self._lock:
            worker = self._running.get(call)
            if worker is None:
                return False
            worker.is_closed = True
        worker.cancel_scope.cancel()
        return True

    def _start(self, most: int) -> None:
        """Start threads for calls that are ready, unless a thread can be woken."""
        with self._lock:
            if not self._needs_new_thread():
                return
            count = min(most, len(self._ready))
            self._starting += count
        token = trio.lowlevel.current_trio_token()
        for _ in range(count):
            try:
                trio.lowlevel.spawn_system_task(self._host, _Worker(token))
            except (RuntimeError, MemoryError):
                with self._lock:
                    self._starting -= 1
                # Not at once, because the task that submitted the call does not wait
                # for it yet. If the loop is ending, nobody waits.
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._fail)

    async def _host(self, worker: "_Worker") -> None:
        """Run a thread until no call comes, or until its call is abandoned."""
        limiter = cast(trio.CapacityLimiter, _NoLimit())
        with worker.cancel_scope:
            try:
                if not self._ready:
                    # Others have taken the calls, or no thread could be started.
                    return
                await trio.to_thread.run_sync(
                    self._work,
                    worker,
                    thread_name=IDLE,
                    abandon_on_cancel=True,
                    limiter=limiter,
                )
            except (RuntimeError, MemoryError):
                # The thread could not be started, or it ran out of memory.
                self._end_start(worker)
                self._fail()
                self._collect()
            finally:
                self._end_start(worker)
                with self._lock:
                    worker.is_closed = True

    def _end_start(self, worker: "_Worker") -> None:
        """Note that a thread has begun, or that it never will."""
        with self._lock:
            if worker.is_starting:
                worker.is_starting = False
                self._starting -= 1

    def _fail(self) -> None:
        """Give up the ready calls, because no thread could be started."""
        with self._lock:
            failed = list(self._ready)
            self._ready.clear()
        if failed:
            self._on_failed(failed)

    def _collect(self) -> None:
        """Hand over the calls that have returned."""
        with self._lock:
            self._is_collected_soon = False
            returned = self._returned
            self._returned = []
        if returned:
            self._on_returned(returned)
        self._start(MOST_STARTS)

    # In a thread

    def _work(self, worker: "_Worker") -> None:
        """Run calls until none has become ready for a while."""
        thread = threading.current_thread()
        self._end_start(worker)
        is_needed = True
        while is_needed:
            call = self._first(worker)
            while call is not None:
                thread.name = call.name
                call.run()
                call = self._next(worker, call)
            thread.name = IDLE
            is_needed = self._wait_for_wake(worker)

    def _first(self, worker: "_Worker") -> AnyCall | None:
        """Return the call for which a thread was started or woken."""
        with self._lock:
            call = self._take(worker)
            if not self._needs_new_thread() or self._is_collected_soon:
                return call
            self._is_collected_soon = True
        self._collect_soon(worker)
        return call

    def _next(self, worker: "_Worker", returned: AnyCall) -> AnyCall | None:
        """Return the next call for a thread whose call has returned."""
        with self._lock:
            self._returned.append(returned)
            del self._running[returned]
            call = self._take(worker)
            if self._is_collected_soon:
                return call
            self._is_collected_soon = True
        self._collect_soon(worker)
        return call

    def _wait_for_wake(self, worker: "_Worker") -> bool:
        """Wait until the thread is needed. Return False if that takes too long."""
        with self._lock:
            if worker.is_closed:
                return False
            self._lingering.append(worker)
            # If a call became ready after the thread had looked for one, this wakes it.
            self._needs_new_thread()
        if not worker.wake.acquire(timeout=LINGER):
            with self._lock:
                if worker in self._lingering:
                    self._lingering.remove(worker)
                    return False
            # It was woken after all, at the last moment.
            worker.wake.acquire()
        self._end_start(worker)
        return True

    # In the loop and in threads

    def _needs_new_thread(self) -> bool:
        """Return whether a thread must be started for the calls that are ready.

        If one lingers, this wakes it instead. It is called with the lock held.
        """
        if self._starting or not self._ready:
            return False
        if not self._lingering:
            return True
        worker = self._lingering.pop()
        worker.is_starting = True
        self._starting += 1
        worker.wake.release()
        return False

    def _take(self, worker: "_Worker") -> AnyCall | None:
        if worker.is_closed or not self._ready:
            return None
        call = self._ready.popleft()
        self._running[call] = worker
        return call

    def _collect_soon(self, worker: "_Worker") -> None:
        """Let the loop collect what has returned, and start threads."""
        try:
            worker.token.run_sync_soon(self._collect)
        except trio.RunFinishedError:
            pass
        except MemoryError:
            self._is_collected_soon = False
            raise


class _Worker:
    """A thread, and the cancel scope of its host task."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self.token = token
        self.cancel_scope = trio.CancelScope()
        self.is_starting = True
        self.is_closed = False
        # Another thread releases this lock to wake this one.
        self.wake = threading.Lock()
        self.wake.acquire()


class _NoLimit:
    """A limiter that lets every thread start. `WorkerThreads` has limited the calls."""

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        pass

    def release_on_behalf_of(self, borrower: object) -> None:
        pass
