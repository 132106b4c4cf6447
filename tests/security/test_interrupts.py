"""SystemExit and KeyboardInterrupt from a tool end only its call."""

import subprocess
import sys

import pytest
import trio
import trio.lowlevel

from mcp_trio import Server
from tests.support.checked import connect

SERVED = """
import json, os, trio
from mcp_trio import Server

server = Server("x")

@server.tool
async def interrupt(wait: bool, group: bool) -> str:
    if wait:
        await trio.sleep(0)
    if group:
        raise BaseExceptionGroup("", [KeyboardInterrupt()])
    raise KeyboardInterrupt

@server.tool
def interrupt_in_thread() -> str:
    raise KeyboardInterrupt

@server.tool
async def leave() -> str:
    raise SystemExit(3)

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


def _call(id: int, name: str, **arguments: object) -> str:
    import json

    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    return json.dumps(message)


def test_a_keyboard_interrupt_of_a_tool_fails_its_call_where_serve_gets_ctrl_c() -> (
    None
):
    import json

    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "me", "version": "1"},
    }
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}
    messages = [
        json.dumps(initialize),
        _call(1, "interrupt", wait=False, group=False),
        _call(2, "interrupt", wait=True, group=False),
        _call(3, "interrupt", wait=False, group=True),
        _call(4, "interrupt_in_thread"),
        _call(5, "leave"),
        _call(6, "add", a=1, b=2),
    ]
    process = subprocess.run(
        [sys.executable, "-c", SERVED],
        input="".join(f"{message}\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=30,
    )
    replies = {
        reply["id"]: reply for reply in map(json.loads, process.stdout.split("\n")[:-1])
    }
    assert process.returncode == 0, process.stderr
    for id in range(1, 6):
        (content,) = replies[id]["result"]["content"]
        assert content["text"].startswith("Internal error")
    assert replies[6]["result"]["structuredContent"] == {"result": 3}


async def test_elsewhere_ctrl_c_passes() -> None:
    server = Server("x")

    @server.tool
    async def interrupt() -> str:
        raise KeyboardInterrupt

    with pytest.raises(BaseExceptionGroup) as caught:
        async with connect(server, "2025-11-25") as client:
            await client.call_tool("interrupt")
    assert caught.value.subgroup(KeyboardInterrupt) is not None


async def test_a_system_exit_of_a_tool_fails_its_call_everywhere() -> None:
    server = Server("x")

    @server.tool
    async def leave(wait: bool) -> str:
        if wait:
            await trio.lowlevel.checkpoint()
        raise SystemExit(3)

    async with connect(server, "2025-11-25") as client:
        for wait in (False, True):
            result = await client.call_tool("leave", {"wait": wait})
            assert result.text.startswith("Internal error")
        await client.ping()
