"""Processes of one server, and plain HTTP requests to them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from tests.support.command_line import ENVIRONMENT
from tests.support.ports import free_port

VENDOR = "io.modelcontextprotocol/"
NEWEST = "2026-07-28"
META = {
    f"{VENDOR}protocolVersion": NEWEST,
    f"{VENDOR}clientCapabilities": {
        "elicitation": {},
        "extensions": {f"{VENDOR}tasks": {}},
    },
}


def http_get(port: int, path: str) -> tuple[int, str]:
    """Return the status and the body of a GET."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def newest_request(method: str, params: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Return the headers and the body of a request of the newest revision."""
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {**params, "_meta": META},
    }
    headers = {
        "Content-Type": "application/json",
        "MCP-Protocol-Version": NEWEST,
        "Mcp-Method": method,
    }
    name = params.get("name", params.get("taskId"))
    if name is not None:
        headers["Mcp-Name"] = name
    return headers, json.dumps(body)


class ServerProcess:
    """One process, started with the command line."""

    def __init__(
        self, *arguments: str, port: int = 0, stdin: int | None = None
    ) -> None:
        self.port = port
        command = [sys.executable, "-m", "mcp_trio", *arguments]
        self._process = subprocess.Popen(
            command, stdin=stdin, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        assert self._process.stderr is not None
        self.stderr = self._process.stderr
        self.pid = self._process.pid
        self.greeting = self.stderr.readline()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until the process ends, and return its exit code."""
        return self._process.wait(30)

    def kill(self) -> None:
        """End the process at once, as `kill -9` does."""
        self._process.kill()
        self._process.wait()
        self.stderr.close()

    # Requests

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body of a GET."""
        return http_get(self.port, path)

    def post(
        self, method: str, params: dict[str, Any]
    ) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Send a request of the newest revision.

        Returns the status, the headers and the message of the response.
        """
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers, body = newest_request(method, params)
        try:
            connection.request("POST", "/mcp", body, headers)
            response = connection.getresponse()
            message = json.loads(response.read())
            return response.status, dict(response.getheaders()), message
        finally:
            connection.close()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of a request."""
        _, _, message = self.post(method, params)
        return message["result"]

    def create_task(self, tool: str, **arguments: object) -> str:
        """Call a tool, and return the id of its task."""
        created = self.ask("tools/call", {"name": tool, "arguments": arguments})
        id: str = created["taskId"]
        return id

    def task(self, id: str) -> dict[str, Any]:
        """Return a task."""
        found: dict[str, Any] = self.ask("tasks/get", {"taskId": id})
        return found


@contextmanager
def serving(spec: object, *options: str) -> Iterator[ServerProcess]:
    """Run a server over HTTP."""
    port = free_port()
    place = f"127.0.0.1:{port}"
    process = ServerProcess("run", str(spec), "--http", place, *options, port=port)
    try:
        yield process
    finally:
        process.kill()


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
