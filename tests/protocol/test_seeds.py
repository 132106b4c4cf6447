"""Each JSON example of each seed, answered by a small server: `seeds/seed_00N.py`."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio.testing

from mcp_trio import Server
from tests.support import checked, seed_examples
from tests.support.checked import RawClient
from tests.support.paths import SEEDS
from tests.support.seed_examples import (
    REVISION,
    Message,
    contains,
    kind,
    with_any_text,
)

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def call(id: int, name: str, /, **arguments: Any) -> Message:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


UNASKED: dict[tuple[int, int], Message] = {
    (1, 3): call(3, "invalid_tool_name"),
    (1, 4): call(4, "book_trip", departure="2025-08-08"),
    (1, 5): call(5, "get_weather_data", location="New York"),
    (2, 3): call(3, "get_weather", units="metric"),
    (2, 4): call(4, "invalid_tool_name"),
    (2, 5): call(5, "query_database", query="widgets manufactured in 1972"),
    (3, 3): call(3, "invalid_tool_name"),
    (3, 4): call(4, "get_weather", location="Chicago"),
}
"""Seed, id -> the request that leads to a response which the seed shows without one."""


class Conversation:
    """A client's messages and the server's, in the order of the wire."""

    def __init__(self, client: RawClient, opened: Message) -> None:
        self._client = client
        self.opened = opened

    async def ask(self, request: Message) -> Message:
        self._client.send(request)
        return await self.hear()

    async def hear(self) -> Message:
        message: Message = await self._client.receive_json()
        return message

    async def tools(self) -> list[Message]:
        """Every tool, from every page, as it is listed."""
        tools: list[Message] = []
        params: Message = {}
        while True:
            page = (await self.ask(checked.request("list", "tools/list", params)))[
                "result"
            ]
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}


@asynccontextmanager
async def conversation(server: Server, revision: str) -> AsyncIterator[Conversation]:
    async with checked.raw(server, judged_by=revision) as client:
        opened = await client.open(revision)
        assert opened["protocolVersion"] == revision
        await trio.testing.wait_all_tasks_blocked()
        yield Conversation(client, opened)


def seed_server(number: int) -> Server:
    """Return a new server for a seed, which the test may change."""
    spec = importlib.util.spec_from_file_location("seed", SEEDS / f"seed_00{number}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server: Server = module.server
    return server


def add_a_tool(server: Server) -> None:
    async def one_more() -> str:
        return ""

    server.add_tool(one_more)


# Every example of every document


def every_example() -> list[Any]:
    return [
        pytest.param(number, example, id=f"{number}-{place}-{kind(example)}")
        for number in REVISION
        for place, example in enumerate(seed_examples.examples(number))
    ]


@pytest.mark.parametrize(("number", "example"), every_example())
async def test_every_example_of_a_seed_is_what_its_server_says(
    number: int, example: Message
) -> None:
    server = seed_server(number)
    async with conversation(server, REVISION[number]) as client:
        await CHECKS[kind(example)](number, example, server, client)


async def check_capability(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    assert contains(client.opened["capabilities"], example["capabilities"])


async def check_request(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    if number == 4:
        await check_pocket_call(example, client)
        return
    shown = {
        request["id"]: response for request, response in seed_examples.exchanges(number)
    }
    assert await client.ask(example) == shown[example["id"]]


async def check_response(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    asked = {request["id"]: request for request in seed_examples.requests(number)}
    request = asked.get(example["id"]) or UNASKED[number, example["id"]]
    assert await client.ask(request) == example


async def check_notification(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    add_a_tool(server)
    assert await client.hear() == example


async def check_tool(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    if "draft-07" in example["inputSchema"].get("$schema", ""):
        assert await client.ask(call(1, "use_draft_07")) is not None
        assert await client.hear() == CHANGED
    assert example in await client.tools()


async def check_schema(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    """Check the schema for no parameters: the recommended one, or any object."""
    without = {
        tool["name"]: tool
        for tool in await client.tools()
        if tool["inputSchema"] == example
    }
    name = (
        "get_current_time"
        if example.get("additionalProperties") is False
        else "take_anything"
    )
    assert name in without
    answer = await client.ask(call(1, name, anything=1))
    assert answer["result"]["isError"] == ("additionalProperties" in example)


async def check_content(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    answer = await client.ask(call(1, example["type"]))
    assert answer["result"] == {"content": [example], "isError": False}


async def check_result(
    number: int, example: Message, server: Server, client: Conversation
) -> None:
    assert number == 4, "only the pocket profile shows a result alone"
    answer = await client.ask(call(7, "greet", name="Ada"))
    assert with_any_text(answer["result"]) == example


async def check_pocket_call(example: Message, client: Conversation) -> None:
    assert (example["params"]["name"], example["params"]["arguments"]) == (
        "<tool-name>",
        {"…": "…"},
    )
    tools = await client.tools()
    assert tools
    for tool, arguments in [
        ("greet", {"name": "Ada"}),
        ("say_nothing", {}),
        ("measure", {"text": "one two"}),
    ]:
        assert tool in [listed["name"] for listed in tools]
        answer = await client.ask(
            {**example, "params": {"name": tool, "arguments": arguments}}
        )
        assert answer["id"] == example["id"]
        check_pocket_result(answer["result"])


def check_pocket_result(result: Message) -> None:
    assert set(result) == {"content", "structuredContent", "isError"}
    assert result["content"]
    assert all({"type", "text"} <= set(item) for item in result["content"])
    assert isinstance(result["structuredContent"], dict)
    assert isinstance(result["isError"], bool)


CHECKS = {
    "capability": check_capability,
    "request": check_request,
    "response": check_response,
    "notification": check_notification,
    "tool": check_tool,
    "schema": check_schema,
    "content": check_content,
    "result": check_result,
}


def test_each_designed_request_is_for_a_response_without_a_request() -> None:
    alone = {
        (number, response["id"])
        for number in REVISION
        for response in seed_examples.responses(number)
        if response["id"]
        not in {request["id"] for request in seed_examples.requests(number)}
    }
    assert alone == set(UNASKED)


# The most important ones again, written out, for where the documents are not

LOCATION = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "City name or zip code"}
    },
    "required": ["location"],
}
LOCATION_AND_UNITS = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "City name or zip code"},
        "units": {
            "type": "string",
            "enum": ["metric", "imperial"],
            "default": "metric",
        },
    },
    "required": ["location"],
}
QUERY = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "SQL query to execute"},
        "database": {
            "type": "string",
            "enum": ["users", "products", "orders"],
            "default": "users",
        },
    },
    "required": ["query"],
}
PLAIN = {
    "name": "get_weather",
    "description": "Get current weather information for a location",
    "inputSchema": LOCATION,
}
ICON = {
    "src": "https://example.com/weather-icon.png",
    "mimeType": "image/png",
    "sizes": ["48x48"],
}
TITLED = {**PLAIN, "title": "Weather Information Provider"}
SPECIFIC = "Get current weather information for a specific location"
FIRST_TOOLS = [
    {"name": "get_weather", "description": SPECIFIC, "inputSchema": LOCATION_AND_UNITS},
    {
        "name": "query_database",
        "description": "Execute a SQL query on the database",
        "inputSchema": QUERY,
    },
]
WEATHER = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
SAID = {"content": [{"type": "text", "text": WEATHER}], "isError": False}


def result(id: int, value: Message) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def failed(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def error(id: int, message: str, **data: Any) -> Message:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "error": {"code": -32602, "message": message, **data},
    }


LIST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {"cursor": "optional-cursor-value"},
}
NEXT = {"nextCursor": "next-page-cursor"}


@pytest.mark.parametrize(
    ("number", "request_", "response"),
    [
        (0, LIST, result(1, {"tools": [TITLED], **NEXT})),
        (1, LIST, result(1, {"tools": [{**TITLED, "icons": [ICON]}], **NEXT})),
        (
            2,
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            result(1, {"tools": FIRST_TOOLS}),
        ),
        (3, LIST, result(1, {"tools": [PLAIN], **NEXT})),
        (0, call(2, "get_weather", location="New York"), result(2, SAID)),
        (1, call(2, "get_weather", location="New York"), result(2, SAID)),
        (
            2,
            call(2, "get_weather", location="New York", units="imperial"),
            result(
                2,
                {
                    "toolResult": {
                        "temperature": 72,
                        "humidity": 65,
                        "description": "Partly cloudy",
                    }
                },
            ),
        ),
        (3, call(2, "get_weather", location="New York"), result(2, SAID)),
        (1, call(3, "invalid_tool_name"), error(3, "Unknown tool: invalid_tool_name")),
        (
            2,
            call(4, "invalid_tool_name"),
            error(
                4, "Invalid params", data={"reason": "Unknown tool: invalid_tool_name"}
            ),
        ),
        (
            2,
            call(3, "get_weather"),
            error(
                3,
                "Invalid params",
                data={"reason": "Missing required argument: location"},
            ),
        ),
        (3, call(3, "invalid_tool_name"), error(3, "Unknown tool: invalid_tool_name")),
        (
            3,
            call(4, "get_weather", location="Chicago"),
            result(4, failed("Failed to fetch weather data: API rate limit exceeded")),
        ),
        (
            1,
            call(4, "book_trip", departure="2025-08-08"),
            result(
                4,
                failed(
                    "Invalid departure date: must be in the future. Current date is 08/08/2025."
                ),
            ),
        ),
    ],
)
async def test_an_exchange_is_that_of_the_seed(
    number: int, request_: Message, response: Message
) -> None:
    async with conversation(seed_server(number), REVISION[number]) as client:
        assert await client.ask(request_) == response


@pytest.mark.parametrize("number", REVISION)
async def test_a_tool_that_is_added_later_is_announced(number: int) -> None:
    server = seed_server(number)
    async with conversation(server, REVISION[number]) as client:
        assert client.opened["capabilities"]["tools"] == {"listChanged": True}
        add_a_tool(server)
        assert await client.hear() == CHANGED
        assert "one_more" in [tool["name"] for tool in await client.tools()]


# What the pocket profile says in words


async def test_the_pocket_profile_ends_its_list_with_an_empty_cursor() -> None:
    async with conversation(seed_server(4), REVISION[4]) as client:
        cursor = ""
        pages: list[list[str]] = []
        while not pages or cursor:
            page = (
                await client.ask(
                    checked.request(len(pages), "tools/list", {"cursor": cursor})
                )
            )["result"]
            cursor = page["nextCursor"]
            pages.append([tool["name"] for tool in page["tools"]])
        assert pages == [["greet", "say_nothing"], ["measure", "divide"], ["count"]]


@pytest.mark.parametrize(
    ("name", "arguments", "content", "structured", "is_error"),
    [
        ("greet", {"name": "Ada"}, "Hello, Ada", {}, False),
        ("say_nothing", {}, "", {}, False),
        (
            "measure",
            {"text": "one two"},
            '{"letters":7,"words":2}',
            {"letters": 7, "words": 2},
            False,
        ),
        (
            "divide",
            {"a": 1, "b": 0},
            "Division by zero: b must be another number",
            {},
            True,
        ),
    ],
)
async def test_the_pocket_profile_leaves_nothing_out(
    name: str, arguments: Message, content: str, structured: Message, is_error: bool
) -> None:
    async with conversation(seed_server(4), REVISION[4]) as client:
        answer = await client.ask(call(7, name, **arguments))
        whole = {
            "content": [{"type": "text", "text": content}],
            "structuredContent": structured,
            "isError": is_error,
        }
        assert answer == result(7, whole)


@pytest.mark.parametrize(
    ("name", "arguments"), [("no_such_tool", {}), ("greet", {}), ("greet", {"name": 1})]
)
async def test_the_pocket_profile_answers_an_unknown_tool_and_bad_arguments_with_an_error(
    name: str, arguments: Message
) -> None:
    async with conversation(seed_server(4), REVISION[4]) as client:
        answer = await client.ask(call(7, name, **arguments))
        assert (answer["id"], answer["error"]["code"]) == (7, -32602)


async def test_the_pocket_profile_reports_progress(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with conversation(seed_server(4), REVISION[4]) as client:
        request = call(7, "count", steps=2)
        request["params"]["_meta"] = {"progressToken": "p"}
        told = [await client.ask(request), await client.hear()]
        assert [message["params"]["progress"] for message in told] == [1, 2]
        check_pocket_result((await client.hear())["result"])
