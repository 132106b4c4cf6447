"""Input schemas as clients and frameworks read them."""

from typing import Any

import pytest

from mcp_trio import Context, Server
from mcp_trio.demo import server as demo
from tests.support.checked import ALL, connect

pytestmark = pytest.mark.integration

server = Server("x")


@server.tool
async def nothing() -> str:
    return "nothing"


@server.tool
async def only_injected(ctx: Context) -> str:
    return ctx.revision


@server.tool
async def anything(**options: int) -> str:
    return str(options)


@pytest.mark.parametrize("revision", ALL)
async def test_a_tool_without_parameters_lists_empty_properties(revision: str) -> None:
    async with connect(server, revision) as client:
        schemas = {
            tool["name"]: tool["inputSchema"] for tool in await client.list_tools()
        }
    no_arguments = {"type": "object", "properties": {}, "additionalProperties": False}
    assert schemas["nothing"] == no_arguments
    assert list(schemas["nothing"]) == list(no_arguments)
    assert schemas["only_injected"] == no_arguments
    assert schemas["anything"]["properties"] == {}


async def test_every_tool_of_the_demo_lists_its_properties() -> None:
    async with connect(demo) as client:
        tools: list[dict[str, Any]] = await client.list_tools()
    assert [
        tool["name"] for tool in tools if "properties" not in tool["inputSchema"]
    ] == []
