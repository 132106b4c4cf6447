"""Strands Agents' MCP client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from mcp import StdioServerParameters, stdio_client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult
from session_driver import plain
from strands.tools.mcp import MCPClient


class Strands(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        self.steps: list[Any] = []
        with MCPClient(
            self.transport,
            elicitation_callback=self.answer_elicitation,
            progress_callback=self.hear_progress,
        ) as self.client:
            yield

    def transport(self) -> Any:
        match self.target.transport:
            case "http":
                return streamable_http_client(self.target.url)
            case "sse":
                return sse_client(self.target.url)
        command, *arguments = self.target.command
        return stdio_client(
            StdioServerParameters(
                command=command, args=arguments, env=self.target.environment
            )
        )

    async def answer_elicitation(self, *request: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"city": "Rome", "days": 3})

    async def hear_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        self.steps.append([progress, total, message])

    async def list_tools(self) -> list[str]:
        tools = []
        page = self.client.list_tools_sync()
        tools += page
        while page.pagination_token is not None:
            page = self.client.list_tools_sync(page.pagination_token)
            tools += page
        return [tool.tool_name for tool in tools]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        result = await asyncio.to_thread(
            self.client.call_tool_sync, "1", name, arguments
        )
        return Result(
            "".join(item.get("text", "") for item in result["content"]),
            result["status"] == "error",
            result.get("structuredContent"),
        )

    async def elicitation(self) -> Any:
        return (await self.call_tool("ask_user", {})).text

    async def progress(self) -> Any:
        await self.call_tool("count", {"steps": 3})
        return self.steps

    async def resources(self) -> Any:
        listed = plain(self.client.list_resources_sync())["resources"]
        picture = plain(self.client.read_resource_sync("note://picture"))
        return {
            "uris": sorted(resource["uri"] for resource in listed),
            "text": self.read("note://today"),
            "blob": picture["contents"][0]["blob"][:6],
        }

    async def templates(self) -> Any:
        listed = plain(self.client.list_resource_templates_sync())
        return {
            "templates": [
                template["uriTemplate"] for template in listed["resourceTemplates"]
            ],
            "text": self.read("note://by-day/Monday"),
        }

    def read(self, uri: str) -> Any:
        return plain(self.client.read_resource_sync(uri))["contents"][0]["text"]

    async def prompts(self) -> Any:
        listed = plain(self.client.list_prompts_sync())["prompts"]
        prompt = plain(self.client.get_prompt_sync("recommend", {"city": "Rome"}))
        return {
            "names": [prompt["name"] for prompt in listed],
            "text": prompt["messages"][0]["content"]["text"],
        }


main(Strands)
