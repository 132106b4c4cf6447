"""AutoGen's MCP workbench."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from autogen_ext.tools.mcp import (
    McpWorkbench,
    SseServerParams,
    StdioServerParams,
    StreamableHttpServerParams,
)
from driver import Driver, Result, main
from session_driver import plain


class AutoGen(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        async with McpWorkbench(self.parameters()) as self.workbench:
            yield

    def parameters(self) -> Any:
        match self.target.transport:
            case "http":
                return StreamableHttpServerParams(url=self.target.url)
            case "sse":
                return SseServerParams(url=self.target.url)
        command, *arguments = self.target.command
        return StdioServerParams(
            command=command,
            args=arguments,
            env=self.target.environment,
            read_timeout_seconds=30,
        )

    async def list_tools(self) -> list[str]:
        return [tool["name"] for tool in await self.workbench.list_tools()]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        result = await self.workbench.call_tool(name, arguments)
        return Result(result.to_text(), result.is_error)

    async def resources(self) -> Any:
        listed = plain(await self.workbench.list_resources())["resources"]
        text = await self.read("note://today")
        picture = await self.read("note://picture")
        return {
            "uris": sorted(resource["uri"] for resource in listed),
            "text": text["text"],
            "blob": picture["blob"][:6],
        }

    async def templates(self) -> Any:
        listed = plain(await self.workbench.list_resource_templates())
        text = await self.read("note://by-day/Monday")
        return {
            "templates": [
                template["uriTemplate"] for template in listed["resourceTemplates"]
            ],
            "text": text["text"],
        }

    async def read(self, uri: str) -> Any:
        return plain(await self.workbench.read_resource(uri))["contents"][0]

    async def prompts(self) -> Any:
        listed = plain(await self.workbench.list_prompts())["prompts"]
        prompt = plain(await self.workbench.get_prompt("recommend", {"city": "Rome"}))
        return {
            "names": [prompt["name"] for prompt in listed],
            "text": prompt["messages"][0]["content"]["text"],
        }


main(AutoGen)
