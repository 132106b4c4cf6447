"""The client that the official conformance suite examines: `python client.py URL`.

The suite starts it once for each scenario, whose name, revision and data are in the
environment. It uses `mcp_trio.client` as any program would.
"""

import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from mcp_trio.client import Client, RemoteError, connect
from mcp_trio.protocol.types import Json

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
REVISION = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
CONTEXT: Json = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
FORMS: Json = {"elicitation": {"form": {"applyDefaults": True}}}

# Arguments that satisfy the suite's tools, by the names of their parameters.
SAMPLES: Json = {"string": "us-west1", "integer": 5, "number": 3, "boolean": True}


async def main(url: str) -> None:
    """Run a scenario."""
    if SCENARIO in SCENARIOS:
        await SCENARIOS[SCENARIO](url)
    else:
        await call_every_tool(url)


def opened(url: str) -> AbstractAsyncContextManager[Client]:
    return connect(url, REVISION, capabilities=FORMS, answer=accept)


async def accept(method: str, params: Json) -> Json:
    """Accept every form as it is. The client fills in the defaults."""
    properties = params.get("requestedSchema", {}).get("properties", {})
    confirmed = {name: True for name in properties if name == "confirmed"}
    return {"action": "accept", "content": confirmed}


async def call_every_tool(url: str) -> None:
    """List the tools, and call each with arguments that its schema allows."""
    async with opened(url) as client:
        for tool in await client.list_tools():
            schema = tool["inputSchema"]
            arguments = {
                name: SAMPLES[field["type"]]
                for name, field in schema.get("properties", {}).items()
                if field.get("type") in SAMPLES
            }
            await client.call_tool(tool["name"], arguments)


async def only_list(url: str) -> None:
    """List the tools."""
    async with opened(url) as client:
        await client.list_tools()


async def discover(url: str) -> None:
    """Send `server/discover`, and list the tools."""
    async with opened(url) as client:
        await client.request("server/discover")
        await client.list_tools()


async def call_with_given_arguments(url: str) -> None:
    """Call the tools with the arguments that the suite gives."""
    async with opened(url) as client:
        await client.list_tools()
        for call in CONTEXT["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def use_everything(url: str) -> None:
    """Use tools, resources and prompts."""
    async with opened(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"], {})
        for resource in await client.list_resources():
            await client.read_resource(resource["uri"])
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt["name"], {})


async def echo_schema(url: str) -> None:
    """Send the schema of the first tool back, as it came."""
    async with opened(url) as client:
        focal, echo = await client.list_tools()
        await client.call_tool(echo["name"], {"schema": focal["inputSchema"]})


async def use_tools_at_once(url: str) -> None:
    """Call all tools at the same time, so that answers could get mixed up."""
    async with opened(url) as client, trio.open_nursery() as nursery:
        for tool in await client.list_tools():
            nursery.start_soon(client.call_tool, tool["name"], {})


SCENARIOS: dict[str, Any] = {
    "initialize": only_list,
    "request-metadata": discover,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_with_given_arguments,
    "json-schema-ref-no-deref": only_list,
    "json-schema-2020-12-preservation": echo_schema,
    "sep-2322-client-request-state": use_tools_at_once,
}

if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[-1])
    except* RemoteError as failed:
        sys.exit(str(failed.exceptions[0]))
