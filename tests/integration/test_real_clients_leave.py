"""Clients of the official SDKs leave on stdio while a tool runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.install import Unavailable, node_modules, python_sdk

pytestmark = pytest.mark.integration

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
SERVER = """
import sys
from pathlib import Path

import trio

from mcp_trio import Server

server = Server("slow")
notes = Path(__file__).with_name("notes.txt")


def note(text):
    with notes.open("a") as file:
        print(text, file=file)


@server.lifespan
async def around():
    yield
    await trio.sleep(0.1)
    note("the lifespan has ended")


@server.tool
async def work(seconds: float = 60) -> str:
    note("the tool has begun")
    try:
        await trio.sleep(seconds)
    finally:
        note("the tool has ended")
    return "done"
"""
# Starts the server, and writes its exit code down.
WRAPPER = """
import signal
import subprocess
import sys
from pathlib import Path

process = subprocess.Popen([sys.executable, "-m", "mcp_trio", "run", sys.argv[1]])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda given, frame: process.send_signal(given))
code = process.wait()
Path(__file__).with_name("code.txt").write_text(str(code))
sys.exit(code)
"""
ENDED = ["the tool has begun", "the tool has ended", "the lifespan has ended"]
# The clients send SIGTERM after two seconds.
PATIENCE = 2.6


def command_of(client: str) -> list[str]:
    try:
        if client == "typescript-v1":
            return ["node", str(node_modules().parent / "leaving.mjs")]
        return [str(python_sdk(int(client[-1]))), str(CLIENTS / "leaving_python.py")]
    except Unavailable as reason:
        pytest.skip(f"cannot install the client {client}: {reason}")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
@pytest.mark.parametrize("client", ["python-v1", "python-v2", "typescript-v1"])
def test_the_tool_and_the_lifespan_end_before_the_client_kills_the_server(
    client: str, tmp_path: Path
) -> None:
    server = tmp_path / "slow.py"
    server.write_text(SERVER, encoding="utf-8")
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(WRAPPER, encoding="utf-8")
    command = [*command_of(client), "work", sys.executable, str(wrapper), str(server)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    notes = (tmp_path / "notes.txt").read_text(encoding="utf-8").splitlines()
    assert notes == ENDED
    assert (tmp_path / "code.txt").read_text(encoding="utf-8") == "0"
    assert float(done.stdout) < PATIENCE
