"""Behind nginx with its default configuration, streams are not delayed."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployment import running_nginx, running_server
from tests.support.ports import free_port

pytestmark = pytest.mark.integration

PATIENCE = 10
CONFIG = """
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{behind}; }} }}
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": 1,
}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Yield the port of an nginx in front of the demo server."""
    port = free_port()
    with running_server() as behind:
        config = CONFIG.format(port=port, behind=behind)
        with running_nginx(tmp_path, config, port):
            yield port


@pytest.mark.slow
def test_progress_passes_when_it_is_made_and_the_stream_ends_cleanly(port: int) -> None:
    params = {
        "name": "count_slowly",
        "arguments": {"steps": 3, "seconds": 0.9},
        "_meta": META,
    }
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()
    head = [
        "POST /mcp HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: count_slowly",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall("\r\n".join([*head, "", ""]).encode() + body)
        received, came = b"", []
        while block := client.recv(65536):
            received += block
            came += [time.monotonic()] * block.count(b"notifications/progress")
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert len(came) == 3
    assert came[-1] - came[0] > 0.4  # they did not arrive together
    assert b'"resultType":"complete"' in received
    assert received.endswith(b"0\r\n\r\n")
