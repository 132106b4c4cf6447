"""A server of several processes, started with `run --workers`."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.processes import ServerProcess


class WorkerGroup(ServerProcess):
    """The parent of some workers, and its standard error."""

    def __init__(self, *arguments: str, port: int, stdin: int | None = None) -> None:
        super().__init__(*arguments, port=port, stdin=stdin)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        # Nothing may have to wait until somebody reads the log.
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """End the parent at once, and wait until its workers have noticed."""
        self._process.kill()
        self._process.wait()
        # The workers write to the same pipe.
        self._reader.join(60)
        assert not self._reader.is_alive()
        self.stderr.close()

    def _read_lines(self) -> None:
        for line in self.stderr:
            self._lines.put(line)

    def wait_for_line(self, words: str) -> str:
        """Wait for a line of the log that has these words."""
        while True:
            line = self._lines.get(timeout=60)
            if words in line:
                return line

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        found = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return sorted(pid for pid in found if _is_worker(pid, self.pid))

    @contextmanager
    def only(self, worker: int) -> Iterator[None]:
        """Let this worker accept all connections, as the others stand still.

        This must take less time than a lease.
        """
        others = [each for each in self.workers() if each != worker]
        for each in others:
            os.kill(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in others:
                os.kill(each, signal.SIGCONT)

    def accepts(self) -> bool:
        """Return whether a process listens on the port."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
        except OSError:
            return False
        return True

    def call(self, tool: str, **arguments: object) -> str:
        """Call a tool on a connection of its own, and return its text."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        text: str = result["content"][0]["text"]
        return text

    @contextmanager
    def calling(self, tool: str, **arguments: object) -> Iterator[Callable[[], str]]:
        """Call a tool in the background. Yields a function that waits for its text."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.call, tool, **arguments)
            yield lambda: answer.result(timeout=60)

    def metric(self, name: str) -> float:
        """Return the value of a metric with its labels; -1 if it is missing."""
        _, page = self.get("/metrics")
        for line in page.splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == name:
                return float(value)
        return -1


def _is_worker(process: int, parent: int) -> bool:
    """Return whether a process is a worker of this parent, and has not ended."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes()
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    # The name of the program, in parentheses, may contain spaces.
    state, found_parent, *_ = status.rpartition(")")[2].split()
    is_child = int(found_parent) == parent and state != "Z"
    return is_child and b"mcp_trio.cli.worker" in words


@contextmanager
def worker_group(
    spec: Path, *options: str, stdin: int | None = None
) -> Iterator[WorkerGroup]:
    """Run a server with workers until the block ends."""
    port = free_port()
    place = f"127.0.0.1:{port}"
    group = WorkerGroup(
        "run", str(spec), "--http", place, *options, port=port, stdin=stdin
    )
    try:
        yield group
    finally:
        group.kill()
