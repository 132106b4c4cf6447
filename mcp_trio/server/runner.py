"""Runs requests in the task that read them, until they first wait.

A request that never waits needs no task, no wake-up and no queue. A request that waits
keeps the task that it runs in, and a new task continues reading. Every transport is a
source of work for this runner: stdio, WebSocket and memory with one conversation each,
HTTP with many connections.

The runner also isolates requests from each other. Each request runs in a copy of the
context, so its context variables do not leak into others. If a request returns and
leaves a cancel scope open in the reader's task, that task ends and is replaced.

trio has no public API to detect that a scope was left open. Reading the private
attribute `Task._cancel_status` takes 12 ns. If trio does not have the attribute, each
request runs in a cancel scope of its own instead, which takes 3 µs.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from operator import attrgetter
from types import coroutine
from typing import Any, Protocol, TypeVar

import trio

log = logging.getLogger("mcp_trio")

T = TypeVar("T")
# Resumes a coroutine that is waiting.
Continuation = Awaitable[T]

# Seconds that a reader serves requests that do not wait, before other tasks may run.
TURN = 0.002

# Logged together with trio's RuntimeError.
LEAKED_SCOPE = "a request left a cancel scope open in the task that it ran in"


class Source(Protocol):
    """Supplies a runner with work."""

    async def wait(self) -> bool:
        """Wait until there is work. Returns False at the end of the work."""

    def take_turn(self, scope: trio.CancelScope) -> Continuation[None] | None:
        """Do the available work, until a request waits.

        Returns an awaitable that resumes this request. It must be awaited in the same
        task, and `scope` must be the task's innermost cancel scope.
        """


class ScopeLeaked(RuntimeError):
    """A coroutine returned `value` and left a cancel scope open in its task."""

    def __init__(self, value: Any) -> None:
        super().__init__("a cancel scope was left open")
        self.value = value


class Runner:
    """Does a source's work, in one task at a time."""

    def __init__(self, source: Source, nursery: trio.Nursery) -> None:
        self._source = source
        self._nursery = nursery

    async def run(self) -> None:
        """Serve requests until one waits. That request then keeps this task."""
        is_reader = True
        try:
            with trio.CancelScope() as scope:
                while await self._source.wait():
                    continuation = self._source.take_turn(scope)
                    if continuation is not None:
                        is_reader = False
                        self._nursery.start_soon(self.run)
                        await continuation
                        return
        except* RuntimeError:
            log.exception(LEAKED_SCOPE)
            if is_reader:
                self._nursery.start_soon(self.run)


def _find_no_scope(task: trio.lowlevel.Task) -> None:
    """Return None, because this version of trio does not show a task's scopes."""


# Returns an object that identifies the innermost cancel scope of a task, or None if
# this version of trio has no such object.
innermost_scope: Callable[[trio.lowlevel.Task], object | None] = _find_no_scope
if hasattr(trio.lowlevel.Task, "_cancel_status"):
    innermost_scope = attrgetter("_cancel_status")


def start(running: Coroutine[Any, Any, T]) -> tuple[T | None, Continuation[T] | None]:
    """Run a coroutine in this task until it returns or first waits.

    Returns its value and None or, if it waits, None and an awaitable that resumes it.
    In that case the copied context that it runs in becomes the context of this task.

    Raises ScopeLeaked if it has returned and left a cancel scope open. The task must
    then end, because everything that it does would run in that scope.
    """
    task = trio.lowlevel.current_task()
    status = innermost_scope(task)
    if status is None:
        running = _in_own_scope(running)
    shared = task.context
    context = copy_context()
    try:
        trap = context.run(running.send, None)
    except StopIteration as done:
        if innermost_scope(task) is not status:
            raise ScopeLeaked(done.value) from None
        return done.value, None
    if task.context is shared:
        # Otherwise an inner `start` has already set the context.
        task.context = context
    continuation = _resume(running, trap)
    return None, (continuation if status is not None else _contained(continuation))


@coroutine
def _resume(running: Coroutine[Any, Any, T], trap: Any) -> Generator[Any, Any, T]:
    """Resume a coroutine that is waiting. From now on, this task waits for it."""
    step: Callable[[Any], Any]
    try:
        while True:
            try:
                value = yield trap
                step = running.send
            except BaseException as problem:  # rethrown in the coroutine
                value = problem
                step = running.throw
            trap = step(value)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        # Breaks the reference cycle of an exception and the frames in its traceback.
        # They would keep the arguments of a request after its cancellation.
        value = None


async def _in_own_scope(running: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a cancel scope, to detect that it leaves another one open."""
    done: list[T] = []
    try:
        with trio.CancelScope():
            done.append(await running)
    except RuntimeError:
        if not done:
            raise
        raise ScopeLeaked(done[0]) from None
    return done[0]


async def _contained(continuation: Continuation[T]) -> T:
    """Await a coroutine that has the task to itself, where a leaked scope is harmless.

    Such a leak is only logged.
    """
    try:
        return await continuation
    except ScopeLeaked as leaked:
        log.exception(LEAKED_SCOPE)
        value: T = leaked.value
        return value
