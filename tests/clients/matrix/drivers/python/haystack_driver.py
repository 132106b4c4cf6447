"""Haystack's MCP toolset."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from haystack.tools.errors import ToolInvocationError
from haystack_integrations.tools.mcp import (
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)


class Haystack(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        toolset = MCPToolset(self.server(), eager_connect=True)
        self.by_name = {tool.name: tool for tool in toolset}
        try:
            yield
        finally:
            await asyncio.to_thread(toolset.close)

    def server(self) -> Any:
        match self.target.transport:
            case "http":
                return StreamableHttpServerInfo(url=self.target.url)
            case "sse":
                return SSEServerInfo(url=self.target.url)
        command, *arguments = self.target.command
        environment = self.target.environment
        return StdioServerInfo(command=command, args=arguments, env=environment)

    async def list_tools(self) -> list[str]:
        return list(self.by_name)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        try:
            answer = await asyncio.to_thread(self.by_name[name].invoke, **arguments)
        except ToolInvocationError as error:
            return Result(str(error), is_error=True)
        result = json.loads(answer) if isinstance(answer, str) else answer
        content = result["content"]
        return Result(
            "".join(item.get("text", "") for item in content),
            False,
            result.get("structuredContent"),
            [item["type"] for item in content],
        )


main(Haystack)
