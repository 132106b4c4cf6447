"""The official Python SDK, 2.x."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp
from driver import main
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from session_driver import SessionDriver

STATELESS = "2026-07-28"


class PythonSDK2(SessionDriver):
    sdk_error = mcp.MCPError

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        is_stateless = self.target.revision == STATELESS
        async with mcp.Client(
            self.transport(),
            mode="auto" if is_stateless else "legacy",
            sampling_callback=self.answer_sampling,
            elicitation_callback=self.answer_elicitation,
            list_roots_callback=self.answer_roots,
            logging_callback=self.hear_log,
            log_level="info" if is_stateless else None,
            message_handler=self.hear,
        ) as self.session:
            yield

    def transport(self) -> Any:
        match self.target.transport:
            case "http":
                return streamable_http_client(self.target.url)
            case "sse":
                return sse_client(self.target.url)
        command, *arguments = self.target.command
        return mcp.stdio_client(
            mcp.StdioServerParameters(
                command=command, args=arguments, env=self.target.environment
            )
        )

    async def set_log_level(self) -> None:
        if self.target.revision != STATELESS:
            await super().set_log_level()

    async def subscriptions(self) -> Any:
        if self.target.revision != STATELESS:
            return await super().subscriptions()
        async with self.session.listen(
            resource_subscriptions=["note://today"]
        ) as changes:
            await self.call_tool("change_note", {})
            await anext(aiter(changes))
        return "notified"

    async def list_changes(self) -> Any:
        if self.target.revision != STATELESS:
            return await super().list_changes()
        async with self.session.listen(tools_list_changed=True) as changes:
            await self.call_tool("add_tool", {})
            await anext(aiter(changes))
        return "added" in await self.list_tools()


main(PythonSDK2)
