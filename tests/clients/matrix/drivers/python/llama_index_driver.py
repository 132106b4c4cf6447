"""LlamaIndex's MCP tools. They open a connection for each request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from session_driver import plain, whole


class LlamaIndex(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        if self.target.url:
            self.client = BasicMCPClient(self.target.url)
        else:
            command, *arguments = self.target.command
            environment = self.target.environment
            self.client = BasicMCPClient(command, args=arguments, env=environment)
        tools = await McpToolSpec(self.client).to_tool_list_async()
        self.by_name = {tool.metadata.name: tool for tool in tools}
        yield

    async def list_tools(self) -> list[str]:
        return list(self.by_name)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        output = await self.by_name[name].acall(**arguments)
        return whole(output.raw_output)

    async def resources(self) -> Any:
        listed = plain(await self.client.list_resources())["resources"]
        picture = plain(await self.client.read_resource("note://picture"))
        return {
            "uris": sorted(resource["uri"] for resource in listed),
            "text": await self.read("note://today"),
            "blob": picture["contents"][0]["blob"][:6],
        }

    async def read(self, uri: str) -> Any:
        return plain(await self.client.read_resource(uri))["contents"][0]["text"]


main(LlamaIndex)
