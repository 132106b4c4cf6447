"""Middleware runs around tool calls, reads and prompts, and may change them."""

import re

import pytest
import trio

from mcp_trio import (
    Context,
    MiddlewareCall,
    Proceed,
    PromptResult,
    Server,
    TextContents,
    ToolError,
    ToolResult,
)
from mcp_trio.client.errors import RemoteError
from mcp_trio.testing import connect


def make_server() -> Server:
    server = Server("middleware")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def who(ctx: Context) -> str:
        """Return the value that the middleware passed on."""
        return str(ctx.state.get("tenant"))

    @server.resource("notes://{id}")
    async def note(id: str) -> str:
        """Read a note."""
        return f"note {id}"

    @server.prompt
    async def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    return server


async def test_middleware_sees_the_call_and_its_result() -> None:
    server = make_server()
    seen: list[object] = []

    @server.middleware
    async def audit(call: MiddlewareCall, proceed: Proceed) -> object:
        result = await proceed(call)
        seen.append((call.method, call.name, call.arguments, result))
        return result

    async with connect(server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == 3
        await client.request("resources/read", {"uri": "notes://7"})
        await client.request(
            "prompts/get", {"name": "greet", "arguments": {"name": "x"}}
        )
    (tool, read, prompt) = seen
    assert isinstance(tool, tuple)
    assert tool[:3] == ("tools/call", "add", {"a": 1, "b": 2})
    assert isinstance(tool[3], ToolResult)
    assert tool[3].structured == 3
    assert read == (
        "resources/read",
        "notes://7",
        {},
        [TextContents("notes://7", "note 7", mime_type="text/plain")],
    )
    assert isinstance(prompt, tuple)
    assert prompt[:3] == ("prompts/get", "greet", {"name": "x"})
    assert isinstance(prompt[3], PromptResult)


async def test_the_first_middleware_is_the_outermost() -> None:
    server = make_server()
    order: list[str] = []

    def named(name: str) -> None:
        @server.middleware
        async def note(call: MiddlewareCall, proceed: Proceed) -> object:
            order.append(f"{name} before")
            result = await proceed(call)
            order.append(f"{name} after")
            return result

    named("outer")
    named("inner")
    async with connect(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    assert order == ["outer before", "inner before", "inner after", "outer after"]


async def test_middleware_may_change_the_arguments() -> None:
    server = make_server()

    @server.middleware
    async def double(call: MiddlewareCall, proceed: Proceed) -> object:
        call.arguments["a"] *= 10
        return await proceed(call)

    async with connect(server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == 12


async def test_changed_arguments_are_checked_against_the_schema() -> None:
    server = make_server()

    @server.middleware
    async def spoil(call: MiddlewareCall, proceed: Proceed) -> object:
        call.arguments = {"a": "one", "b": 2}
        return await proceed(call)

    async with connect(server) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
    assert result.is_error
    assert "$.a" in result.text


async def test_middleware_may_refuse_a_call_and_the_function_does_not_run() -> None:
    server = make_server()

    @server.middleware
    async def refuse(call: MiddlewareCall, proceed: Proceed) -> object:
        raise ToolError(f"{call.name} is closed on Sundays")

    async with connect(server) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.is_error
        assert result.text == "add is closed on Sundays"
        with pytest.raises(RemoteError, match="closed on Sundays"):
            await client.request("resources/read", {"uri": "notes://7"})


async def test_middleware_may_answer_in_place_of_the_function() -> None:
    server = make_server()

    @server.middleware
    async def answer(call: MiddlewareCall, proceed: Proceed) -> object:
        replacements: dict[str, object] = {
            "tools/call": 42,
            "resources/read": "from the cache",
            "prompts/get": "Hi",
        }
        return replacements[call.method]

    async with connect(server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == 42
        read = await client.request("resources/read", {"uri": "notes://7"})
        assert read["contents"][0]["text"] == "from the cache"
        prompt = await client.request(
            "prompts/get", {"name": "greet", "arguments": {"name": "x"}}
        )
        assert prompt["messages"][0]["content"]["text"] == "Hi"


async def test_an_answer_that_does_not_fit_the_output_schema_is_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = make_server()

    @server.middleware
    async def answer(call: MiddlewareCall, proceed: Proceed) -> object:
        return ToolResult(structured="no number")  # type: ignore[call-arg]

    async with connect(server) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
    assert result.is_error
    assert "Internal error" in result.text
    assert "failed" in caplog.text


async def test_state_reaches_the_function_and_no_other_request() -> None:
    server = make_server()
    tenants = iter(["one", None])

    @server.middleware
    async def choose_tenant(call: MiddlewareCall, proceed: Proceed) -> object:
        tenant = next(tenants)
        if tenant is not None:
            call.context.state["tenant"] = tenant
        return await proceed(call)

    async with connect(server) as client:
        assert (await client.call_tool("who")).text == "one"
        assert (await client.call_tool("who")).text == "None"


async def test_middleware_sees_the_exception_of_a_function() -> None:
    server = Server("failing")
    seen: list[BaseException] = []

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise ValueError("secret")

    @server.middleware
    async def watch(call: MiddlewareCall, proceed: Proceed) -> object:
        try:
            return await proceed(call)
        except ValueError as problem:
            seen.append(problem)
            raise ToolError("something went wrong") from problem

    async with connect(server) as client:
        assert (await client.call_tool("fail")).text == "something went wrong"
    assert [str(problem) for problem in seen] == ["secret"]


async def test_middleware_may_wait(autojump_clock: trio.testing.MockClock) -> None:
    server = make_server()

    @server.middleware
    async def slow(call: MiddlewareCall, proceed: Proceed) -> object:
        await trio.sleep(5)
        return await proceed(call)

    async with connect(server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == 3


async def test_middleware_does_not_see_what_was_refused_before() -> None:
    server = make_server()
    seen: list[str] = []

    @server.middleware
    async def watch(call: MiddlewareCall, proceed: Proceed) -> object:
        seen.append(call.name)
        return await proceed(call)

    async with connect(server) as client:
        with pytest.raises(RemoteError, match="Unknown tool"):
            await client.call_tool("missing")
    assert seen == []


def test_middleware_that_is_not_async_is_refused() -> None:
    server = make_server()
    expected = "expected async def f(call, proceed), got <function"
    with pytest.raises(TypeError, match=re.escape(expected)):

        @server.middleware  # type: ignore[type-var]
        def audit(call: MiddlewareCall, proceed: Proceed) -> object:
            return None


def test_middleware_with_too_few_parameters_is_refused() -> None:
    server = make_server()
    with pytest.raises(TypeError, match="too many positional arguments"):

        @server.middleware  # type: ignore[type-var]
        async def audit(call: MiddlewareCall) -> object:
            return None
