"""A real Redis server for tests, on a free port, with a password."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port

# With characters that have to be encoded in a URL.
PASSWORD = "a/b:c@d"
ENCODED_PASSWORD = "a%2Fb%3Ac%40d"


REDIS = "redis-server"
# Programs with the same protocol. Those that are installed are tested.
PROGRAMS = [REDIS, "valkey-server"]


class RedisServer:
    """A Redis that keeps its data in a folder, and can be stopped and started again.

    With a certificate it uses TLS.
    """

    def __init__(
        self,
        folder: Path,
        program: str = REDIS,
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        self._folder = folder
        self._program = program
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def url(self, prefix: str = "mcp_trio") -> str:
        """Return the URL of the store in this Redis."""
        scheme, host = ("redis", "127.0.0.1")
        if self._tls is not None:
            scheme, host = ("rediss", "localhost")
        place = f"{host}:{self.port}/0"
        return f"{scheme}://:{ENCODED_PASSWORD}@{place}?prefix={prefix}"

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
        if self._tls is not None:
            certificate, key = self._tls
            options |= {
                "port": "0",
                "tls-port": self.port,
                "tls-cert-file": certificate,
                "tls-key-file": key,
                "tls-ca-cert-file": certificate,
                "tls-auth-clients": "no",
            }
        arguments = [f"--{name} {value}" for name, value in options.items() if value]
        command = [self._program, *" ".join(arguments).split(), "--save", ""]
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
        raise RuntimeError(f"{self._program} does not answer")

    def _answers(self) -> bool:
        with self._connect() as stream:
            stream.sendall(b"AUTH %b\r\nPING\r\n" % PASSWORD.encode())
            replies = stream.makefile("rb")
            return replies.readline() + replies.readline() == b"+OK\r\n+PONG\r\n"

    def _connect(self) -> socket.socket:
        stream = socket.create_connection(("127.0.0.1", self.port), 1)
        if self._tls is None:
            return stream
        context = ssl.create_default_context(cafile=str(self._tls[0]))
        return context.wrap_socket(stream, server_hostname="localhost")

    def command(self, *words: str) -> bytes:
        """Run a command, and return the first line of its reply."""
        parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        with self._connect() as stream:
            stream.sendall(f"AUTH {PASSWORD}\r\n*{len(words)}\r\n{parts}".encode())
            replies = stream.makefile("rb")
            replies.readline()
            return replies.readline()

    def stop(self) -> None:
        """Let Redis end by itself, as the system does when it stops."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """End Redis with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def installed_programs() -> list[str]:
    """Return the installed programs, or Redis, whose tests are then skipped."""
    return [name for name in PROGRAMS if shutil.which(name)] or [REDIS]


@contextmanager
def running_redis(
    folder: Path, program: str = REDIS, tls: tuple[Path, Path] | None = None
) -> Iterator[RedisServer]:
    """Run a Redis until the block ends."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    server = RedisServer(folder, program, tls)
    try:
        server.start()
        yield server
    finally:
        server.kill()
