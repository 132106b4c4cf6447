"""smolagents' MCP client, which is built on mcpadapt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from mcp import StdioServerParameters
from smolagents import MCPClient


class Smolagents(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        with MCPClient(self.parameters(), structured_output=True) as tools:
            self.by_name = {tool.name: tool for tool in tools}
            yield

    def parameters(self) -> Any:
        match self.target.transport:
            case "http":
                return {"url": self.target.url, "transport": "streamable-http"}
            case "sse":
                return {"url": self.target.url, "transport": "sse"}
        command, *arguments = self.target.command
        return StdioServerParameters(
            command=command, args=arguments, env=self.target.environment
        )

    async def list_tools(self) -> list[str]:
        return list(self.by_name)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        result = await asyncio.to_thread(self.by_name[name], **arguments)
        if isinstance(result, dict):
            return Result(text=str(result.get("result")), structured=result)
        return Result(text=str(result))

    async def tool_errors(self) -> Any:
        """Its tools return the text of an error like a result."""
        return (await self.call_tool("fail", {})).text


main(Smolagents)
