"""Calls of functions in trio's threads.

With `trio.to_thread.run_sync` for each call, each call wakes a thread, and each result
wakes the loop. This takes many times longer than a short function. So here a thread
takes the next call when its function has returned, and the loop collects all results
that are there when it wakes. For the functions, nothing is different: what
`trio.from_thread` does concerns only their own call, because a thread whose call was
abandoned takes no other one.
"""

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import sniffio
import trio

# Seconds that a thread waits for its next call before it ends.
LINGER = 0.01


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
        """Return what the function returned, or raise what it raised, once."""
        error = self.error
        if error is None:
            return self._value
        # The traceback refers to this frame and to the one of `run`. Without these
        # references back, the garbage collector is not needed.
        self.error = None
        try:
            raise error
        finally:
            del error


AnyCall = TypeVar("AnyCall", bound=ThreadCall)


class ThreadPool(Generic[AnyCall]):
    """Runs calls in threads, as many at a time as were submitted.

    In the loop, `on_returned` is called with the calls that have returned, and
    `on_failed` with those for which the system could not start a thread.

    While calls are ready, one thread at most is being started or woken for them. When
    it takes the first call and others are still there, it sees to it that another
    thread is woken or started, because its own function may take long. If the functions
    are short, threads that already run take most of the calls.
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
        self._is_starting = False
        self._is_loop_called = False

    # In the loop

    def submit(self, call: AnyCall) -> None:
        """Run a call in a thread soon."""
        with self._lock:
            self._ready.append(call)
        self._start_if_needed()

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

    def _start_if_needed(self) -> None:
        with self._lock:
            if not self._lacks_thread():
                return
            self._is_starting = True
        token = trio.lowlevel.current_trio_token()
        # If the loop is ending, nobody waits for the calls any more.
        with suppress(RuntimeError):
            trio.lowlevel.spawn_system_task(self._host, _Worker(token))

    async def _host(self, worker: "_Worker") -> None:
        """Run a thread until no call comes, or until its call is abandoned."""
        limiter = cast(trio.CapacityLimiter, _NoLimit())
        with worker.cancel_scope:
            try:
                await trio.to_thread.run_sync(
                    self._work,
                    worker,
                    thread_name="mcp_trio worker",
                    abandon_on_cancel=True,
                    limiter=limiter,
                )
            except (RuntimeError, MemoryError):
                # `_work` raises nothing, so the thread could not be started.
                self._fail()
            finally:
                with self._lock:
                    worker.is_closed = True

    def _fail(self) -> None:
        with self._lock:
            self._is_starting = False
            failed = list(self._ready)
            self._ready.clear()
        self._on_failed(failed)

    def _collect(self) -> None:
        """Hand over the calls that have returned."""
        with self._lock:
            self._is_loop_called = False
            returned = self._returned
            self._returned = []
        if returned:
            self._on_returned(returned)
        self._start_if_needed()

    # In a thread

    def _work(self, worker: "_Worker") -> None:
        """Run calls until none comes for a while."""
        thread = threading.current_thread()
        is_needed = True
        while is_needed:
            call = self._first(worker)
            while call is not None:
                thread.name = call.name
                call.run()
                call = self._next(worker, call)
            is_needed = self._is_woken(worker)

    def _first(self, worker: "_Worker") -> AnyCall | None:
        """Return the call for which a thread was started or woken."""
        with self._lock:
            self._is_starting = False
            call = self._take(worker)
            if not self._lacks_thread() or self._is_loop_called:
                return call
            self._is_loop_called = True
        self._call_loop(worker)
        return call

    def _next(self, worker: "_Worker", returned: AnyCall) -> AnyCall | None:
        """Return the next call for a thread whose call has returned."""
        with self._lock:
            del self._running[returned]
            self._returned.append(returned)
            call = self._take(worker)
            if self._is_loop_called:
                return call
            self._is_loop_called = True
        self._call_loop(worker)
        return call

    def _is_woken(self, worker: "_Worker") -> bool:
        """Wait until the thread is needed, but not for long."""
        with self._lock:
            if worker.is_closed:
                return False
            self._lingering.append(worker)
            # A call may have become ready since the thread looked for one.
            self._lacks_thread()
        if worker.wake.acquire(timeout=LINGER):
            return True
        with self._lock:
            if worker in self._lingering:
                self._lingering.remove(worker)
                return False
        # It was woken after all, at the last moment.
        worker.wake.acquire()
        return True

    # In the loop and in threads

    def _lacks_thread(self) -> bool:
        """Wake a thread for the calls that are ready, and return whether there is none.

        This is called with the lock held.
        """
        if self._is_starting or not self._ready:
            return False
        if not self._lingering:
            return True
        self._is_starting = True
        self._lingering.pop().wake.release()
        return False

    def _take(self, worker: "_Worker") -> AnyCall | None:
        if worker.is_closed or not self._ready:
            return None
        call = self._ready.popleft()
        self._running[call] = worker
        return call

    def _call_loop(self, worker: "_Worker") -> None:
        with suppress(trio.RunFinishedError):
            worker.token.run_sync_soon(self._collect)


class _Worker:
    """A thread, and the cancel scope of its host task."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self.token = token
        self.cancel_scope = trio.CancelScope()
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
