"""Behind nginx as it is by default: nothing that streams is held back."""

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PATIENCE = 10
CONFIG = """
daemon off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{behind}; }} }}
}}
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": 1,
}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of an nginx before the demo server."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    command = [sys.executable, "-m", "mcp_trio", "--http", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        behind = int(server.stderr.readline().rsplit(":", 1)[1].split("/")[0])
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        config = tmp_path / "nginx.conf"
        config.write_text(
            CONFIG.format(folder=tmp_path, port=port, behind=behind), encoding="utf-8"
        )
        with subprocess.Popen(
            ["nginx", "-c", str(config), "-e", str(tmp_path / "errors")]
        ) as nginx:
            yield port
            nginx.terminate()
        server.terminate()


def connected(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), PATIENCE)
        except ConnectionRefusedError:
            time.sleep(0.05)  # nginx does not say when it listens
    pytest.fail("nginx does not listen")


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
    with connected(port) as client:
        client.sendall("\r\n".join([*head, "", ""]).encode() + body)
        received, came = b"", []
        while block := client.recv(65536):
            received += block
            came += [time.monotonic()] * block.count(b"notifications/progress")
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert len(came) == 3
    assert came[-1] - came[0] > 0.4  # they did not come together
    assert b'"resultType":"complete"' in received
    assert received.endswith(b"0\r\n\r\n")
