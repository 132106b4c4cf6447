"""A worker, as its parent sees it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

import trio

from .messages import (
    Begin,
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
# Seconds that a worker has to end, in addition to its graces: for work in the
# background, for its requests, and for its lifespan.
END_TIME = 5.0
GRACES = 3


class WorkerProcess:
    """One process. It is ready once it serves, unless it ends before."""

    def __init__(
        self,
        number: int,
        on_ready: Callable[[WorkerProcess], None],
        on_collect: Callable[[WorkerProcess, int], None],
    ) -> None:
        self.number = number
        self.ready: Ready | None = None
        self.ready_since = 0.0
        # Whether it is ready, or has ended.
        self.settled = trio.Event()
        self.ended = trio.Event()
        self.exit_code: int | None = None
        # Whether it was told to end.
        self.is_leaving = False
        # Its metrics when it last reported them.
        self.page = b""
        self._reported = trio.Event()
        self._on_ready = on_ready
        self._on_collect = on_collect
        self._process: trio.Process | None = None
        self._channel: WorkerChannel | None = None

    def __str__(self) -> str:
        process = "" if self._process is None else f" (process {self._process.pid})"
        return f"worker {self.number}{process}"

    @property
    def is_serving(self) -> bool:
        """Whether it serves, and was not told to end."""
        is_up = self.ready is not None and not self.ended.is_set()
        return is_up and not self.is_leaving

    @property
    def outcome(self) -> str:
        """Say how it has ended."""
        code = self.exit_code
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"was killed by {name}"

    async def run(self, begin: Begin, environment: Mapping[str, str]) -> None:
        """Start the process, and hear from it until it has ended."""
        if sys.platform == "win32":
            raise RuntimeError("there are no workers on Windows")
        ours, theirs = socket.socketpair()
        inherited = [begin.lifeline, theirs.fileno()]
        for descriptors in begin.listeners.values():
            inherited += descriptors
        with theirs:
            self._process = process = await trio.lowlevel.open_process(
                [sys.executable, "-m", MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                # Ctrl-C is for the parent, which tells the workers.
                process_group=0,
                env=environment,
            )
        try:
            if self.is_leaving:
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
        """Hear from the process until it closes its end."""
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
        elif isinstance(message, MetricsPage):
            self.page = message.page
            self._reported.set()
        elif isinstance(message, CollectMetrics):
            self._on_collect(self, message.number)

    async def send(self, message: Message) -> None:
        """Tell the process something."""
        if self._channel is not None:
            await self._channel.send(message)

    async def refresh_page(self) -> None:
        """Have the process report its metrics, if it can do it soon."""
        with trio.move_on_after(REPORTS_WITHIN):
            self._reported = trio.Event()
            await self.send(ReportMetrics())
            await self._reported.wait()

    async def end(self, *, is_for_all: bool) -> bool:
        """Let the process finish what it does, and wait until it has ended.

        Returns False if it had to be killed, because it took too long.
        """
        self.is_leaving = True
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

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it has not ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
