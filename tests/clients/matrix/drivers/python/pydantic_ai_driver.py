"""Pydantic AI's toolset of an MCP server."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from fastmcp.client.transports import (
    SSETransport,
    StdioTransport,
    StreamableHttpTransport,
)
from pydantic_ai import messages
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.mcp import MCPToolset


class PydanticAI(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        self.steps: list[Any] = []
        self.logged: list[Any] = []
        async with MCPToolset(
            self.transport(),
            tool_error_behavior="failed",
            elicitation_handler=self.elicit,
            sampling_handler=self.sample,
            progress_handler=self.hear_progress,
            log_handler=self.hear_log,
            log_level="info",
            roots=["file:///work"],
        ) as self.toolset:
            yield

    def transport(self) -> Any:
        match self.target.transport:
            case "http":
                return StreamableHttpTransport(self.target.url)
            case "sse":
                return SSETransport(self.target.url)
        command, *arguments = self.target.command
        environment = self.target.environment
        return StdioTransport(command, arguments, env=environment, keep_alive=False)

    async def elicit(self, *request: Any) -> Any:
        return {"city": "Rome", "days": 3}

    async def sample(self, *request: Any) -> str:
        return "Oslo"

    async def hear_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        self.steps.append([progress, total, message])

    async def hear_log(self, params: Any) -> None:
        self.logged.append([params.level, params.data])

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self.toolset.list_tools()]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        try:
            result = await self.toolset.direct_call_tool(name, arguments)
        except ToolFailed as failure:
            return Result(str(failure), is_error=True)
        if isinstance(result, dict):
            return Result(structured=result)
        return Result(str(result))

    async def progress(self) -> Any:
        await self.call_tool("count", {"steps": 3})
        return self.steps

    async def logging(self) -> Any:
        await self.call_tool("talk", {})
        return self.logged

    async def elicitation(self) -> Any:
        return (await self.call_tool("ask_user", {})).text

    async def sampling(self) -> Any:
        return (await self.call_tool("ask_model", {})).text

    async def roots(self) -> Any:
        return (await self.call_tool("ask_roots", {})).text

    async def resources(self) -> Any:
        listed = await self.toolset.list_resources()
        picture = await self.toolset.read_resource("note://picture")
        assert isinstance(picture, messages.BinaryContent)
        return {
            "uris": sorted(resource.uri for resource in listed),
            "text": await self.toolset.read_resource("note://today"),
            "blob": base64.b64encode(picture.data).decode()[:6],
        }

    async def templates(self) -> Any:
        listed = await self.toolset.list_resource_templates()
        return {
            "templates": [template.uri_template for template in listed],
            "text": await self.toolset.read_resource("note://by-day/Monday"),
        }

    async def prompts(self) -> Any:
        listed = await self.toolset.list_prompts()
        prompt = await self.toolset.get_prompt("recommend", {"city": "Rome"})
        return {
            "names": [prompt.name for prompt in listed],
            "text": prompt.messages[0].content.content,
        }


main(PydanticAI)
