"""Starts servers, each in its own process, and connects to them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from mcp_trio.bench.target import BenchTarget, reach
from mcp_trio.bench.transports import (
    HttpLoadConnection,
    LoadConnection,
    WebSocketLoadConnection,
)
from mcp_trio.load_spec import UsageError

from .contenders.builds import Build
from .contenders.table import PROJECT, Contender

# Seconds until a server has to listen. With 10,000 tools, some take long.
STARTUP_TIMEOUT = 120.0
# Seconds until a server is killed that was asked to end.
SHUTDOWN_TIMEOUT = 3.0
# Some contenders log a lot under load.
QUIET = subprocess.DEVNULL
# Limits Go and Rust to one core, because the load needs the others.
ONE_CORE = {"GOMAXPROCS": "1", "TOKIO_WORKER_THREADS": "1"}


@dataclass(frozen=True)
class Setup:
    """How a contender is started and reached."""

    transport: str  # a key of Contender.transports
    revision: str
    connections: int = 1
    session: bool = True
    tools: int = 0  # in addition to those of every contender


class Servers:
    """The running contenders. A context manager, which ends them.

    A server that listens on a port is started when it is first needed, and runs until
    the end. A server on stdio is started for each connection.
    """

    def __init__(self, builds: dict[str, Build]) -> None:
        self._builds = builds
        # Contender, transport, tools -> port, process id.
        self._listening: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._processes = ExitStack()

    def __enter__(self) -> Servers:
        self._processes.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._processes.__exit__(None, None, None)

    def stdio_command(
        self, contender: Contender, tools: int = 0
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts a contender on stdio, and its environment."""
        command = self._builds[contender.name].command(contender, "stdio")
        return pin_to_core(contender, command), environment(contender, tools)

    @contextmanager
    def connect(
        self,
        contender: Contender,
        setup: Setup,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[BenchTarget]:
        """Connect to a contender. Raises UsageError.

        `variables` are added to the environment of a server on stdio.
        """
        if setup.transport == "stdio":
            command, env = self.stdio_command(contender, setup.tools)
            env |= variables or {}
            with reach(command, setup.revision, env=env, stderr=QUIET) as server:
                yield server
            return
        port, pid = self._listen(contender, setup)
        scheme = "ws" if setup.transport == "ws" else "http"
        url = f"{scheme}://127.0.0.1:{port}/mcp"
        if setup.session and contender.transports[setup.transport]:
            with reach(url, setup.revision, setup.connections) as server:
                server.pid = pid
                yield server
            return
        with ExitStack() as closing:
            connections = []
            for _ in range(setup.connections):
                connection = _connect_without_session(url, setup)
                closing.callback(connection.close)
                connections.append(connection)
            yield BenchTarget(connections, setup.revision, pid=pid)

    def _listen(self, contender: Contender, setup: Setup) -> tuple[int, int]:
        """Start a server if it does not run. Returns its port and process id."""
        key = (contender.name, setup.transport, setup.tools)
        if key not in self._listening:
            port = free_port()
            build = self._builds[contender.name]
            command = build.command(contender, setup.transport, port)
            pid = self._processes.enter_context(
                running_server(
                    pin_to_core(contender, command),
                    port,
                    environment(contender, setup.tools),
                )
            )
            self._listening[key] = (port, pid)
        return self._listening[key]


def _connect_without_session(url: str, setup: Setup) -> LoadConnection:
    """Open a connection, and do not send initialize."""
    if setup.transport == "ws":
        return WebSocketLoadConnection(url)
    connection = HttpLoadConnection(url)
    connection.name_session(setup.revision)
    return connection


@contextmanager
def running_server(
    command: Sequence[str], port: int, variables: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run a program that listens on a port. Yields its process id.

    Raises UsageError.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=QUIET, stderr=QUIET, env=variables
    )
    try:
        _wait_until_listening(process, port)
        yield process.pid
    finally:
        _end(process)


def _wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Try to connect until it works. Raises UsageError.

    The contenders have no other way in common to report that they are ready.
    """
    deadline = time.monotonic() + STARTUP_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UsageError(f"`{process.args!r}` has ended instead of listening")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise UsageError(f"`{process.args!r}` does not listen after {STARTUP_TIMEOUT:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, by force if it does not react."""
    process.terminate()
    try:
        process.wait(SHUTDOWN_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def environment(contender: Contender, tools: int = 0) -> dict[str, str]:
    """Return the environment variables of a contender that has additional tools.

    Python's own variables are removed. PYTHONDONTWRITEBYTECODE, for example, would slow
    down the start of those programs whose modules pip has not compiled.
    """
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    variables["BENCH_TOOLS"] = str(tools)
    if contender.folder == "mcp_trio":
        variables["PYTHONPATH"] = str(PROJECT)
    if contender.uses_all_cores:
        variables |= ONE_CORE
    return variables


def pin_to_core(contender: Contender, command: list[str]) -> list[str]:
    """Limit a command to one core if the contender would use all of them."""
    taskset = shutil.which("taskset")
    if not contender.uses_all_cores or taskset is None:
        return command
    if sys.platform != "linux":  # only Linux has taskset
        return command
    last_core = max(os.sched_getaffinity(0))
    return [taskset, "--cpu-list", str(last_core), *command]


def free_port() -> int:
    """Return a port of this machine that is not in use."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
