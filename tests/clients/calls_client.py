"""Make the calls that a JSON file lists, with the official Python SDK 2.x.

python calls_client.py CALLS.json (-- COMMAND... | --url URL)

Prints all that came as one JSON array. Run it with an interpreter that has `mcp`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import mcp
from mcp.client.streamable_http import streamable_http_client

SECONDS = 60
LISTS = ("tools", "prompts", "resources")


def plain(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def transport(arguments: list[str]) -> AbstractAsyncContextManager[Any]:
    kind, target, *rest = arguments
    if kind == "--url":
        return streamable_http_client(target)
    parameters = mcp.StdioServerParameters(
        command=target, args=rest, env=dict(os.environ)
    )
    return mcp.stdio_client(parameters)


async def conversation(calls: list[Any], arguments: list[str]) -> list[Any]:
    async with mcp.Client(transport(arguments)) as client:
        said = [client.protocol_version, plain(client.server_capabilities)]
        for kind in LISTS:
            if kind in said[1]:
                said.append(plain(await getattr(client, f"list_{kind}")()))
        for name, given in calls:
            try:
                said.append(plain(await client.call_tool(name, given)))
            except mcp.MCPError as error:
                said.append(str(error))
    return said


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    listed = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    talk = asyncio.wait_for(conversation(listed, sys.argv[2:]), SECONDS)
    print(json.dumps(asyncio.run(talk)))
