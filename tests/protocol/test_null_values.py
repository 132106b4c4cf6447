"""Null in place of something optional counts as absent.

Clients in Go write an absent map or pointer as null.
"""

from typing import Any

import pytest

from mcp_trio import Context, Server
from mcp_trio.client.errors import RemoteError
from tests.support.checked import ALL, OPENING, connect, opened, raw

LAST_WITH_SESSIONS = OPENING[-1]


def request(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def make_server() -> Server:
    server = Server("x")

    @server.tool
    async def greet(name: str = "world") -> str:
        return f"Hello, {name}!"

    @server.tool
    async def required(name: str) -> str:
        return name

    @server.tool(input_schema={"type": "object", "properties": {"n": {"default": 1}}})
    async def by_hand(n: int = 1) -> str:
        return str(n)

    @server.tool
    async def report_meta(ctx: Context) -> str:
        await ctx.progress(1)
        return str(ctx.meta)

    @server.prompt
    async def welcome(name: str = "world") -> str:
        return f"Welcome {name}!"

    @server.complete("welcome", "name")
    async def names(begun: str, others: dict[str, str]) -> list[str]:
        return [*others, "Ada"]

    @server.resource("note://one")
    async def note() -> str:
        return "one"

    return server


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("tool", ["greet", "by_hand"])
async def test_the_arguments_of_a_tool_may_be_null(revision: str, tool: str) -> None:
    async with connect(make_server(), revision) as client:
        with_null = await client.request(
            "tools/call", {"name": tool, "arguments": None}
        )
        assert with_null == await client.call_tool(tool)


async def test_null_arguments_of_a_tool_that_requires_some_are_missing() -> None:
    async with connect(make_server()) as client:
        result = await client.request(
            "tools/call", {"name": "required", "arguments": None}
        )
    assert result.is_error
    assert "Missing required argument: name" in result.text


async def test_other_arguments_than_an_object_or_null_are_refused() -> None:
    async with connect(make_server()) as client:
        for given in ([], "null", 0, False):
            params = {"name": "greet", "arguments": given}
            with pytest.raises(RemoteError) as caught:
                await client.request("tools/call", params)
            assert caught.value.code == -32602


@pytest.mark.parametrize("revision", OPENING)
async def test_the_arguments_of_a_prompt_may_be_null(revision: str) -> None:
    async with connect(make_server(), revision) as client:
        params = {"name": "welcome", "arguments": None}
        prompt = await client.request("prompts/get", params)
        assert prompt["messages"][0]["content"]["text"] == "Welcome world!"


@pytest.mark.parametrize("revision", OPENING)
async def test_params_may_be_null_where_none_are_required(revision: str) -> None:
    async with opened(make_server(), revision) as client:
        for method in ("ping", "tools/list", "prompts/list"):
            (reply,) = await client.exchange(request(method, None))
            assert "result" in reply


async def test_required_params_that_are_null_are_missing() -> None:
    async with opened(make_server(), LAST_WITH_SESSIONS) as client:
        (reply,) = await client.exchange(request("tools/call", None))
    assert reply["error"] == {
        "code": -32602,
        "message": "Invalid params: $.params.name: missing",
    }


@pytest.mark.parametrize("revision", OPENING)
async def test_meta_may_be_null_in_a_session(revision: str) -> None:
    async with connect(make_server(), revision) as client:
        params = {"name": "report_meta", "arguments": {}, "_meta": None}
        assert (await client.request("tools/call", params)) == (
            await client.call_tool("report_meta")
        )
        assert await client.request("resources/list", {"_meta": None})


async def test_null_where_meta_is_required_is_missing() -> None:
    async with raw(make_server()) as client:
        for params in (None, {"_meta": None}):
            (reply,) = await client.exchange(request("server/discover", params))
            assert reply["error"]["code"] == -32602
            assert "protocolVersion" in reply["error"]["message"]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("method", ["tools/list", "resources/list", "prompts/list"])
async def test_a_cursor_may_be_null(revision: str, method: str) -> None:
    async with connect(make_server(), revision) as client:
        assert await client.request(method, {"cursor": None}) == (
            await client.request(method)
        )


@pytest.mark.parametrize("context", [None, {"arguments": None}])
async def test_the_context_of_a_completion_may_be_null(context: Any) -> None:
    async with connect(make_server()) as client:
        params = {
            "ref": {"type": "ref/prompt", "name": "welcome"},
            "argument": {"name": "name", "value": "A"},
            "context": context,
        }
        result = await client.request("completion/complete", params)
        assert result["completion"]["values"] == ["Ada"]
