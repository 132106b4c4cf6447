"""Stopping a server while tasks run, as its clients see it over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import ENVIRONMENT
from tests.support.ports import free_port
from tests.support.processes import newest_request

SERVER = """
import trio
from mcp_trio import Server
from mcp_trio.extensions.tasks import Tasks

server = Server("tasks", extensions=[Tasks(slots=100, poll_interval=0.2)])

@server.tool(task="optional")
async def job(seconds: float) -> str:
    await trio.sleep(seconds)
    return "done"
"""
TASKS = 100


def ask(connection: HTTPConnection, method: str, params: dict[str, Any]) -> Any:
    """Send a request on a connection, and return its result."""
    headers, body = newest_request(method, params)
    connection.request("POST", "/mcp", body, headers)
    return json.loads(connection.getresponse().read())["result"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["native", "hypercorn"])
def test_every_task_ends_before_the_server_and_polls_are_answered_until_then(
    engine: str, tmp_path: Path
) -> None:
    spec = tmp_path / "stopping_server.py"
    spec.write_text(SERVER)
    port = free_port()
    places = ["--http", f"127.0.0.1:{port}", "--http-engine", engine, "--grace", "10"]
    serving = subprocess.Popen(
        [sys.executable, "-m", "mcp_trio", "run", str(spec), *places],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert serving.stderr is not None
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        serving.stderr.readline()  # now it serves
        unseen = {}
        for number in range(TASKS):
            # Every second one would take far longer than the grace.
            seconds = 2 if number % 2 else 600
            params = {"name": "job", "arguments": {"seconds": seconds}}
            created = ask(connection, "tools/call", params)
            unseen[created["taskId"]] = seconds
        serving.send_signal(signal.SIGTERM)
        told = time.monotonic()
        seen = {}
        while unseen:
            for id in list(unseen):
                # No request fails: each finds a task that is not over, or its end.
                task = ask(connection, "tasks/get", {"taskId": id})
                if task["status"] != "working":
                    seen[unseen.pop(id)] = task
            time.sleep(0.2)
        assert seen[2]["status"] == "completed"
        assert seen[600]["status"] == "failed"
        assert "server was stopped" in seen[600]["error"]["message"]
        assert serving.wait(30) == 0
        assert time.monotonic() - told < 20
    finally:
        connection.close()
        serving.kill()
        serving.communicate()
