"""Google ADK's MCP toolset."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool import (
    McpToolset,
    SseConnectionParams,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from google.adk.tools.tool_context import ToolContext
from mcp import StdioServerParameters


class GoogleADK(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        toolset = McpToolset(connection_params=self.parameters())
        tools = await toolset.get_tools()
        self.by_name = {tool.name: tool for tool in tools}
        service = InMemorySessionService()
        session = await service.create_session(app_name="driver", user_id="driver")
        self.invocation = InvocationContext(
            invocation_id="1",
            agent=LlmAgent(name="driver"),
            session=session,
            session_service=service,
        )
        try:
            yield
        finally:
            await toolset.close()

    def parameters(self) -> Any:
        match self.target.transport:
            case "http":
                return StreamableHTTPConnectionParams(url=self.target.url, timeout=30)
            case "sse":
                return SseConnectionParams(url=self.target.url, timeout=30)
        command, *arguments = self.target.command
        server = StdioServerParameters(
            command=command, args=arguments, env=self.target.environment
        )
        return StdioConnectionParams(server_params=server, timeout=30)

    async def list_tools(self) -> list[str]:
        return list(self.by_name)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        context = ToolContext(self.invocation, function_call_id="1")
        result = await self.by_name[name].run_async(
            args=arguments, tool_context=context
        )
        if "content" not in result:
            return Result(json.dumps(result), is_error=True)
        return Result(
            "".join(item.get("text") or "" for item in result["content"]),
            bool(result.get("isError")),
            result.get("structuredContent"),
            [item["type"] for item in result["content"]],
        )


main(GoogleADK)
