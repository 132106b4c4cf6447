"""The command line as a process: start it, talk to it over pipes, end it."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import mcp_trio

ROOT = Path(mcp_trio.__file__).parents[1]

ENVIRONMENT = {
    **{
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MCP_TRIO_")
    },
    "PYTHONPATH": str(ROOT),
    "PYTHONDONTWRITEBYTECODE": "1",
}

MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

PATIENCE = 30

SERVER = '''
import os, subprocess, sys, time
import trio
from mcp_trio import Context, Image, Server, ToolError
print("printed at import")
os.write(1, b"written at import\\n")
server = Server("test")

@server.tool
async def add(a: int, b: float = 0.5) -> str:
    """Add two numbers."""
    return f"{a} and {b}"

@server.tool
async def wait_for_ever(mark: str = "") -> str:
    try:
        await trio.sleep_forever()
    finally:
        if mark:
            open(mark, "w").close()

@server.tool
async def hold_on() -> str:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

@server.tool
async def wait(seconds: float) -> str:
    await trio.sleep(seconds)
    return "waited"

@server.tool
def block() -> str:
    time.sleep(3600)

@server.tool
def noise() -> str:
    print("printed")
    os.write(1, b"written\\n")
    subprocess.run([sys.executable, "-c", "print('by a child')"])
    return "done"

@server.tool
async def large() -> str:
    return "x" * 4_000_000

@server.tool
async def fail() -> str:
    raise ToolError("it is broken")

@server.tool
async def picture() -> Image:
    return Image(b"12345", "image/png")

@server.tool
async def kinds(text: str, flag: bool = False, some: list[int] = [], maybe: int | None = 1) -> dict:
    return {"text": text, "flag": flag, "some": some, "maybe": maybe}

@server.resource("notes://a")
async def notes() -> str:
    """Some notes."""
    return "a"

@server.prompt
async def greet(name: str, mood: str = "") -> str:
    """Greet somebody."""
    return name
'''


def request(id, method, modern=True, **params):
    params |= {"_meta": MODERN_META} if modern else {}
    return (
        json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        + "\n"
    ).encode()


def call(id, tool, **arguments):
    return request(id, "tools/call", name=tool, arguments=arguments)


def command(*arguments):
    return [sys.executable, "-m", "mcp_trio", *arguments]


def run(folder, *arguments, given=b"", **environment):
    return subprocess.run(
        command(*arguments),
        input=given,
        cwd=folder,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


@contextmanager
def started(command, **options):
    """Run a process, and end it afterwards."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def serving(folder, *arguments, **options):
    """Run a server as a process, on pipes."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    defaults = {**pipes, "env": ENVIRONMENT}
    return started(command(*arguments), cwd=folder, **{**defaults, **options})


def tell(process, *messages):
    process.stdin.write(b"".join(messages))
    process.stdin.flush()


def hear(process):
    return json.loads(process.stdout.readline())


def begin(process, *messages):
    """Send requests that wait, and return when they are running."""
    tell(process, *messages, call("begun", "add", a=1))
    assert hear(process)["id"] == "begun"
