"""The OpenAI Agents SDK's MCP servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents.mcp import MCPServer, MCPServerSse, MCPServerStdio, MCPServerStreamableHttp
from driver import Driver, Result, main
from session_driver import plain, whole


class OpenAIAgents(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        async with self.server() as self.it:
            yield

    def server(self) -> MCPServer:
        options: dict[str, Any] = {"client_session_timeout_seconds": 30}
        match self.target.transport:
            case "http":
                return MCPServerStreamableHttp({"url": self.target.url}, **options)
            case "sse":
                return MCPServerSse({"url": self.target.url}, **options)
        command, *arguments = self.target.command
        environment = self.target.environment
        return MCPServerStdio(
            {"command": command, "args": arguments, "env": environment}, **options
        )

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self.it.list_tools()]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        return whole(await self.it.call_tool(name, arguments))

    async def resources(self) -> Any:
        listed = plain(await self.it.list_resources())["resources"]
        picture = plain(await self.it.read_resource("note://picture"))
        return {
            "uris": sorted(resource["uri"] for resource in listed),
            "text": await self.read("note://today"),
            "blob": picture["contents"][0]["blob"][:6],
        }

    async def templates(self) -> Any:
        listed = plain(await self.it.list_resource_templates())["resourceTemplates"]
        return {
            "templates": [template["uriTemplate"] for template in listed],
            "text": await self.read("note://by-day/Monday"),
        }

    async def read(self, uri: str) -> Any:
        return plain(await self.it.read_resource(uri))["contents"][0]["text"]

    async def prompts(self) -> Any:
        listed = plain(await self.it.list_prompts())["prompts"]
        prompt = plain(await self.it.get_prompt("recommend", {"city": "Rome"}))
        return {
            "names": [prompt["name"] for prompt in listed],
            "text": prompt["messages"][0]["content"]["text"],
        }


main(OpenAIAgents)
