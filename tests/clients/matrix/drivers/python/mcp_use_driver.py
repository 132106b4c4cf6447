"""mcp-use's client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from driver import Driver, Result, main
from mcp import types
from mcp_use import MCPClient
from session_driver import plain, whole


class MCPUse(Driver):
    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        self.logged: list[Any] = []
        root: Any = {"uri": "file:///work"}
        client = MCPClient(
            {"mcpServers": {"it": self.server()}},
            sampling_callback=self.answer_sampling,
            elicitation_callback=self.answer_elicitation,
            logging_callback=self.hear_log,
            roots=[types.Root(**root)],
        )
        self.session = await client.create_session("it")
        try:
            yield
        finally:
            await client.close_all_sessions()

    def server(self) -> dict[str, Any]:
        if self.target.url:
            return {"url": self.target.url}
        command, *arguments = self.target.command
        environment = self.target.environment
        return {"command": command, "args": arguments, "env": environment}

    async def answer_elicitation(self, *request: Any) -> Any:
        return types.ElicitResult(action="accept", content={"city": "Rome", "days": 3})

    async def answer_sampling(self, *request: Any) -> Any:
        content = types.TextContent(type="text", text="Oslo")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def hear_log(self, params: Any) -> None:
        self.logged.append([params.level, params.data])

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self.session.list_tools()]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        return whole(await self.session.call_tool(name, arguments))

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
        listed = await self.session.list_resources()
        text = await self.read("note://today")
        picture = await self.read("note://picture")
        return {
            "uris": sorted(str(resource.uri) for resource in listed),
            "text": text["text"],
            "blob": picture["blob"][:6],
        }

    async def read(self, uri: Any) -> Any:
        return plain(await self.session.read_resource(uri))["contents"][0]

    async def prompts(self) -> Any:
        listed = await self.session.list_prompts()
        prompt = plain(await self.session.get_prompt("recommend", {"city": "Rome"}))
        return {
            "names": [prompt.name for prompt in listed],
            "text": prompt["messages"][0]["content"]["text"],
        }


main(MCPUse)
