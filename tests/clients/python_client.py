"""The official Python SDK's client, 1.x or 2.x, in one conversation with an MCP server.

python python_client.py [--revision legacy|newest] (-- COMMAND... | --url URL | --sse
URL)

It prints the results as one JSON object. Run it with an interpreter that has the
package `mcp`: see install.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any

import mcp
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult, PromptReference

IS_VERSION_1 = not hasattr(mcp, "Client")
SDK_ERROR: type[Exception] = (
    mcp.McpError if IS_VERSION_1 else mcp.MCPError
)  # renamed in 2.0
SECONDS = 30

Opened = tuple[Any, dict[str, Any], bool]
"""A client, what it knows of the server, and whether it can ping it."""
Connect = Callable[[argparse.Namespace], AbstractAsyncContextManager[Opened]]


def main(connect: Connect | None = None) -> None:
    """Have one conversation, with a client of this SDK or one that is built on it."""
    warnings.simplefilter(
        "ignore"
    )  # 2.x deprecates methods that its newest revision has removed, such as ping
    connect = connect or (connected_1 if IS_VERSION_1 else connected_2)
    report = asyncio.run(
        asyncio.wait_for(serve_conversation(parsed_arguments(), connect), SECONDS)
    )
    print(json.dumps(report))


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="One conversation of the official Python SDK with an MCP server."
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--url", help="a Streamable HTTP endpoint")
    target.add_argument("--sse", help="an HTTP+SSE endpoint")
    target.add_argument(
        "command", nargs="*", default=[], help="after --: a server on stdio"
    )
    parser.add_argument("--revision", choices=["legacy", "newest"], default="newest")
    return parser.parse_args()


async def serve_conversation(
    arguments: argparse.Namespace, connect: Connect
) -> dict[str, Any]:
    async with connect(arguments) as (client, report, has_ping):
        if has_ping:
            await client.send_ping()
        # The SDK validates results by the output schemas in the list of tools, so list
        # them first.
        return {
            "sdk": f"python {version('mcp')}",
            **report,
            "ping": has_ping,
            **await tools(client),
            **await resources(client, report["capabilities"]),
            **await prompts(client, report["capabilities"]),
        }


async def tools(client: Any) -> dict[str, Any]:
    listed = await everything(client.list_tools, "tools")
    weather = plain(await client.call_tool("get_weather", {"location": "New York"}))
    total = plain(await client.call_tool("calculate_sum", {"a": 2, "b": 3.5}))
    names = [tool["name"] for tool in listed]
    return {
        "tools": names,
        "weather": text_of(weather),
        "weather_is_error": weather.get("isError", False),
        "sum": json.loads(text_of(total)),
        "bad_arguments": await outcome(client.call_tool("get_weather", {})),
        "unknown_tool": await outcome(client.call_tool("no_such_tool", {})),
        "counted": await counted(client) if "count_slowly" in names else None,
        "trip": await outcome(client.call_tool("plan_trip", {}))
        if "plan_trip" in names
        else None,
        "report": await outcome(client.call_tool("print_report", {"pages": 2}))
        if "print_report" in names
        else None,
        "only_as_task": await outcome(client.call_tool("only_as_task", {})),
    }


async def counted(client: Any) -> dict[str, Any]:
    """Call a tool, and return its progress and its result."""
    told: list[Any] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append([progress, total, message])

    arguments = {"steps": 3, "seconds": 0.05}
    result = plain(
        await client.call_tool("count_slowly", arguments, progress_callback=tell)
    )
    return {"progress": told, "text": text_of(result)}


async def go_to_berlin(context: Any, params: Any) -> ElicitResult:
    """Answer as the user, whatever the question is."""
    return ElicitResult(action="accept", content={"city": "Berlin", "days": 2})


CAN_ANSWER: dict[str, Any] = {"elicitation_callback": go_to_berlin}


async def resources(client: Any, capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the resources of a server that has them, and the content of the first."""
    if "resources" not in capabilities:
        return {"resources": []}
    listed = await everything(client.list_resources, "resources")
    templates = await everything(client.list_resource_templates, "resourceTemplates")
    found = [
        plain(await client.read_resource(resource["uri"])) for resource in listed[:1]
    ]
    return {
        "resources": [resource["uri"] for resource in listed],
        "templates": [template["uriTemplate"] for template in templates],
        "read": [
            contents["text"] for result in found for contents in result["contents"]
        ],
    }


