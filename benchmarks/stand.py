"""Where contenders run while they are measured: each in a process of its own, reached as clients reach it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from mcp_trio.bench.target import BenchTarget, reach
from mcp_trio.bench.transports import HttpLoadConnection, WebSocketLoadConnection
from mcp_trio.load_spec import UsageError

from .contenders import MANY_CORES, Build, Contender, environment, free_port

# Seconds in which a server has to listen: with 10,000 tools some take long.
TO_LISTEN = 120.0
TO_END = 3.0
# What contenders have to say of a load, some of them at length.
QUIET = subprocess.DEVNULL
# What runs on all cores is given one, as the others have: the load needs the rest.
ONE_CORE = {"GOMAXPROCS": "1", "TOKIO_WORKER_THREADS": "1"}


@dataclass(frozen=True)
class Way:
    """How a contender is reached: `mode` stands first on its command line."""

    mode: str
    revision: str
    connections: int = 1
    session: bool = True
    tools: int = 0


class Stand:
    """The processes that run, started when they are first wanted and ended together. A context manager."""

    def __init__(self, builds: dict[str, Build]) -> None:
        self._builds = builds
        self._ports: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._processes = ExitStack()

    def __enter__(self) -> Stand:
        self._processes.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._processes.__exit__(None, None, None)

    def command(
        self, contender: Contender, tools: int = 0
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts a contender on stdio, and its environment."""
        command = self._builds[contender.name].command(contender, "stdio")
        return pinned(contender, command), surroundings(contender, tools)

    @contextmanager
    def reached(
        self, contender: Contender, way: Way, variables: Mapping[str, str] | None = None
    ) -> Iterator[BenchTarget]:
        """Reach a contender. Raises UsageError.

        On stdio it is started, with these environment variables, and ended. Over other
        transports it is started once, and goes on running.
        """
        if way.mode == "stdio":
            command, environment = self.command(contender, way.tools)
            environment |= variables or {}
            with reach(command, way.revision, env=environment, stderr=QUIET) as server:
                yield server
            return
        port, pid = self._listening(contender, way)
        url = f"{'ws' if way.mode == 'ws' else 'http'}://127.0.0.1:{port}/mcp"
        if way.session and contender.transports[way.mode]:
            with reach(url, way.revision, way.connections) as server:
                server.pid = pid
                yield server
            return
        with ExitStack() as closing:
            kind = WebSocketLoadConnection if way.mode == "ws" else HttpLoadConnection
            wires = [kind(url) for _ in range(way.connections)]
            for wire in wires:
                closing.callback(wire.close)
                if isinstance(wire, HttpLoadConnection):
                    wire.name_session(way.revision)
            yield BenchTarget(wires, way.revision, pid=pid)

    def _listening(self, contender: Contender, way: Way) -> tuple[int, int]:
        key = contender.name, way.mode, way.tools
        if key not in self._ports:
            port = free_port()
            command = pinned(
                contender,
                self._builds[contender.name].command(contender, way.mode, port),
            )
            environment = surroundings(contender, way.tools)
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=QUIET, env=environment
            )
            self._processes.callback(end, process)
            wait_until_it_listens(process, port)
            self._ports[key] = port, process.pid
        return self._ports[key]


def surroundings(contender: Contender, tools: int) -> dict[str, str]:
    """The environment of a contender, with one core for those that would take all."""
    return environment(contender, tools) | (
        ONE_CORE if MANY_CORES in contender.differs else {}
    )


def pinned(contender: Contender, command: list[str]) -> list[str]:
    """A command, on the last core alone where it would run on all."""
    taskset = shutil.which("taskset")
    if MANY_CORES not in contender.differs or taskset is None:
        return command
    if sys.platform != "linux":  # only Linux has taskset
        return command
    return [taskset, "--cpu-list", str(max(os.sched_getaffinity(0))), *command]


def wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    """No contender has another way to say so that all of them share. Raises UsageError."""
    patience = time.monotonic() + TO_LISTEN
    while time.monotonic() < patience:
        if process.poll() is not None:
            raise UsageError(f"`{process.args!r}` has ended instead of listening")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise UsageError(f"`{process.args!r}` does not listen after {TO_LISTEN:g} s")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, kindly at first."""
    process.terminate()
    try:
        process.wait(TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
