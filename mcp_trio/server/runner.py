"""Runs requests in the turn of the task that read them, until they first wait.

A request that never waits costs no task, no wake-up and no queue. One that waits keeps
the task it runs in: the task becomes the request's own, and a fresh task takes over
reading. Every transport is a source of work for this one runner: stdio, WebSocket and
memory with one conversation each, HTTP with many connections.

The runner also contains requests. Each runs in a copy of the context, so its context
variables reach no other request. If a request ends and leaves a cancel scope open in
the reader's task, the task is given up, and a fresh one goes on.

trio has no public way to see that a scope was left open. The private attribute
`Task._cancel_status` shows it for 12 ns. In a trio without that attribute, each request
gets a cancel scope of its own, which takes 3 µs.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any, Protocol, TypeVar

import trio

log = logging.getLogger("mcp_trio")

T = TypeVar("T")
# What goes on with a coroutine that waits.
Rest = Awaitable[T]

# Seconds that a reader serves requests that do not wait, before other tasks run.
TURN = 0.002

# trio's RuntimeError, which is logged with this, says what the request did.
SPOILED = "a request has spoiled the task that it ran in"


class Source(Protocol):
    """Where a runner finds work."""

    async def wait(self) -> bool:
        """Wait until there is work. False means that the work has ended."""

    def take_turn(self, scope: trio.CancelScope) -> Rest[None] | None:
        """Do the work that is there, up to a request that waits.

        Returns what goes on with that request, in the same task and under this scope.
        """


class Spoiled(RuntimeError):
    """A coroutine returned `value`, and left a cancel scope open in its task."""

    def __init__(self, value: Any) -> None:
        super().__init__("a cancel scope was left open")
        self.value = value


class Runner:
    """Does a source's work, in one task at a time."""

    def __init__(self, source: Source, nursery: trio.Nursery) -> None:
        self._source = source
        self._nursery = nursery

    async def run(self) -> None:
        """Read and serve until a request waits; from then on this task is its own."""
        is_reader = True
        try:
            with trio.CancelScope() as scope:
                while await self._source.wait():
                    rest = self._source.take_turn(scope)
                    if rest is not None:
                        is_reader = False
                        self._nursery.start_soon(self.run)
                        await rest
                        return
        except* RuntimeError:
            log.exception(SPOILED)
            if is_reader:
                self._nursery.start_soon(self.run)


def start(running: Coroutine[Any, Any, T]) -> tuple[T | None, Rest[T] | None]:
    """Run a coroutine in this task's turn, until it returns or first waits.

    Returns its value and None; or, if it waits, None and what goes on with it. In that
    case the copy of the context in which it runs becomes this task's own.

    Raises Spoiled if it has returned and left a cancel scope open. Then this task must
    end, because whatever it does would run in that scope.
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
            raise Spoiled(done.value) from None
        return done.value, None
    if task.context is shared:
        # Otherwise a coroutine that was started within this one waits, in its own.
        task.context = context
    rest = _resume(running, trap)
    return None, (rest if status is not None else _contained(rest))


def innermost_scope(task: trio.lowlevel.Task) -> object | None:
    """Return an object that identifies the cancel scope that a task is in.

    Returns None if trio does not show it.
    """
    return getattr(task, "_cancel_status", None)


@coroutine
def _resume(running: Coroutine[Any, Any, T], trap: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that has waited once. Its waits are now the task's own."""
    step: Callable[[Any], Any]
    try:
        while True:
            try:
                value = yield trap
                step = running.send
            except BaseException as problem:  # passed on, whatever it is
                value = problem
                step = running.throw
            trap = step(value)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def _in_own_scope(running: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a cancel scope, to notice if it leaves another one open."""
    done: list[T] = []
    try:
        with trio.CancelScope():
            done.append(await running)
    except RuntimeError:
        if not done:
            raise
        raise Spoiled(done[0]) from None
    return done[0]


async def _contained(rest: Rest[T]) -> T:
    """Wait for a coroutine that has the task to itself, and so can spoil no other."""
    try:
        return await rest
    except Spoiled as spoiled:
        log.exception(SPOILED)
        value: T = spoiled.value
        return value
