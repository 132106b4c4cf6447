"""Load from wrk, a program that keeps connections busy with one request."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.support.processes import META, NEWEST

REPORT = """
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'FOUND {"requests": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d,' ..
    ' "status": %d, "seconds": %f}',
    summary.requests, errors.connect, errors.read, errors.write, errors.timeout,
    errors.status, summary.duration / 1e6
  ))
end
"""


class Load(Struct):
    """What wrk reports: the requests that were answered, and those that failed."""

    requests: int = 0
    connect: int = 0
    read: int = 0
    write: int = 0
    timeout: int = 0
    status: int = 0
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        """Return how many requests got no response."""
        return self.read + self.write + self.timeout


def script(headers: dict[str, str], body: dict[str, Any]) -> str:
    """Return a script that lets wrk send a POST and report the responses."""
    lines = ['wrk.method = "POST"', f"wrk.body = {json.dumps(json.dumps(body))}"]
    for name, value in headers.items():
        lines.append(f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}")
    return "\n".join(lines) + REPORT


def tool_call(name: str, **arguments: object) -> str:
    """Return the script for a tool call of the newest revision."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": NEWEST,
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    params = {"name": name, "arguments": arguments, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return script(headers, body)


# Seconds after which wrk ends by itself.
LONGEST = 300


@contextmanager
def under_load(
    folder: Path, port: int, script: str, *, connections: int
) -> Iterator[Load]:
    """Keep connections busy until the block ends. Then the load has its figures."""
    program = shutil.which("wrk")
    if program is None:
        pytest.skip("wrk is not installed")
    file = folder / f"load-{port}.lua"
    file.write_text(script)
    url = f"http://127.0.0.1:{port}/mcp"
    options = f"-t1 -c{connections} -d{LONGEST}s --timeout 10s -s".split()
    process = subprocess.Popen(
        [program, *options, str(file), url], stdout=subprocess.PIPE, text=True
    )
    load = Load()
    try:
        yield load
        # It reports what it has measured so far.
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LONGEST + 60)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    found = re.search("FOUND (.*)", output)
    assert found is not None, output
    for name, value in json.loads(found[1]).items():
        setattr(load, name, value)
