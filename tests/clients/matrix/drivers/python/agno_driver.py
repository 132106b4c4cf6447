"""Agno's MCP tools."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agno.tools.function import FunctionCall
from agno.tools.mcp import MCPTools
from driver import Driver, Result, main


class Agno(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        async with self.toolkit() as self.tools_of_server:
            yield

    def toolkit(self) -> MCPTools:
        match self.target.transport:
            case "http":
                return MCPTools(url=self.target.url, transport="streamable-http")
            case "sse":
                return MCPTools(url=self.target.url, transport="sse")
        command = shlex.join(self.target.command)
        return MCPTools(command, transport="stdio", env=self.target.environment)

    async def list_tools(self) -> list[str]:
        return list(self.tools_of_server.functions)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        function = self.tools_of_server.functions[name]
        result = await FunctionCall(function=function, arguments=arguments).aexecute()
        if result.status == "failure":
            return Result(str(result.error), is_error=True)
        return Result(getattr(result.result, "content", str(result.result)))

    async def tool_errors(self) -> Any:
        """Its tools return the text of an error like a result."""
        return (await self.call_tool("fail", {})).text


main(Agno)
