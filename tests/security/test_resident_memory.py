"""Resident memory stays within the budget, and shrinks again."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import ENVIRONMENT
from tests.support.http_wire import HEADERS, MODERN, message, modern_headers, request
from tests.support.websocket import UPGRADE, masked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.load,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(),
        reason="needs /proc to read the memory of a process",
    ),
]

MIB = 2**20
R = "2025-11-25"
MOST = 350_000_000
LEFT = 40 * MIB
SETTLE = 5.0  # seconds after the clients have disconnected
# With this, a string takes four bytes for each of its characters.
EMOJI = "\N{GRINNING FACE}"
SERVER = """
import trio
from mcp_trio import Server

server = Server("attacked")


@server.tool
async def recite() -> str:
    return "x" * (7 * 2**20)


@server.tool
async def wait(text: str = "") -> None:
    await trio.sleep_forever()


@server.resource("notes://{name}")
async def note(name: str) -> str:
    return name
"""


def memory_of(pid: int, name: str) -> int:
    """Return resident bytes of a process, now (VmRSS) or at most (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    children = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = file.read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[1]) == pid:
                children.append(int(file.parent.name))
    return children


class Attacked:
    """A server in its own process."""

    def __init__(self, process: Any) -> None:
        self.process = process
        line = ""
        while "/mcp" not in line:
            line = process.stderr.readline()
            assert line, "the server did not start"
        self.port = int(line.rpartition(":")[2].partition("/")[0])

    def memory(self, name: str) -> int:
        """Return resident bytes, now (VmRSS) or at most (VmHWM)."""
        return memory_of(self.process.pid, name)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def post(self, body: dict[str, Any], **headers: str) -> bytes:
        """Send a request on a connection of its own, and return the response."""
        with self.connect() as connection:
            return self.ask(connection, body, {**HEADERS, **headers})

    def ask(
        self, connection: socket.socket, body: dict[str, Any], headers: dict[str, str]
    ) -> bytes:
        data = request("POST", "/mcp", headers, json.dumps(body).encode())
        connection.sendall(data)
        return connection.recv(65536)

    def open_session(self, capabilities: dict[str, Any]) -> str:
        params = {
            "protocolVersion": R,
            "capabilities": capabilities,
            "clientInfo": {"name": "attacker", "version": "1"},
        }
        response = self.post(message("initialize", params)).decode("latin-1")
        found = re.search(r"(?i)mcp-session-id: (\S+)", response)
        assert found is not None, response
        return found[1]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    file = tmp_path_factory.mktemp("attacked") / "attacked.py"
    file.write_text(SERVER, encoding="utf-8")
    command = [sys.executable, "-m", "mcp_trio", "run", str(file), "--http", "0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            attacked = Attacked(process)
            attacked.open_session({})
            yield attacked
        finally:
            process.kill()


def wait_until_level(attacked: Attacked) -> None:
    """Wait until the server's memory stops growing."""
    size = 0
    while attacked.memory("VmRSS") > size:
        size = attacked.memory("VmRSS")
        time.sleep(0.5)


def send_nested_capabilities(attacked: Attacked) -> None:
    nested = {"x": [{}] * (MIB - 1000)}
    for _ in range(6):
        attacked.open_session({"sampling": {"tools": nested}})


def subscribe_to_long_uris(attacked: Attacked) -> None:
    session = {"Mcp-Session-Id": attacked.open_session({})}
    uri = "notes://".ljust(4 * MIB - 1000, "x")
    for id in range(100):
        reply = attacked.post(
            message("resources/subscribe", {"uri": uri}, id), **session
        )
        assert b"length <= 8192" in reply


def listen_with_large_meta(attacked: Attacked) -> None:
    meta = {**MODERN, "more": "x" * (4 * MIB - 1000)}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    with attacked.connect() as connection:
        connection.sendall(UPGRADE)
        connection.recv(65536)
        for id in range(200):
            asked = message("subscriptions/listen", params, id)
            connection.sendall(masked(1, json.dumps(asked).encode()))
        answers = b""
        while answers.count(b"subscriptions/acknowledged") < 200:
            piece = connection.recv(65536)
            assert piece
            answers += piece


def ping_with_long_ids(attacked: Attacked) -> None:
    for _ in range(16):
        session = {"Mcp-Session-Id": attacked.open_session({})}
        for _ in range(9):
            attacked.post(message("ping", None, "x" * (4 * MIB - 1000)), **session)


def do_not_read(attacked: Attacked) -> None:
    asked = message("tools/call", {"name": "recite", "_meta": MODERN})
    data = request("POST", "/mcp", modern_headers(asked), json.dumps(asked).encode())
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(attacked.connect()).sendall(data)
        wait_until_level(attacked)


def begin_uploads_and_abort(attacked: Attacked) -> None:
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {4 * MIB}\r\n"
    fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    data = f"{head}{fields}\r\n".encode() + b"[" * (4 * MIB - 1000)
    for _ in range(400):
        with attacked.connect() as connection:
            connection.sendall(data)


def send_messages_in_parts_and_never_end_them(attacked: Attacked) -> None:
    part = "x" * 65_000 + EMOJI
    begin = masked(1, part.encode(), final=False)
    more = masked(0, part.encode(), final=False) * 59
    with ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(attacked.connect())
            connection.sendall(UPGRADE)
            connection.recv(65536)
            # The server closes connections to make room.
            with suppress(OSError):
                connection.sendall(begin + more)
        wait_until_level(attacked)


def post_calls_that_wait(attacked: Attacked) -> None:
    """Post over HTTP+SSE, because the connection is free for more before the reply."""
    padding = "x" * (4 * MIB - 1000)
    argument = {"text": padding[: -len(EMOJI.encode())] + EMOJI}
    opening = {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "attacker", "version": "1"},
    }
    bodies = [
        json.dumps(message("initialize", opening, 0)),
        json.dumps({**message("tools/call", {"name": "wait"}, 1), "more": padding}),
        json.dumps(
            message("tools/call", {"name": "wait", "arguments": argument}, 2),
            ensure_ascii=False,
        ),
    ]
    with ExitStack() as stack:
        for _ in range(50):
            stream = stack.enter_context(attacked.connect())
            stream.sendall(request("GET", "/sse", {"Accept": "text/event-stream"}))
            answer = b""
            while b"session=" not in answer or not answer.endswith(b"\n\n\r\n"):
                answer += stream.recv(65536)
            url = re.search(rb"/messages\?session=\S+", answer)
            assert url is not None
            connection = stack.enter_context(attacked.connect())
            for body in bodies:
                data = request("POST", url[0].decode(), HEADERS, body.encode())
                # The server refuses bodies, and closes connections, to make room.
                with suppress(OSError):
                    connection.sendall(data)
                    connection.recv(65536)
        wait_until_level(attacked)


