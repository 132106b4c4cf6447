"""A real Redis server for tests: on a free port, with a password, and ended for sure."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# With characters that have to be encoded in a URL.
PASSWORD = "a/b:c@d"
ENCODED_PASSWORD = "a%2Fb%3Ac%40d"


class RedisServer:
    """A Redis that keeps its data in a folder, and can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def url(self, prefix: str = "mcp_trio") -> str:
        """Return the URL of the store in this Redis."""
        place = f"127.0.0.1:{self.port}/0"
        return f"redis://:{ENCODED_PASSWORD}@{place}?prefix={prefix}"

    def start(self) -> None:
        """Start Redis, and wait until it answers."""
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "requirepass": PASSWORD,
            "dir": self._folder,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        arguments = [f"--{name} {value}" for name, value in options.items() if value]
        command = ["redis-server", *" ".join(arguments).split(), "--save", ""]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                if self._answers():
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError("redis-server does not answer")

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), 1) as stream:
            stream.sendall(b"AUTH %b\r\nPING\r\n" % PASSWORD.encode())
            replies = stream.makefile("rb")
            return replies.readline() + replies.readline() == b"+OK\r\n+PONG\r\n"

    def kill(self) -> None:
        """End Redis with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    """Run a Redis for as long as this is entered."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
