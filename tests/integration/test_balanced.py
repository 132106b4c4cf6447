"""Two processes behind nginx, as docs/deploying.md has it: what one has asked, the other one takes the answer to."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trio

from mcp_trio.client.errors import RemoteError
from mcp_trio.client.target import connect
from tests.support.paths import PROJECT

pytestmark = pytest.mark.integration

PATIENCE = 20
PLACES = "".join(
    f"{name}_temp_path {{0}}/{name}; "
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])


@contextmanager
def process(secret: str) -> Iterator[int]:
    """The port of a demo server with this secret."""
    environment = {**os.environ, "MCP_TRIO_SECRET": secret}
    command = [sys.executable, "-m", "mcp_trio", "--http", "0"]
    with subprocess.Popen(
        command, cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            yield int(server.stderr.readline().rsplit(":", 1)[1].split("/")[0])
        finally:
            server.terminate()


@contextmanager
def balanced(folder: Path, ports: list[int]) -> Iterator[str]:
    """The URL of an nginx before them, set up as the page says, but for TLS and for what keeps a client with one."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    page = (PROJECT / "docs" / "deploying.md").read_text(encoding="utf-8")
    text = re.findall(r"^```nginx\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[-1]
    port = free_port()
    text = re.sub(r"(?m)^ *(hash|ssl_certificate|server_name).*\n", "", text).replace(
        "443 ssl", f"127.0.0.1:{port}"
    )
    for written, ours in zip(
        re.findall(r"127\.0\.0\.1:(80\d\d);", text), ports, strict=True
    ):
        text = text.replace(f":{written};", f":{ours};")
    config = folder / "nginx.conf"
    head = f"daemon off; worker_processes 1; pid {folder}/pid; events {{}} http {{ access_log off; "
    config.write_text(f"{head}{PLACES.format(folder)}\n{text}}}\n", encoding="utf-8")
    with subprocess.Popen(
        ["nginx", "-c", str(config), "-e", str(folder / "errors")]
    ) as nginx:
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            nginx.terminate()


async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"city": "Nairobi", "days": 5}}


async def trip(url: str) -> str:
    """What comes of a tool that asks, as soon as there is somebody behind the URL."""
    with trio.fail_after(PATIENCE):
        while True:
            try:
                async with connect(
                    url, capabilities={"elicitation": {"form": {}}}, answer=answer
                ) as client:
                    return (await client.call_tool("plan_trip")).text
            except RemoteError as error:
                if "connect" not in error.message:
                    raise
            except OSError:
                pass  # nginx does not say when it listens
            await trio.sleep(0.05)


def calls(port: int) -> str:
    """What a process says of the calls that it has answered."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as told:
        return str(
            re.findall(
                r'method="tools/call",outcome="(\w+)"\} (\d+)', told.read().decode()
            )
        )


@pytest.mark.slow
async def test_a_question_of_one_process_is_answered_to_another(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ports = [
            stack.enter_context(process("the same secret for all processes"))
            for _ in range(2)
        ]
        url = stack.enter_context(balanced(tmp_path, ports))
        assert await trip(url) == "5 days in Nairobi: Sunny. Pack light clothes."
        assert [calls(port) for port in ports] == ["[('ok', '1')]"] * 2


@pytest.mark.slow
async def test_processes_with_secrets_of_their_own_do_not_know_each_others_questions(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        ports = [
            stack.enter_context(process(secret)) for secret in ("1" * 32, "2" * 32)
        ]
        url = stack.enter_context(balanced(tmp_path, ports))
        with pytest.raises(RemoteError, match="not one that this server has given"):
            await trip(url)
