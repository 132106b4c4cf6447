"""Servers in processes of their own, which get malformed input over their transports.

After each thousand inputs, they have to answer a valid request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any

import trio

from tests.support.checked import initialize, modern
from tests.support.http_wire import Site, make_server
from tests.support.paths import PROJECT, TESTS
from tests.support.websocket import UPGRADE

from .mutating import Mutator, messages
from .parsers import frames, http_streams
from .running import Failure, Progress, Say, check_growth, descriptors, memory

COMMAND = [
    sys.executable,
    "-m",
    "mcp_trio",
    "run",
    str(TESTS / "fuzz" / "served.py"),
]
# Inputs between two checks.
ROUND = 1_000
# Connections at once.
AT_ONCE = 16
# The seconds in which the server has to answer.
TIMEOUT = 20.0
SLACK = {"memory": 4 * 2**20, "descriptors": 4}


def environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MCP_TRIO_")
    }
    return {**kept, "PYTHONPATH": str(PROJECT)}


@contextmanager
def without_traceback() -> Iterator[Any]:
    """Yield a file for the server's stderr. Raises Failure if a traceback is logged."""
    with tempfile.TemporaryFile() as errors:
        yield errors
        errors.seek(0)
        log = errors.read()
    start = log.find(b"Traceback")
    if start >= 0:
        traceback = log[start : start + 3_000].decode(errors="replace")
        raise Failure(f"a traceback in the log: {traceback}")


class Resources:
    """What a process holds, measured after each round."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._sizes: dict[str, list[int]] = {"memory": [], "descriptors": []}

    def measure(self) -> None:
        self._sizes["memory"].append(memory(self._pid))
        self._sizes["descriptors"].append(descriptors(self._pid))

    def check(self) -> None:
        for name, sizes in self._sizes.items():
            check_growth(f"the server's {name}", sizes, SLACK[name])


# stdio


class Process:
    """A server on stdio. A thread reads its output, so that neither side blocks."""

    def __init__(self, errors: Any) -> None:
        self._process = Popen(
            COMMAND, stdin=PIPE, stdout=PIPE, stderr=errors, env=environment()
        )
        self.pid = self._process.pid
        self.pongs: set[str] = set()
        self.lines = 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines += 1
            if b'"ping-' in line:
                reply = json.loads(line)
                for one in reply if isinstance(reply, list) else [reply]:
                    self.pongs.add(str(one.get("id")))

    def send(self, messages: list[bytes]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n".join([*messages, b""]))
        self._process.stdin.flush()

    def answers(self, name: str) -> bool:
        """Return whether the server answers a request within some seconds."""
        self.send([json.dumps(modern(name, "server/discover")).encode()])
        deadline = time.monotonic() + 20
        while (
            name not in self.pongs
            and time.monotonic() < deadline
            and self._process.poll() is None
        ):
            time.sleep(0.001)
        return name in self.pongs

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(20)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def stdio(inputs: int, seed: int, say: Say, revision: str = "2025-03-26") -> int:
    """Send malformed messages to one process. Raises Failure."""
    mutator = Mutator(f"{seed} stdio", messages(), is_json=True)
    progress = Progress("stdio", inputs, say)
    with without_traceback() as errors:
        process = Process(errors)
        resources = Resources(process.pid)
        try:
            process.send([json.dumps(initialize(revision)).encode()])
            while progress.done < inputs:
                count = min(ROUND, inputs - progress.done)
                process.send([mutator.line() for _ in range(count)])
                if not process.answers(f"ping-{progress.done}"):
                    sent = progress.done + count
                    raise Failure(
                        f"stdio, seed {seed}: no answer after {sent:,} messages"
                    )
                progress.add(count)
                resources.measure()
            if process.lines < inputs // 4:
                raise Failure(f"stdio: only {process.lines:,} replies")
            if code := process.end():
                raise Failure(f"stdio: it ended with {code}")
        finally:
            process.kill()
    resources.check()
    return progress.done


# HTTP and WebSocket


def http(inputs: int, seed: int, say: Say) -> int:
    """Send malformed HTTP, each input on a new connection. Raises Failure."""
    mutator = http_streams()

    def stream() -> bytes:
        return b"".join(
            mutator.make()[:8_000] for _ in range(mutator.random.choice([1, 1, 2]))
        )

    return over_tcp("native HTTP", mutator, stream, inputs, seed, say)


def websocket(inputs: int, seed: int, say: Say) -> int:
    """Send malformed frames after valid handshakes. Raises Failure."""
    mutator = frames()

    def stream() -> bytes:
        return UPGRADE + b"".join(
            mutator.make()[:4_000] for _ in range(mutator.random.choice([1, 1, 3]))
        )

    return over_tcp("WebSocket", mutator, stream, inputs, seed, say)


def over_tcp(
    name: str,
    mutator: Mutator,
    stream: Callable[[], bytes],
    inputs: int,
    seed: int,
    say: Say,
) -> int:
    mutator.random.seed(f"{seed} {name}")
    progress = Progress(name, inputs, say)
    with without_traceback() as errors:
        process = Popen(
            [*COMMAND, "--http", "0"], stderr=subprocess.PIPE, env=environment()
        )
        assert process.stderr is not None
        drain = None
        try:
            line = b""
            while not line.endswith(b"/mcp\n"):
                line = process.stderr.readline()
                assert line, "the server did not start"
            drain = Thread(target=copy, args=(process.stderr, errors), daemon=True)
            drain.start()
            port = int(line.rpartition(b":")[2].partition(b"/")[0])
            resources = Resources(process.pid)
            trio.run(send_rounds, port, stream, inputs, progress, resources)
            resources.check()
            if process.poll() is not None:
                raise Failure(f"{name}: the server has ended: {process.returncode}")
        finally:
            process.terminate()
            process.wait(TIMEOUT)
            if drain is not None:
                drain.join()
            process.stderr.close()
    return progress.done


def copy(source: Any, target: Any) -> None:
    for line in source:
        target.write(line)


async def send_rounds(
    port: int,
    stream: Callable[[], bytes],
    inputs: int,
    progress: Progress,
    resources: Resources,
) -> None:
    site = Site(make_server(), port, trio.Event())
    while progress.done < inputs:
        count = min(ROUND, inputs - progress.done)
        streams = [stream() for _ in range(count)]
        async with trio.open_nursery() as nursery:
            for start in range(AT_ONCE):
                nursery.start_soon(send_each, port, streams[start::AT_ONCE])
        params = {"name": "calculate_sum", "arguments": {"a": 1, "b": 2}}
        reply = (await site.modern("tools/call", params)).json
        assert reply["result"]["structuredContent"] == 3, reply
        progress.add(count)
        resources.measure()


async def send_each(port: int, streams: list[bytes]) -> None:
    """Send one stream after the other, each until the server closes the connection."""
    for data in streams:
        client = await trio.open_tcp_stream("127.0.0.1", port)
        async with client:
            with (
                suppress(trio.BrokenResourceError),
                trio.move_on_after(TIMEOUT) as patience,
            ):
                await client.send_all(data)
                await client.send_eof()
                while await client.receive_some():
                    pass
            if patience.cancelled_caught:
                raise Failure(f"the server neither answers nor ends: {data[:2_000]!r}")


SERVERS: dict[str, tuple[int, Callable[[int, int, Say], int]]] = {
    "http-server": (20_000, http),
    "stdio-server": (20_000, stdio),
    "ws-server": (10_000, websocket),
}