async def prompts(client: Any, capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the prompts of a server that has them, and the messages of the first."""
    if "prompts" not in capabilities:
        return {"prompts": []}
    listed = await everything(client.list_prompts, "prompts")
    names = [prompt["name"] for prompt in listed]
    report: dict[str, Any] = {"prompts": names}
    for name in names[:1]:
        report["messages"] = plain(await client.get_prompt(name, {"city": "London"}))[
            "messages"
        ]
        if "completions" in capabilities:
            place, begun = (
                PromptReference(type="ref/prompt", name=name),
                {"name": "city", "value": "n"},
            )
            report["completed"] = plain(await client.complete(place, begun))[
                "completion"
            ]["values"]
    return report


@asynccontextmanager
async def connected_1(arguments: argparse.Namespace) -> AsyncIterator[Opened]:
    """1.x always sends `initialize`, so `--revision` changes nothing."""
    async with (
        transport(arguments) as (read, write, *_),
        mcp.ClientSession(read, write, **CAN_ANSWER) as session,
    ):
        opened = plain(await session.initialize())
        report = {"revision": opened["protocolVersion"], "server": opened["serverInfo"]}
        yield session, {**report, "capabilities": opened["capabilities"]}, True


@asynccontextmanager
async def connected_2(arguments: argparse.Namespace) -> AsyncIterator[Opened]:
    """By default, 2.x sends `server/discover`, and `initialize` if that fails."""
    legacy = arguments.sse or arguments.revision == "legacy"
    async with mcp.Client(
        transport(arguments), mode="legacy" if legacy else "auto", **CAN_ANSWER
    ) as client:
        server = plain(client.server_info) if client.server_info else None
        report = {"revision": client.protocol_version, "server": server}
        has_ping = client.session.initialize_result is not None
        yield (
            client,
            {**report, "capabilities": plain(client.server_capabilities)},
            has_ping,
        )


def transport(arguments: argparse.Namespace) -> AbstractAsyncContextManager[Any]:
    if arguments.url:
        return streamable_http_client(arguments.url)
    if arguments.sse:
        return sse_client(arguments.sse)
    command, *rest = arguments.command
    # By default, the SDK passes only six variables to the server.
    return mcp.stdio_client(
        mcp.StdioServerParameters(command=command, args=rest, env=dict(os.environ))
    )


async def everything(
    list_page: Callable[..., Awaitable[Any]], field: str
) -> list[dict[str, Any]]:
    """Return the items of all pages."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = plain(await list_page(cursor=cursor))
        items += page[field]
        cursor = page.get("nextCursor")
        if cursor is None:
            return items


async def outcome(call: Awaitable[Any]) -> dict[str, Any]:
    """Return how a call fails: with a JSON-RPC error, or with a result."""
    try:
        result = plain(await call)
    except SDK_ERROR as error:
        told: Any = error
        return {
            "kind": "error",
            "code": told.error.code,
            "text": told.error.message,
            "data": told.error.data,
        }
    return {
        "kind": "result",
        "is_error": result.get("isError", False),
        "text": text_of(result),
    }


def text_of(result: dict[str, Any]) -> str:
    return "".join(item["text"] for item in result["content"] if item["type"] == "text")


def plain(model: Any) -> dict[str, Any]:
    """Return a pydantic model as JSON. The two versions have different field names."""
    fields: dict[str, Any] = model.model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return fields


if __name__ == "__main__":
    main()
