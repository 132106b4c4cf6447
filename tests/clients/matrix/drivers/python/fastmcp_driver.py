"""FastMCP's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import mcp
from driver import Unsupported, main
from fastmcp.client import Client
from fastmcp.client.transports import (
    ClientTransport,
    SSETransport,
    StdioTransport,
    StreamableHttpTransport,
)
from session_driver import SessionDriver

STATELESS = "2026-07-28"
WHOLE_RESULTS = [
    "list_tools",
    "list_resources",
    "list_resource_templates",
    "list_prompts",
    "read_resource",
    "get_prompt",
    "complete",
]


class FastMCP(SessionDriver):
    sdk_error = mcp.MCPError

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        is_stateless = self.target.revision == STATELESS
        async with Client(
            self.transport(),
            mode="auto" if is_stateless else "legacy",
            roots=["file:///work"],
            sampling_handler=self.sample,
            elicitation_handler=self.elicit,
            log_handler=self.hear_log,
            message_handler=self.hear,
        ) as self.client:
            # The methods that return whole results, by their names in the SDK.
            methods = {
                name: getattr(self.client, f"{name}_mcp") for name in WHOLE_RESULTS
            }
            self.session = SimpleNamespace(
                call_tool=self.call_tool_mcp,
                send_ping=self.client.ping,
                set_logging_level=self.client.set_logging_level,
                **methods,
            )
            yield

    def transport(self) -> ClientTransport:
        match self.target.transport:
            case "http":
                return StreamableHttpTransport(self.target.url)
            case "sse":
                return SSETransport(self.target.url)
        command, *arguments = self.target.command
        environment = self.target.environment
        return StdioTransport(command, arguments, env=environment, keep_alive=False)

    async def call_tool_mcp(
        self, name: str, arguments: dict[str, Any], progress_callback: Any = None
    ) -> Any:
        return await self.client.call_tool_mcp(
            name, arguments, progress_handler=progress_callback
        )

    async def set_log_level(self) -> None:
        if self.target.revision == STATELESS:
            raise Unsupported("does not ask for log messages in 2026-07-28")
        await super().set_log_level()

    async def subscriptions(self) -> Any:
        raise Unsupported("has no method for it")

    async def list_changes(self) -> Any:
        if self.target.revision == STATELESS:
            raise Unsupported("does not listen for changes in 2026-07-28")
        return await super().list_changes()

    async def elicit(self, message: str, response_type: Any, *rest: Any) -> Any:
        return {"city": "Rome", "days": 3}

    async def sample(self, *request: Any) -> str:
        return "Oslo"


main(FastMCP)
