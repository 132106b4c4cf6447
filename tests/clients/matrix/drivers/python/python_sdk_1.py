"""The official Python SDK, 1.x."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import mcp
from driver import main
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.websocket import websocket_client
from session_driver import SessionDriver


class PythonSDK1(SessionDriver):
    sdk_error = mcp.McpError

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        async with (
            self.transport() as (read, write, *_),
            mcp.ClientSession(
                read,
                write,
                sampling_callback=self.answer_sampling,
                elicitation_callback=self.answer_elicitation,
                list_roots_callback=self.answer_roots,
                logging_callback=self.hear_log,
                message_handler=self.hear,
            ) as self.session,
        ):
            await self.session.initialize()
            yield

    def transport(self) -> AbstractAsyncContextManager[Any]:
        match self.target.transport:
            case "http":
                return streamable_http_client(self.target.url)
            case "sse":
                return sse_client(self.target.url)
            case "ws":
                return websocket_client(self.target.url)
        command, *arguments = self.target.command
        return mcp.stdio_client(
            mcp.StdioServerParameters(
                command=command, args=arguments, env=self.target.environment
            )
        )


main(PythonSDK1)
