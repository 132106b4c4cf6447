"""The official Python SDK's low-level server: `lowlevel.py stdio`.

It takes JSON Schemas, and leaves the validation of arguments to the program. This one
uses jsonschema, which the SDK installs.
"""

from typing import Any

import anyio
from jsonschema import Draft202012Validator
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
)

# The schema of `route`, the same in all contenders.
ROUTE = {
    "type": "object",
    "properties": {
        "from": {"type": "string", "minLength": 1, "maxLength": 100},
        "to": {"type": "string", "minLength": 1, "maxLength": 100},
        "mode": {"enum": ["walk", "ride"]},
        "stops": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
    },
    "required": ["from", "to", "mode"],
    "additionalProperties": False,
}
validator = Draft202012Validator(ROUTE)


async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
    """Return the only tool."""
    tool = Tool(name="route", description="Describe a route.", input_schema=ROUTE)
    return ListToolsResult(tools=[tool])


async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
    """Describe a route."""
    arguments = params.arguments or {}
    validator.validate(arguments)
    text = f"{arguments['mode']} from {arguments['from']} to {arguments['to']}"
    return CallToolResult(content=[TextContent(type="text", text=text)])


async def main() -> None:
    """Serve on standard input and output."""
    server: Server[Any] = Server(
        "python_sdk", version="1", on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
