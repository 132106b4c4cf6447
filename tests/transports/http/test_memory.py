"""The memory of sessions and refusals, and that it is freed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.support.http_wire import HEADERS, MODERN, message, modern_headers, request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.load,
    pytest.mark.skipif(
        not Path("/proc/self/statm").exists(),
        reason="needs /proc to read the memory of a process",
    ),
]

COUNT = 10_000
ABREAST = 50
SERVER = """
from mcp_trio.demo import server
from mcp_trio.transports.http.sessions import Sessions

@server.tool
async def let_sessions_be_idle_for(seconds: float) -> None:
    Sessions.idle_timeout = seconds
"""
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "one of many", "version": "1"},
}


class Serving:
    """A process that serves over HTTP, and one connection to it."""

    def __init__(self, process: trio.Process, stream: trio.SocketStream) -> None:
        self._process = process
        self._stream = stream

    @property
    def memory(self) -> int:
        """Resident bytes."""
        pages = int(
            Path(f"/proc/{self._process.pid}/statm")
            .read_text(encoding="utf-8")
            .split()[1]
        )
        return pages * 4096

    async def ask(self, asked: bytes, status: bytes, times: int = COUNT) -> None:
        """Send a request this many times, and check the status of each response."""
        for _ in range(times // ABREAST):
            await self._stream.send_all(asked * ABREAST)
            came = b""
            while (
                answered := len(re.findall(rb"HTTP/1.1 \d+ ", came))
            ) < ABREAST or not came.endswith(b"}"):
                came += await self._stream.receive_some()
            assert came.count(b"HTTP/1.1 " + status) == answered == ABREAST

    async def sessions(self) -> int:
        """How many are open."""
        await self._stream.send_all(request("GET", "/metrics"))
        text = b""
        while (
            found := re.search(rb"^mcp_sessions (\d+)\n", text, re.MULTILINE)
        ) is None:
            text += await self._stream.receive_some()
        with trio.move_on_after(0.1):  # the rest of it
            while True:
                await self._stream.receive_some()
        return int(found[1])

    async def expire_sessions(self) -> None:
        """Have all sessions expire, and wait until they have."""
        await self._let_sessions_be_idle_for(0)
        while await self.sessions():
            await trio.sleep(0.5)
        await self._let_sessions_be_idle_for(3600)

    async def _let_sessions_be_idle_for(self, seconds: float) -> None:
        params = {
            "name": "let_sessions_be_idle_for",
            "arguments": {"seconds": seconds},
            "_meta": MODERN,
        }
        body = message("tools/call", params)
        data = json.dumps(body).encode()
        await self._stream.send_all(request("POST", "/mcp", modern_headers(body), data))
        reply = b""
        while b"isError" not in reply or not reply.endswith(b"}"):
            reply += await self._stream.receive_some()
        assert b'"isError":false' in reply


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    file = tmp_path / "forgetful.py"
    file.write_text(SERVER, encoding="utf-8")
    command = [sys.executable, "-m", "mcp_trio", "run", str(file), "--http", "0"]
    process = await trio.lowlevel.open_process(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        said = bytes(await process.stderr.receive_some())
        port = re.search(rb"127.0.0.1:(\d+)", said)
        assert port, said
        async with (
            process.stderr,
            await trio.open_tcp_stream("127.0.0.1", int(port[1])) as stream,
        ):
            yield Serving(process, stream)
    finally:
        process.terminate()
        await process.wait()


# Python's allocator keeps a whole arena as long as any object is left in it. Where such
# objects are differs from run to run, so the best of some runs counts.
RUNS = 2


# Memory goes back to the system once a second.
RETURNED_WITHIN = 3.0


async def memory_of_sessions(folder: Path) -> tuple[float, float, float]:
    """Serve refused requests, then sessions until they have expired.

    Returns the memory after the refusals and at the end, as multiples of that before,
    and the bytes of a session.
    """
    opening = request(
        "POST", "/mcp", HEADERS, json.dumps(message("initialize", OPENING)).encode()
    )
    lost = request("POST", "/mcp", HEADERS, json.dumps(message("tools/list")).encode())
    async with serving(folder) as server:
        # Enough to make the server import everything that it needs with so much memory.
        await server.ask(opening, b"200", 600)
        await server.expire_sessions()
        before = server.memory
        await server.ask(lost, b"400")
        refused = server.memory / before
        await server.ask(opening, b"200")
        assert await server.sessions() == COUNT
        each = (server.memory - before) / COUNT
        await server.expire_sessions()
        await trio.sleep(RETURNED_WITHIN)
        return refused, server.memory / before, each


async def test_sessions_cost_little_and_nothing_once_they_are_gone(
    tmp_path: Path,
) -> None:
    found = []
    for _ in range(RUNS):
        refused, gone, each = await memory_of_sessions(tmp_path)
        assert refused < 1.1, "refusals are not free"
        assert each < 6 * 1024, "bytes for a session"
        found.append(gone)
        if gone < 1.1:
            break
    assert min(found) < 1.1, "sessions that have ended are not freed"