@pytest.mark.parametrize(
    "attack",
    [
        send_nested_capabilities,
        subscribe_to_long_uris,
        listen_with_large_meta,
        ping_with_long_ids,
        do_not_read,
        begin_uploads_and_abort,
        send_messages_in_parts_and_never_end_them,
        post_calls_that_wait,
    ],
)
def test_resident_memory_is_bounded_and_comes_back(
    attack: Any, attacked: Attacked
) -> None:
    before = attacked.memory("VmRSS")
    attack(attacked)
    deadline = time.monotonic() + SETTLE
    while attacked.memory("VmRSS") > before + LEFT and time.monotonic() < deadline:
        time.sleep(0.1)
    left = attacked.memory("VmRSS") - before
    peak = attacked.memory("VmHWM")
    print(f"{attack.__name__}: peak {peak // MIB} MiB, left {left // MIB} MiB")
    assert peak <= MOST
    assert left <= LEFT


def test_resident_memory_is_bounded_while_bodies_wait_for_the_store(
    tmp_path: Path,
) -> None:
    """The store is in the parent process, which is stopped until they have left."""
    file = tmp_path / "attacked.py"
    file.write_text(SERVER, encoding="utf-8")
    command = [sys.executable, "-m", "mcp_trio", "run", str(file), "--http", "0"]
    with subprocess.Popen(
        [*command, "--workers", "2", "--worker-timeout", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        try:
            attacked = Attacked(process)
            attacked.open_session({})
            workers = children_of(process.pid)
            before = [memory_of(worker, "VmRSS") for worker in workers]
            os.kill(process.pid, signal.SIGSTOP)
            body = json.dumps(message("ping", {"x": "x" * (4 * MIB - 1000)})).encode()
            with ExitStack() as stack:
                for _ in range(220):
                    connection = stack.enter_context(attacked.connect())
                    # No process knows this session, so each asks the store.
                    headers = {**HEADERS, "Mcp-Session-Id": "x" * 24}
                    # The server refuses bodies to make room.
                    with suppress(OSError):
                        connection.sendall(request("POST", "/mcp", headers, body))
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(SETTLE)
            peaks = [memory_of(worker, "VmHWM") for worker in workers]
            after = [memory_of(worker, "VmRSS") for worker in workers]
        finally:
            os.kill(process.pid, signal.SIGCONT)
            process.terminate()
    print(f"bodies that wait: peaks {[peak // MIB for peak in peaks]} MiB")
    assert len(workers) >= 2
    assert max(peaks) <= MOST
    assert max(after) <= max(before) + LEFT
