"""What the protocol asks of a client, beyond sending requests."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from mcp_trio import Context, Server
from mcp_trio.client import RemoteError, talk
from mcp_trio.client.buffered_wire import MessageQueue
from tests.support.checked import NEWEST, OPENING, connect

WITH_FORMS = OPENING[-1]

# Invalid headers

INVALID = {
    "empty": {"type": "string", "x-mcp-header": ""},
    "space": {"type": "string", "x-mcp-header": "My Region"},
    "colon": {"type": "string", "x-mcp-header": "Region:Primary"},
    "new_line": {"type": "string", "x-mcp-header": "A\r\nX-Injected: 1"},
    "not_ascii": {"type": "string", "x-mcp-header": "Région"},
    "not_text": {"type": "string", "x-mcp-header": 5},
    "object": {"type": "object", "x-mcp-header": "Data"},
    "array": {"type": "array", "x-mcp-header": "Items"},
    "number": {"type": "number", "x-mcp-header": "Score"},
    "null": {"type": "null", "x-mcp-header": "Nil"},
}
VALID = {
    "plain": {"type": "string"},
    "string": {"type": "string", "x-mcp-header": "Region"},
    "integer": {"type": "integer", "x-mcp-header": "Count"},
    "boolean": {"type": "boolean", "x-mcp-header": "Verbose"},
    "optional": {"type": ["string", "null"], "x-mcp-header": "Zone"},
}


def server_with(schemas: dict[str, dict[str, Any]]) -> Server:
    server = Server("x")
    for name, schema in schemas.items():

        async def tool(**arguments: Any) -> str:
            return str(arguments)

        server.add_tool(tool, name=name, input_schema=schema)
    return server


def taking(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


async def test_tools_with_invalid_headers_are_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = {name: taking(value=field) for name, field in (VALID | INVALID).items()}
    tools["nested"] = taking(outer=taking(inner=INVALID["colon"]))
    tools["twice"] = taking(
        one={"type": "string", "x-mcp-header": "Region"},
        other={"type": "string", "x-mcp-header": "region"},
    )
    async with connect(server_with(tools), NEWEST) as client:
        listed = [tool["name"] for tool in await client.list_tools()]
    assert listed == list(VALID)
    for name in (*INVALID, "nested", "twice"):
        assert f"ignoring tool {name!r}" in caplog.text


async def test_in_a_session_the_keyword_means_nothing() -> None:
    tools = {name: taking(value=field) for name, field in INVALID.items()}
    async with connect(server_with(tools), WITH_FORMS) as client:
        assert len(await client.list_tools()) == len(INVALID)


# Versions


class Peer:
    """A server that refuses the first requests because of their version."""

    def __init__(self, supported: Any, refusals: int) -> None:
        self.versions: list[str] = []
        self._supported = supported
        self._refusals = refusals
        self._outgoing = MessageQueue()

    async def receive(self) -> list[bytes | None]:
        return await self._outgoing.take()

    def send(self, message: bytes) -> None:
        request = json.loads(message)
        meta = request["params"]["_meta"]
        version = meta["io.modelcontextprotocol/protocolVersion"]
        self.versions.append(version)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        if len(self.versions) <= self._refusals:
            data = {"requested": version, "supported": self._supported}
            message_text = "Unsupported protocol version"
            reply["error"] = {"code": -32022, "message": message_text, "data": data}
        else:
            reply["result"] = {"resultType": "complete", "tools": []}
        self._outgoing.put(json.dumps(reply).encode())


async def test_a_refused_version_is_replaced_by_one_that_both_support() -> None:
    peer = Peer(["2099-01-01", NEWEST], refusals=1)
    async with talk(peer, NEWEST) as client:
        assert await client.list_tools() == []
    assert peer.versions == [NEWEST, NEWEST]


async def test_a_version_is_changed_once_for_each_request() -> None:
    peer = Peer([NEWEST], refusals=2)
    async with talk(peer, NEWEST) as client:
        with pytest.raises(RemoteError, match="Unsupported protocol version"):
            await client.list_tools()
        assert await client.list_tools() == []
    assert len(peer.versions) == 3


@pytest.mark.parametrize("supported", [[], ["2099-01-01"], None, 5])
async def test_without_a_common_version_the_error_is_raised(supported: Any) -> None:
    peer = Peer(supported, refusals=10)
    async with talk(peer, NEWEST) as client:
        with trio.fail_after(30), pytest.raises(RemoteError):
            await client.list_tools()
    assert len(peer.versions) == 1


# Forms


@dataclass
class Trip:
    city: str
    days: int = 3
    window: bool = True


@pytest.mark.parametrize("revision", [WITH_FORMS, NEWEST])
async def test_a_form_is_filled_in_with_its_defaults(revision: str) -> None:
    server = Server("x")
    sent: list[Any] = []

    @server.tool
    async def book(ctx: Context) -> str:
        return str((await ctx.elicit("Where to?", Trip)).content)

    def observe(conversation: object, sender: str, message: bytes) -> None:
        if sender == "client" and b'"Rome"' in message:
            sent.append(message)

    server.on_message = observe

    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"city": "Rome", "days": 5}}

    capabilities = {"elicitation": {}}
    async with connect(
        server, revision, capabilities=capabilities, answer=answer
    ) as client:
        result = await client.call_tool("book")
    assert result.text == str(Trip("Rome", 5, True))
    assert b'"window":true' in sent[0]
    assert b'"days":5' in sent[0]


async def test_a_declined_form_stays_empty() -> None:
    server = Server("x")

    @server.tool
    async def book(ctx: Context) -> str:
        elicited = await ctx.elicit("Where to?", Trip)
        return f"{elicited.action} {elicited.content}"

    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "decline"}

    capabilities = {"elicitation": {}}
    async with connect(
        server, WITH_FORMS, capabilities=capabilities, answer=answer
    ) as client:
        assert (await client.call_tool("book")).text == "decline None"
