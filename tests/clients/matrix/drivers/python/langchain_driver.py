"""LangChain, through langchain-mcp-adapters."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.resources import load_mcp_resources
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitResult


class LangChain(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        self.steps: list[Any] = []
        self.logged: list[Any] = []
        callbacks = Callbacks(
            on_progress=self.hear_progress,
            on_logging_message=self.hear_log,
            on_elicitation=self.answer_elicitation,
        )
        client = MultiServerMCPClient({"it": self.connection()}, callbacks=callbacks)
        async with client.session("it") as self.session:
            tools = await load_mcp_tools(
                self.session,
                callbacks=callbacks,
                server_name="it",
                handle_tool_errors=True,
            )
            self.by_name = {tool.name: tool for tool in tools}
            yield

    def connection(self) -> Any:
        match self.target.transport:
            case "http":
                return {"transport": "streamable_http", "url": self.target.url}
            case "sse":
                return {"transport": "sse", "url": self.target.url}
            case "ws":
                return {"transport": "websocket", "url": self.target.url}
        command, *arguments = self.target.command
        return {
            "transport": "stdio",
            "command": command,
            "args": arguments,
            "env": self.target.environment,
        }

    async def hear_progress(
        self, progress: float, total: float | None, message: str | None, context: Any
    ) -> None:
        self.steps.append([progress, total, message])

    async def hear_log(self, params: Any, context: Any) -> None:
        self.logged.append([params.level, params.data])

    async def answer_elicitation(self, *request: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"city": "Rome", "days": 3})

    async def list_tools(self) -> list[str]:
        return list(self.by_name)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        call = {"name": name, "args": arguments, "id": "1", "type": "tool_call"}
        message = await self.by_name[name].ainvoke(call)
        structured = None
        if message.artifact is not None:
            structured = message.artifact["structured_content"]
        return Result(message.text, message.status == "error", structured)

    async def progress(self) -> Any:
        await self.call_tool("count", {"steps": 3})
        return self.steps

    async def logging(self) -> Any:
        await self.call_tool("talk", {})
        return self.logged

    async def elicitation(self) -> Any:
        return (await self.call_tool("ask_user", {})).text

    async def resources(self) -> Any:
        uris = ["note://picture", "note://today"]
        picture, text = await load_mcp_resources(self.session, uris=uris)
        listed = await load_mcp_resources(self.session)
        return {
            "uris": sorted(str(blob.metadata["uri"]) for blob in listed),
            "text": text.as_string(),
            "blob": base64.b64encode(picture.as_bytes()).decode()[:6],
        }


main(LangChain)
