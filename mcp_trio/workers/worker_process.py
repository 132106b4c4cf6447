"""A worker process, from the perspective of its parent."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

import trio

from .messages import (
    Alive,
    Begin,
    CheckAlive,
    CollectMetrics,
    Message,
    MetricsPage,
    Ready,
    ReportMetrics,
    Stop,
    WorkerChannel,
)

# The module that a worker runs.
MODULE = "mcp_trio.cli.worker"
# Seconds that a worker may take to report its metrics.
REPORTS_WITHIN = 1.0
# Seconds that a worker has to stop, in addition to three grace periods: for background
# work, for requests, and for the lifespan.
END_TIME = 5.0
GRACES = 3
# In how many parts the time is divided that a process has to respond to a check.
CHECK_PARTS = 10
# Seconds that a process may take to write a traceback after SIGABRT.
TRACEBACK_TIME = 2.0


class WorkerProcess:
    """One worker process. `ready` is set once it is serving."""

    def __init__(
        self,
        number: int,
        on_ready: Callable[[WorkerProcess], None],
        on_collect: Callable[[WorkerProcess, int], None],
    ) -> None:
        self.number = number
        self.ready: Ready | None = None
        self.ready_since = 0.0
        # Set when it is ready or has ended.
        self.settled = trio.Event()
        self.ended = trio.Event()
        self.exit_code: int | None = None
        # Whether it was told to stop.
        self.is_stopping = False
        # Its latest metrics.
        self.page = b""
        self._reported = trio.Event()
        self._responded = trio.Event()
        self._on_ready = on_ready
        self._on_collect = on_collect
        self._process: trio.Process | None = None
        self._channel: WorkerChannel | None = None

    def __str__(self) -> str:
        process = "" if self._process is None else f" (process {self._process.pid})"
        return f"worker {self.number}{process}"

    @property
    def is_serving(self) -> bool:
        """Whether it is serving, and was not told to stop."""
        is_up = self.ready is not None and not self.ended.is_set()
        return is_up and not self.is_stopping

    @property
    def outcome(self) -> str:
        """How the process has ended, for messages."""
        code = self.exit_code
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed by {name}"

    async def run(self, begin: Begin, environment: Mapping[str, str]) -> None:
        """Start the process, and handle its messages until it has ended."""
        if sys.platform == "win32":
            raise RuntimeError("workers are not supported on Windows")
        ours, theirs = socket.socketpair()
        inherited = [begin.lifeline, theirs.fileno()]
        for descriptors in begin.listeners.values():
            inherited += descriptors
        with theirs:
            self._process = process = await trio.lowlevel.open_process(
                # With faulthandler, it writes a traceback when it crashes or hangs.
                [
                    *(sys.executable, "-X", "faulthandler"),
                    *("-m", MODULE, str(theirs.fileno())),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                # So that only the parent gets Ctrl-C. It then stops the workers.
                process_group=0,
                env=environment,
            )
        try:
            if self.is_stopping:
                process.terminate()
            self._channel = WorkerChannel(ours)
            await self._channel.send(begin)
            await self._receive(self._channel)
            self.exit_code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            self.ended.set()
            self.settled.set()
            ours.close()

    async def _receive(self, channel: WorkerChannel) -> None:
        """Handle messages until the process closes its end."""
        while True:
            message = await channel.receive()
            if message is None:
                return
            self._handle(message)

    def _handle(self, message: Message) -> None:
        if isinstance(message, Ready):
            self.ready = message
            self.ready_since = trio.current_time()
            self.settled.set()
            self._on_ready(self)
        elif isinstance(message, Alive):
            self._responded.set()
        elif isinstance(message, MetricsPage):
            self.page = message.page
            self._reported.set()
        elif isinstance(message, CollectMetrics):
            self._on_collect(self, message.number)

    async def send(self, message: Message) -> None:
        """Send a message to the process."""
        if self._channel is not None:
            await self._channel.send(message)

    async def refresh_page(self) -> None:
        """Ask the process for its metrics, and wait for at most `REPORTS_WITHIN`."""
        with trio.move_on_after(REPORTS_WITHIN):
            # Several callers may wait for the same report.
            if self._reported.is_set():
                self._reported = trio.Event()
            await self.send(ReportMetrics())
            await self._reported.wait()

    async def responds(self, seconds: float) -> bool:
        """Return whether the process responds within so many seconds.

        If this process is suspended meanwhile, that counts as one part of the time at
        most, so the other one still has time to respond.
        """
        self._responded = trio.Event()
        await self.send(CheckAlive())
        for _ in range(CHECK_PARTS):
            with trio.move_on_after(seconds / CHECK_PARTS):
                await self._responded.wait()
                return True
        return False

    async def end(self, *, is_for_all: bool) -> bool:
        """Let the process finish its requests, and wait until it has ended.

        Returns False if it took too long and was killed.
        """
        self.is_stopping = True
        grace = 0.0 if self.ready is None else self.ready.grace
        with trio.move_on_after(GRACES * grace + END_TIME):
            if self.ready is None:
                self.send_signal(signal.SIGTERM)
            await self.send(Stop(is_for_all))
            await self.ended.wait()
            return True
        self.kill()
        await self.ended.wait()
        return False

    async def abort(self) -> None:
        """Kill the process. First let it write a traceback, if it can."""
        self.send_signal(signal.SIGABRT)
        with trio.move_on_after(TRACEBACK_TIME):
            await self.ended.wait()
        self.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it has not ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process, if it has not ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
