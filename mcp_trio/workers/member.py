"""The worker's side: it follows its parent's commands, and ends with its parent."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from itertools import count

import trio

from .messages import (
    Alive,
    AllMetrics,
    Begin,
    CheckAlive,
    CollectMetrics,
    MetricsPage,
    Ready,
    ReportMetrics,
    Stop,
    WorkerChannel,
)

# Seconds that the parent may take to collect the metrics of all workers.
COLLECTED_WITHIN = 3.0


class Member:
    """This process as one of the workers. It is the `ProcessGroup` of its server.

    `stop` is set when the worker should stop after running requests have finished, and
    `stop_at_once` when it should stop immediately.
    """

    def __init__(self, begin: Begin, end: socket.socket) -> None:
        self.stop = trio.Event()
        self.stop_at_once = trio.Event()
        # Whether all workers are stopping.
        self.is_stopping = False
        self.listeners = {
            transport: [_inherited(descriptor) for descriptor in descriptors]
            for transport, descriptors in begin.listeners.items()
        }
        self._end = end
        self._channel: WorkerChannel | None = None
        self._own_page: Callable[[], bytes] = bytes
        # The pending requests for the metrics of all workers.
        self._collecting: dict[int, trio.Event] = {}
        self._collected: dict[int, bytes] = {}
        self._numbers = count(1)

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Follow the parent's commands until it has ended, then stop."""
        self._channel = WorkerChannel(self._end)
        task_status.started()
        await self._receive(self._channel)
        # Without the parent, no worker would be restarted.
        self.is_stopping = True
        self.stop.set()
        for collecting in self._collecting.values():
            collecting.set()

    async def announce(self, ready: Ready) -> None:
        """Tell the parent that this worker is serving."""
        if self._channel is not None:
            await self._channel.send(ready)

    async def leave(self) -> None:
        """Send the final metrics to the parent, and close the connection."""
        if self._channel is not None:
            await self._channel.send(MetricsPage(self._own_page()))
            await self._channel.aclose()

    async def _receive(self, channel: WorkerChannel) -> None:
        """Follow the parent's commands until it has ended."""
        while True:
            message = await channel.receive()
            if message is None:
                return
            if isinstance(message, Stop):
                self.is_stopping |= message.is_for_all
                self.stop.set()
                if message.at_once:
                    self.stop_at_once.set()
            elif isinstance(message, ReportMetrics):
                await channel.send(MetricsPage(self._own_page()))
            elif isinstance(message, CheckAlive):
                await channel.send(Alive())
            elif isinstance(message, AllMetrics):
                collecting = self._collecting.get(message.number)
                if collecting is not None:
                    self._collected[message.number] = message.page
                    collecting.set()

    # Metrics

    def use_page(self, render: Callable[[], bytes]) -> None:
        """Set the function that renders the metrics of this worker."""
        self._own_page = render

    async def all_metrics(self) -> bytes:
        """Return the metrics of all workers, or of this one if the parent has ended."""
        if self._channel is None:
            return self._own_page()
        number = next(self._numbers)
        self._collecting[number] = trio.Event()
        try:
            with trio.move_on_after(COLLECTED_WITHIN):
                await self._channel.send(CollectMetrics(number))
                await self._collecting[number].wait()
        finally:
            del self._collecting[number]
        page = self._collected.pop(number, None)
        return self._own_page() if page is None else page


def _inherited(descriptor: int) -> socket.socket:
    """Return an inherited socket, which children of this process do not inherit."""
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def have_spare_core(workers: int) -> bool:
    """Return whether a core is left for others when all workers are busy."""
    if sys.platform == "linux":
        # A container may be limited to some of the machine's cores.
        return workers < len(os.sched_getaffinity(0))
    return workers < (os.cpu_count() or 1)


def end_with_parent(lifeline: int, seconds: float) -> None:
    """Kill this process so many seconds after its parent has ended.

    A thread does so, because the event loop may be blocked.
    """
    if sys.platform == "win32":
        raise RuntimeError("workers are not supported on Windows")
    os.set_inheritable(lifeline, False)

    def wait() -> None:
        os.read(lifeline, 1)
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
