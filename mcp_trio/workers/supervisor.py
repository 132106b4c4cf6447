"""The parent of the workers: it starts, replaces and ends them, and serves nothing."""

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
from .worker_process import WorkerProcess

log = logging.getLogger("mcp_trio")

# Workers in a row that may end before they are ready, while no other one serves.
MOST_FAILURES = 5
# Seconds before a worker is replaced that could not start, or that ended within
# SETTLED seconds. They double from the first pause to the longest.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
SETTLED = 1.0
# The exit code of a worker that cannot serve with these options.
UNUSABLE = 2

SECRET = "MCP_TRIO_SECRET"
STDIN = 0


class WorkersFailed(Exception):
    """The workers cannot start. `is_explained` is True if they have said why."""

    def __init__(self, message: str, *, is_explained: bool = False) -> None:
        super().__init__(message)
        self.is_explained = is_explained


class WorkersPlan(Struct, frozen=True):
    """What the workers are to do."""

    workers: int
    # Those of the command line, by name.
    options: dict[str, Any]
    # Transport -> the sockets that listen.
    listeners: dict[str, list[socket.socket]]
    # Whether the parent keeps the store.
    keeps_store: bool


class Supervisor:
    """Keeps as many workers running as the plan says.

    `announce` is called once, when all of them are ready.
    """

    def __init__(self, plan: WorkersPlan, announce: Callable[[Ready], None]) -> None:
        self._plan = plan
        self._announce = announce
        self._is_announced = False
        # Number -> the worker that has it now. Another one may be about to take over,
        # and one that had it may still be ending: those are only in `_all`.
        self._current: dict[int, WorkerProcess] = {}
        self._all: set[WorkerProcess] = set()
        self._any_ready = trio.Event()
        self._stopping = trio.Event()
        self._to_replace = trio.Event()
        # Workers in a row that have ended before they were ready.
        self._failures = 0
        # Number -> the pause before the next replacement of a worker that ended early.
        self._pauses: dict[int, float] = {}
        self._problem: WorkersFailed | None = None
        # Those of the plan, with the parent's own store.
        self._options = plan.options
        self._environment: dict[str, str] = {}
        # Set while this runs: the pipe that ends with this process, and the tasks other
        # than those of the workers.
        self._lifeline = -1
        self._services: trio.Nursery
        self._nursery: trio.Nursery
        # The counters of workers that have ended.
        self._ended = MetricsSum()
        self._exits = 0

    async def run(self) -> None:
        """Run the workers until a signal arrives. Raises WorkersFailed."""
        if sys.platform == "win32":
            raise RuntimeError("there are no workers on Windows")
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
        """Start what the parent does itself."""
        if self._plan.keeps_store:
            path = os.path.join(folder, "store")
            await self._services.start(serve_store, MemoryStore(), path)
            self._options = {**self._options, "store": parent_url(path)}
        self._environment = dict(os.environ)
        if not self._environment.get(SECRET):
            # What one worker signs, the others have to accept.
            self._environment[SECRET] = secrets.token_hex(32)
        self._services.start_soon(self._handle_signals, signals)
        self._services.start_soon(self._replace_when_asked)

    # Starting and replacing

    async def _run_workers(self) -> None:
        """Run the workers until all have ended.

        The first one starts alone: if it cannot, its error is printed only once.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._keep, 1)
            await self._any_ready.wait()
            for number in range(2, self._plan.workers + 1):
                nursery.start_soon(self._keep, number)

    async def _keep(self, number: int) -> None:
        """Keep the worker with this number running until all stop."""
        self._current[number] = self._launch(number)
        while not self._stopping.is_set():
            worker = self._current[number]
            await worker.ended.wait()
            if self._current[number] is worker and not self._stopping.is_set():
                await self._pause_after(worker)
            # It may have been replaced, also during the pause.
            if self._current[number] is worker and not self._stopping.is_set():
                self._current[number] = self._launch(number)

    def _launch(self, number: int) -> WorkerProcess:
        """Start a worker."""
        worker = WorkerProcess(number, self._on_ready, self._on_collect)
        self._all.add(worker)
        self._nursery.start_soon(self._run, worker)
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
        """Note that a worker serves."""
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
            log.error("%s %s; starting another one", worker, worker.outcome)
        pause = 0.0
        if worker.ready is None or trio.current_time() - worker.ready_since < SETTLED:
            pause = self._pauses.get(worker.number, FIRST_PAUSE)
            self._pauses[worker.number] = min(2 * pause, LONGEST_PAUSE)
        else:
            self._pauses.pop(worker.number, None)
        with trio.move_on_after(pause):
            await self._stopping.wait()

    def _is_hopeless(self, worker: WorkerProcess) -> bool:
        """Return whether there is no point in starting workers again."""
        if any(each.is_serving for each in self._all):
            return False
        is_unusable = worker.exit_code == UNUSABLE and not self._is_announced
        return is_unusable or self._failures >= MOST_FAILURES

    def _give_up(self, worker: WorkerProcess) -> None:
        message = (
            f"--workers: {self._failures} workers in a row ended before they were "
            f"ready; the last one {worker.outcome}. What they wrote above says why"
        )
        self._problem = WorkersFailed(
            message, is_explained=worker.exit_code == UNUSABLE
        )
        self._begin_to_stop()

    async def _replace_when_asked(self) -> None:
        """Replace the workers, one after the other, whenever a signal asks for it."""
        while True:
            await self._to_replace.wait()
            self._to_replace = trio.Event()
            await self._replace_all()

    async def _replace_all(self) -> None:
        log.warning("replacing the workers")
        for number in sorted(self._current):
            if self._stopping.is_set():
                return
            fresh = self._launch(number)
            await fresh.settled.wait()
            if not fresh.is_serving:
                if not self._stopping.is_set():
                    log.error(
                        "%s %s before it was ready; the other workers go on",
                        *(fresh, fresh.outcome),
                    )
                return
            previous = self._current[number]
            self._current[number] = fresh
            await self._end(previous, is_for_all=False)
        log.warning("all workers are replaced")

    # The end

    async def _handle_signals(self, signals: AsyncIterator[int]) -> None:
        """Replace the workers at SIGHUP, and end them at the other signals.

        The second signal gives requests no more time, and the third kills. A SIGTERM
        that is repeated counts as one, as in a single process.

        SIGHUP also says that the terminal was closed. Then it ends the workers.
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
        """Let every worker finish what it does, and start no others."""
        self._stopping.set()
        self._any_ready.set()
        for listeners in self._plan.listeners.values():
            for listener in listeners:
                listener.close()
        for worker in self._all:
            self._services.start_soon(self._stop, worker)

    def _stop_at_once(self) -> None:
        """Let no worker finish what it does."""
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
            log.error("%s did not end in time, and was killed", worker)

    # Metrics

    def _on_collect(self, worker: WorkerProcess, number: int) -> None:
        self._services.start_soon(self._send_metrics, worker, number)

    async def _send_metrics(self, worker: WorkerProcess, number: int) -> None:
        """Send a worker the metrics of all."""
        serving = [each for each in self._all if each.ready is not None]
        async with trio.open_nursery() as nursery:
            for each in serving:
                nursery.start_soon(each.refresh_page)
        page = add_up([each.page for each in serving], self._ended.render())
        await worker.send(AllMetrics(number, page + self._own_metrics()))

    def _own_metrics(self) -> bytes:
        """Return what the parent knows of its workers."""
        serving = sum(each.is_serving for each in self._all)
        lines = [
            "# HELP mcp_workers Worker processes that serve.",
            "# TYPE mcp_workers gauge",
            f"mcp_workers {serving}",
            "# HELP mcp_worker_exits_total Workers that ended without being told to.",
            "# TYPE mcp_worker_exits_total counter",
            f"mcp_worker_exits_total {self._exits}",
        ]
        return "".join(f"{line}\n" for line in lines).encode()


@contextmanager
def _lifeline() -> Iterator[int]:
    """Return the end of a pipe that workers inherit. It ends with this process."""
    for_workers, ours = os.pipe()
    try:
        yield for_workers
    finally:
        os.close(for_workers)
        os.close(ours)


@contextmanager
def _private_folder() -> Iterator[str]:
    """Return a new folder that only this user can open."""
    # A worker may still be connected to the socket in it.
    with tempfile.TemporaryDirectory(
        prefix="mcp_trio-", ignore_cleanup_errors=True
    ) as folder:
        yield folder
