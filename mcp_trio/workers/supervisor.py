"""The parent of the workers: it starts, replaces and stops them."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from msgspec import Struct

from ..stores.memory import MemoryStore
from ..stores.parent import serve_store
from ..stores.store_url import parent_url
from .messages import AllMetrics, Begin, Ready, Stop
from .pages import MetricsSum, add_up
from .watchdog import watch
from .worker_process import WorkerProcess

log = logging.getLogger("mcp_trio")

# How many workers in a row may end before they are ready, while none is serving.
MOST_FAILURES = 5
# Seconds before replacing a worker that could not start, or that ended within SETTLED
# seconds. They double up to the maximum.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
SETTLED = 1.0
# The exit code of a worker that cannot serve with the given options.
UNUSABLE = 2

SECRET = "MCP_TRIO_SECRET"
STDIN = 0


class WorkersFailed(Exception):
    """The workers cannot start. `is_explained` says whether they printed the reason."""

    def __init__(self, message: str, *, is_explained: bool = False) -> None:
        super().__init__(message)
        self.is_explained = is_explained


class WorkersPlan(Struct, frozen=True):
    """The configuration of the workers."""

    workers: int
    # The options of the command line, by name.
    options: dict[str, Any]
    # Transport -> the listening sockets.
    listeners: dict[str, list[socket.socket]]
    # Whether the parent serves the store.
    keeps_store: bool
    # Seconds after which a worker that does not respond is killed; 0 for never.
    timeout: float


class Supervisor:
    """Keeps the planned number of workers running.

    `announce` is called once, when all of them are ready.
    """

    def __init__(self, plan: WorkersPlan, announce: Callable[[Ready], None]) -> None:
        self._plan = plan
        self._announce = announce
        self._is_announced = False
        # Number -> the current worker. `_all` also contains workers that are starting
        # to replace one of them, or that were replaced and are stopping.
        self._current: dict[int, WorkerProcess] = {}
        self._all: set[WorkerProcess] = set()
        self._any_ready = trio.Event()
        self._stopping = trio.Event()
        self._to_replace = trio.Event()
        # How many workers in a row have ended before they were ready.
        self._failures = 0
        # Number -> the pause before replacing a worker that ends early again.
        self._pauses: dict[int, float] = {}
        self._problem: WorkersFailed | None = None
        # The options of the plan, and the parent's own store.
        self._options = plan.options
        self._environment: dict[str, str] = {}
        # Set while this runs: the pipe that is closed with this process, and the tasks
        # that do not belong to a worker.
        self._lifeline = -1
        self._services: trio.Nursery
        self._nursery: trio.Nursery
        # The sum of the counters of workers that have ended.
        self._ended = MetricsSum()
        self._exits = 0

    async def run(self) -> None:
        """Run the workers until a signal arrives. Raises WorkersFailed."""
        if sys.platform == "win32":
            raise RuntimeError("workers are not supported on Windows")
        received = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with (
            trio.open_signal_receiver(*received) as signals,
            _lifeline() as self._lifeline,
            _private_folder() as folder,
        ):
            async with trio.open_nursery() as services:
                self._services = services
                await self._start_services(folder, signals)
                await self._run_workers()
                services.cancel_scope.cancel()
        if self._problem is not None:
            raise self._problem

    async def _start_services(self, folder: str, signals: AsyncIterator[int]) -> None:
        """Start the parent's own tasks."""
        if self._plan.keeps_store:
            path = os.path.join(folder, "store")
            await self._services.start(serve_store, MemoryStore(), path)
            self._options = {**self._options, "store": parent_url(path)}
        self._environment = dict(os.environ)
        if not self._environment.get(SECRET):
            # The workers have to accept each other's signatures.
            self._environment[SECRET] = secrets.token_hex(32)
        self._services.start_soon(self._handle_signals, signals)
        self._services.start_soon(self._replace_when_asked)

    # Starting and replacing

    async def _run_workers(self) -> None:
        """Run the workers until all have ended.

        The others start when the first one is ready, so that an error is printed only
        once.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._keep, 1)
            await self._any_ready.wait()
            for number in range(2, self._plan.workers + 1):
                nursery.start_soon(self._keep, number)

    async def _keep(self, number: int) -> None:
        """Keep the worker with this number running until all are stopped."""
        self._current[number] = self._launch(number)
        while not self._stopping.is_set():
            worker = self._current[number]
            await worker.ended.wait()
            if self._current[number] is worker and not self._stopping.is_set():
                await self._pause_after(worker)
            # It may have been replaced, even during the pause.
            if self._current[number] is worker and not self._stopping.is_set():
                self._current[number] = self._launch(number)

    def _launch(self, number: int) -> WorkerProcess:
        """Start a worker."""
        worker = WorkerProcess(number, self._on_ready, self._on_collect)
        self._all.add(worker)
        self._nursery.start_soon(self._run, worker)
        if self._plan.timeout:
            self._services.start_soon(watch, worker, self._plan.timeout)
        return worker

    async def _run(self, worker: WorkerProcess) -> None:
        """Run a worker until it has ended."""
        if self._stopping.is_set():
            worker.ended.set()
            worker.settled.set()
            return
        begin = Begin(
            worker.number,
            self._options,
            sys.path,
            {
                transport: [listener.fileno() for listener in listeners]
                for transport, listeners in self._plan.listeners.items()
            },
            self._lifeline,
        )
        try:
            await worker.run(begin, self._environment)
        finally:
            self._all.discard(worker)
            self._ended.add(worker.page, without_gauges=True)

    def _on_ready(self, worker: WorkerProcess) -> None:
        """Note that a worker is serving."""
        self._failures = 0
        self._any_ready.set()
        serving = [each for each in self._current.values() if each.is_serving]
        if not self._is_announced and len(serving) == self._plan.workers:
            self._is_announced = True
            assert worker.ready is not None
            self._announce(worker.ready)

    async def _pause_after(self, worker: WorkerProcess) -> None:
        """Report that a worker has ended, and wait before it is replaced."""
        self._exits += 1
        if worker.ready is None:
            self._failures += 1
            if self._is_hopeless(worker):
                self._give_up(worker)
                return
            log.error("%s %s before it was ready", worker, worker.outcome)
        else:
            log.error("%s %s; restarting it", worker, worker.outcome)
        pause = 0.0
        if worker.ready is None or trio.current_time() - worker.ready_since < SETTLED:
            pause = self._pauses.get(worker.number, FIRST_PAUSE)
            self._pauses[worker.number] = min(2 * pause, LONGEST_PAUSE)
        else:
            self._pauses.pop(worker.number, None)
        with trio.move_on_after(pause):
            await self._stopping.wait()

    def _is_hopeless(self, worker: WorkerProcess) -> bool:
        """Return whether restarting workers is pointless."""
        if any(each.is_serving for each in self._all):
            return False
        is_unusable = worker.exit_code == UNUSABLE and not self._is_announced
        return is_unusable or self._failures >= MOST_FAILURES

    def _give_up(self, worker: WorkerProcess) -> None:
        message = (
            f"--workers: {self._failures} workers in a row ended before they were "
            f"ready; the last one {worker.outcome}. See their output above for the "
            "reason"
        )
        self._problem = WorkersFailed(
            message, is_explained=worker.exit_code == UNUSABLE
        )
        self._begin_to_stop()

    async def _replace_when_asked(self) -> None:
        """Replace the workers, one after the other, after each SIGHUP."""
        while True:
            await self._to_replace.wait()
            self._to_replace = trio.Event()
            await self._replace_all()

    async def _replace_all(self) -> None:
        """Replace the workers, until one cannot start or there is another SIGHUP."""
        log.warning("replacing the workers")
        for number in sorted(self._current):
            if self._stopping.is_set():
                return
            fresh = self._launch(number)
            await _wait_for_any(fresh.settled, self._to_replace)
            if not fresh.settled.is_set():
                log.warning("%s is still starting; starting another one", fresh)
                fresh.is_stopping = True
                fresh.kill()
                return
            if not fresh.is_serving:
                if not self._stopping.is_set():
                    log.error(
                        "%s %s before it was ready; keeping the other workers",
                        *(fresh, fresh.outcome),
                    )
                return
            previous = self._current[number]
            self._current[number] = fresh
            await self._end(previous, is_for_all=False)
        log.warning("all workers have been replaced")

    # Stopping

    async def _handle_signals(self, signals: AsyncIterator[int]) -> None:
        """Replace the workers on SIGHUP, and stop them on other signals.

        The first signal lets requests finish, the second does not, and the third kills
        the workers. A repeated SIGTERM counts as one, as in a single process.

        SIGHUP is also sent when the terminal is closed. In that case it stops the
        workers.
        """
        was_at_terminal = os.isatty(STDIN)
        received: list[int] = []
        async for number in signals:
            is_hangup = number not in (signal.SIGINT, signal.SIGTERM)
            if is_hangup and not (was_at_terminal and not os.isatty(STDIN)):
                self._to_replace.set()
                continue
            if number == signal.SIGTERM and number in received:
                continue
            received.append(number)
            if len(received) == 1:
                self._begin_to_stop()
            elif len(received) == 2:
                self._stop_at_once()
            else:
                self._kill_all()

    def _begin_to_stop(self) -> None:
        """Let all workers finish their requests, and do not restart them."""
        self._stopping.set()
        self._any_ready.set()
        for listeners in self._plan.listeners.values():
            for listener in listeners:
                listener.close()
        for worker in self._all:
            self._services.start_soon(self._stop, worker)

    def _stop_at_once(self) -> None:
        """Let all workers stop without finishing their requests."""
        for worker in self._all:
            stop = Stop(is_for_all=True, at_once=True)
            self._services.start_soon(worker.send, stop)

    def _kill_all(self) -> None:
        for worker in self._all:
            worker.kill()

    async def _stop(self, worker: WorkerProcess) -> None:
        await self._end(worker, is_for_all=True)

    async def _end(self, worker: WorkerProcess, *, is_for_all: bool) -> None:
        if not await worker.end(is_for_all=is_for_all):
            log.error("%s did not stop in time, and was killed", worker)

    # Metrics

    def _on_collect(self, worker: WorkerProcess, number: int) -> None:
        self._services.start_soon(self._send_metrics, worker, number)

    async def _send_metrics(self, worker: WorkerProcess, number: int) -> None:
        """Send a worker the metrics of all workers."""
        serving = [each for each in self._all if each.ready is not None]
        async with trio.open_nursery() as nursery:
            for each in serving:
                nursery.start_soon(each.refresh_page)
        page = add_up([each.page for each in serving], self._ended.render())
        await worker.send(AllMetrics(number, page + self._own_metrics()))

    def _own_metrics(self) -> bytes:
        """Return the parent's own metrics."""
        serving = sum(each.is_serving for each in self._all)
        lines = [
            "# HELP mcp_workers Worker processes that are serving.",
            "# TYPE mcp_workers gauge",
            f"mcp_workers {serving}",
            "# HELP mcp_worker_exits_total Workers that ended unexpectedly.",
            "# TYPE mcp_worker_exits_total counter",
            f"mcp_worker_exits_total {self._exits}",
        ]
        return "".join(f"{line}\n" for line in lines).encode()


async def _wait_for_any(*events: trio.Event) -> None:
    """Wait until one of the events is set."""

    async def wait(event: trio.Event) -> None:
        await event.wait()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for event in events:
            nursery.start_soon(wait, event)


@contextmanager
def _lifeline() -> Iterator[int]:
    """Open a pipe that workers inherit, and that is closed with this process."""
    for_workers, ours = os.pipe()
    try:
        yield for_workers
    finally:
        os.close(for_workers)
        os.close(ours)


@contextmanager
def _private_folder() -> Iterator[str]:
    """Create a temporary folder that only this user can open."""
    # A worker may still be connected to the socket in it.
    with tempfile.TemporaryDirectory(
        prefix="mcp_trio-", ignore_cleanup_errors=True
    ) as folder:
        yield folder
