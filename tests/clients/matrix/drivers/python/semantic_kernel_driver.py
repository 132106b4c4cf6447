"""Semantic Kernel's MCP plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import (
    MCPSsePlugin,
    MCPStdioPlugin,
    MCPStreamableHttpPlugin,
    MCPWebsocketPlugin,
)


class SemanticKernel(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        async with self.plugin() as self.it:
            yield

    def plugin(self) -> Any:
        match self.target.transport:
            case "http":
                return MCPStreamableHttpPlugin("it", self.target.url)
            case "sse":
                return MCPSsePlugin("it", self.target.url)
            case "ws":
                return MCPWebsocketPlugin("it", self.target.url)
        command, *arguments = self.target.command
        environment = self.target.environment
        return MCPStdioPlugin("it", command, args=arguments, env=environment)

    async def list_tools(self) -> list[str]:
        functions = Kernel().add_plugin(self.it).functions
        # The plugin makes functions of prompts, too.
        return [name for name in functions if name != "recommend"]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        contents = await self.it.call_tool(name, **arguments)
        return Result("".join(getattr(item, "text", "") for item in contents))

    async def tool_errors(self) -> Any:
        """Its functions return the text of an error like a result."""
        return (await self.call_tool("fail", {})).text

    async def prompts(self) -> Any:
        functions = Kernel().add_plugin(self.it).functions
        messages = await self.it.get_prompt("recommend", city="Rome")
        names = [name for name in functions if name == "recommend"]
        return {"names": names, "text": messages[0].content}


main(SemanticKernel)
