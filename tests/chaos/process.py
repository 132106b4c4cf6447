"""The server as a process, and ways to disturb it from outside."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

from mcp_trio.client.stdio import LineWire
from tests.support.command_line import ENVIRONMENT
from tests.support.paths import TESTS

from .privileges import Clock, as_server_user

SERVED = TESTS / "chaos" / "served.py"
SERVED_BRIEFLY = TESTS / "chaos" / "served_briefly.py"
# Seconds that the server has to start, and to stop.
PATIENCE = 30.0
# Lines of the log that are printed if it ends.
LAST_WORDS = 40
# Lines of the log that are more than a refused request.
LOUD = re.compile(r"\b(ERROR|CRITICAL)\b|^Traceback|Fatal Python error")


class ServerProcess:
    """One process, which serves stdio and HTTP.

    `log` has the lines that it has written to its standard error.
    """

    def __init__(self, process: trio.Process, clock: Clock) -> None:
        self.pid = process.pid
        self.clock = clock
        self.log: list[bytes] = []
        self.port = 0
        self._process = process
        self._has_port = trio.Event()
        self._log_has_ended = trio.Event()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def wire(self) -> LineWire:
        """Return the wire to its stdin and stdout. It can be made once."""
        assert self._process.stdio is not None
        stdio = self._process.stdio
        return LineWire(stdio.send_stream, stdio.receive_stream, self._process)

    def url(self, scheme: str = "http", path: str = "/mcp") -> str:
        """Return the URL of an endpoint."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    async def started(self) -> None:
        """Wait until the server listens. Raises trio.TooSlowError."""
        with trio.fail_after(PATIENCE):
            await self._has_port.wait()

    async def read_log(self) -> None:
        """Keep what the process writes to its standard error."""
        rest = b""
        assert self._process.stderr is not None
        async for piece in self._process.stderr:
            *lines, rest = (rest + bytes(piece)).split(b"\n")
            self.log += lines
            for line in lines:
                serving = re.match(rb"Serving .*:(\d+)/mcp$", line)
                if serving is not None:
                    self.port = int(serving[1])
                    self._has_port.set()
        self._log_has_ended.set()

    async def last_words(self) -> str:
        """Describe how the process has ended."""
        with trio.move_on_after(PATIENCE):
            await self._log_has_ended.wait()
        lines = [line.decode(errors="replace") for line in self.log[-LAST_WORDS:]]
        code = self._process.returncode
        return "\n".join([f"the server has ended with the exit code {code}:", *lines])

    def loud_lines(self, since: int, excused: str) -> list[str]:
        """Return the errors in the log, from a line on, that are not excused."""
        lines = [line.decode(errors="replace") for line in self.log[since:]]
        errors = [line for line in lines if LOUD.search(line)]
        return [line for line in errors if not re.search(excused, line)]

    # Disturbing it

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    @contextmanager
    def limited(self, resource: str, most: int) -> Iterator[None]:
        """Limit a resource of the process, by its name in `prlimit`."""
        shown = self._prlimit(f"--{resource}", "--output=SOFT", "--noheadings", "--raw")
        before = shown.strip()
        self._prlimit(f"--{resource}={most}:")
        try:
            yield
        finally:
            if self.is_running:
                self._prlimit(f"--{resource}={before}:")

    def _prlimit(self, *options: str) -> str:
        command = as_server_user(["prlimit", f"--pid={self.pid}", *options])
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    def address_space(self) -> int:
        """Return the bytes of address space that the process uses."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(r"^VmSize:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def time_used(self) -> float:
        """Return the seconds of processor time that the process has used."""
        # Python has no function for this formula of clock_getcpuclockid(3).
        return time.clock_gettime(~self.pid << 3 | 2)

    async def gauges(self) -> dict[str, float]:
        """Return the samples on the page of metrics."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            await stream.send_all(head + b"\r\n")
            page = b"".join([bytes(piece) async for piece in stream]).decode()
        samples = re.findall(r"^(\w+(?:\{[^}]*\})?) ([\d.e+]+)$", page, re.MULTILINE)
        return {name: float(value) for name, value in samples}


@asynccontextmanager
async def serving(
    folder: Path,
    *options: str,
    spec: Path = SERVED,
    is_faulty: bool = False,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[ServerProcess]:
    """Run a server, on standard input and output and on a free port.

    If it is faulty, its clock can be set. `variables` are added to its environment.
    """
    clock = Clock(folder)
    command = [sys.executable, "-m", "mcp_trio", "run", str(spec)]
    command += ["--stdio", "--http", "0", "--log-level", "warning", *options]
    pipes: dict[str, Any] = dict.fromkeys(
        ("stdin", "stdout", "stderr"), subprocess.PIPE
    )
    # If the process crashes, its stderr says where.
    environment = {**ENVIRONMENT, "PYTHONFAULTHANDLER": "1", **(variables or {})}
    if is_faulty:
        environment |= clock.environment
    process = await trio.lowlevel.open_process(
        as_server_user(command), env=environment, **pipes
    )
    server = ServerProcess(process, clock)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.read_log)
            await server.started()
            yield server
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
