"""A server that gets no more memory from the system refuses requests, and survives."""

import json
import subprocess
import sys

import pytest

from mcp_trio.transports.http.messages import OUT_OF_MEMORY
from tests.support.command_line import ENVIRONMENT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is Linux's")

LIMITED = """
import json
import resource
import sys
from pathlib import Path

MIB = 2**20

def limit(room):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + room * MIB
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

def lift_limit():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, -1))
"""

RECITING = """
import trio
from mcp_trio import Server
from mcp_trio.testing import connect

server = Server("x")
text = "x" * (7 * MIB)

@server.tool
async def recite() -> str:
    return text

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with connect(server) as client:
        said = []
        for room in range(1, 40, 3):
            limit(room)
            result = await client.call_tool("recite")
            lift_limit()
            said.append(result.is_error or len(result.text) == len(text))
            said.append((await client.call_tool("add", {"a": 1, "b": 2})).text == "3")
        print(json.dumps(said))

trio.run(main)
"""


SENDING = """
import trio
from mcp_trio import Server
from mcp_trio.client import RemoteError
from mcp_trio.testing import connect

server = Server("x")
text = "x" * (3 * MIB)

@server.tool
async def measure(text: str) -> int:
    return len(text)

async def main():
    async with connect(server) as client:
        said = []
        for room in range(1, 40, 3):
            id = client.begin("tools/call", {"name": "measure", "arguments": {"text": text}})
            limit(room)
            try:
                result = await client.finish(id)
                said.append(result.is_error or result.text == str(len(text)))
            except RemoteError:
                said.append(True)
            lift_limit()
            result = await client.call_tool("measure", {"text": "abc"})
            said.append(result.text == "3")
        print(json.dumps(said))

trio.run(main)
"""


def test_arguments_that_there_is_no_memory_for_fail_their_call() -> None:
    assert all(json.loads(run(SENDING)))


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + program],
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRONMENT,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
    return done.stdout


def test_a_text_that_there_is_no_memory_for_fails_its_call() -> None:
    assert all(json.loads(run(RECITING)))


UPLOADING = """
from mcp_trio.transports.http.parser import RequestParser

parser = RequestParser(lambda head: None, "127.0.0.1", "127.0.0.1", "http")
head = b"POST /mcp HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 4000000\\r\\n\\r\\n"
parser.feed(head)
block = bytes(1_000_000)
limit(1)
kept = []
try:
    while True:
        kept.append(bytearray(100_000))
except MemoryError:
    pass
parser.feed(block)
kept.clear()
lift_limit()
(request,) = parser.requests
print(json.dumps([request.refused.status, len(request.body)]))
"""


def test_a_body_that_there_is_no_memory_for_is_refused() -> None:
    assert json.loads(run(UPLOADING)) == [OUT_OF_MEMORY.status, 0]
