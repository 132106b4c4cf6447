"""JSON that a tool has encoded itself reaches the client on one line, or not at all."""

import json
from typing import Any

import msgspec
import pytest

from mcp_trio import Context, Server, Text, ToolResult
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports.http import sse
from tests.support.checked import call, connect, opened

R = "2025-11-25"
PRETTY = b'{\n  "a": [1,\r\n 2]\n}'
FORGED = b'1}}\n{"jsonrpc":"2.0","id":7,"result":{}}\n{"a":{"b":2'

IN_STRING = b'"a\nb"'


def _server(raw: bytes) -> Server:
    server = Server("x")

    @server.tool
    async def structured() -> Any:
        return ToolResult([Text("text")], structured=msgspec.Raw(raw))

    @server.tool
    async def nested() -> dict[str, Any]:
        return {"raw": msgspec.Raw(raw)}

    @server.tool
    async def meta() -> ToolResult:
        return ToolResult([Text("text")], meta={"raw": msgspec.Raw(raw)})

    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.log("error", msgspec.Raw(raw))
        return "logged"

    return server


@pytest.mark.parametrize(
    "raw", [PRETTY, FORGED, IN_STRING], ids=["pretty", "forged", "in a string"]
)
@pytest.mark.parametrize("tool", ["structured", "nested", "meta", "log"])
async def test_raw_json_is_compacted_or_refused(tool: str, raw: bytes) -> None:
    sent: list[bytes] = []
    server = _server(raw)
    server.on_message = lambda _, sender, data: (
        sent.append(data) if sender == "server" else None
    )
    async with opened(server, R) as client:
        client.send(call(R, 7, tool))
        reply = await client.receive_json()
        if reply.get("method"):
            reply = await client.receive_json()
    assert reply["id"] == 7
    assert all(b"\n" not in message and b"\r" not in message for message in sent)
    if raw != PRETTY:
        (content,) = reply["result"]["content"]
        assert content["text"].startswith("Internal error")


async def test_compacted_raw_json_keeps_its_value() -> None:
    async with connect(_server(PRETTY), R) as client:
        result = await client.call_tool("structured")
        assert result.structured == {"a": [1, 2]}


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_an_encoded_message_is_one_line_in_an_event(end: bytes) -> None:
    encoded = jsonrpc.encode({"raw": msgspec.Raw(b"[1," + end + b'"\\n"]')})
    assert json.loads(encoded) == {"raw": [1, "\n"]}
    assert sse.encode(encoded).splitlines()[1:] == [b"data: " + encoded, b""]
