"""FastMCP's own client, with the conversation and arguments of python_client.py.

Run it with an interpreter that has the package `fastmcp`: see install.py.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from fastmcp.client import Client
from fastmcp.client.transports import (
    ClientTransport,
    SSETransport,
    StdioTransport,
    StreamableHttpTransport,
)
from python_client import Opened, main, plain


@asynccontextmanager
async def connected(arguments: argparse.Namespace) -> AsyncIterator[Opened]:
    """It sends `server/discover` first, like the Python SDK 2.x, its base."""
    mode = "legacy" if arguments.sse or arguments.revision == "legacy" else "auto"
    async with Client(
        transport(arguments), mode=mode, elicitation_handler=go_to_berlin
    ) as client:
        report = {
            "sdk": f"fastmcp {version('fastmcp-slim')}",
            "revision": client.protocol_version,
            "server": plain(client.server_info) if client.server_info else None,
            "capabilities": plain(client.server_capabilities),
        }
        yield (
            spoken_to_like_the_sdk(client),
            report,
            client.initialize_result is not None,
        )


def transport(arguments: argparse.Namespace) -> ClientTransport:
    if arguments.url:
        return StreamableHttpTransport(arguments.url)
    if arguments.sse:
        return SSETransport(arguments.sse)
    command, *rest = arguments.command
    return StdioTransport(command, rest, env=dict(os.environ), keep_alive=False)


async def go_to_berlin(
    message: str, response_type: Any, params: Any, context: Any
) -> dict[str, Any]:
    """Answer as the user, whatever the question is."""
    return {"city": "Berlin", "days": 2}


def spoken_to_like_the_sdk(client: Client[Any]) -> SimpleNamespace:
    """Its methods that return whole results, under the SDK's names."""
    names = "list_tools list_resources list_resource_templates list_prompts read_resource get_prompt complete"
    methods = {name: getattr(client, f"{name}_mcp") for name in names.split()}

    async def call_tool(
        name: str, arguments: dict[str, Any], progress_callback: Any = None
    ) -> Any:
        return await client.call_tool_mcp(
            name, arguments, progress_handler=progress_callback
        )

    return SimpleNamespace(send_ping=client.ping, call_tool=call_tool, **methods)


if __name__ == "__main__":
    main(connected)
