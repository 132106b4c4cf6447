"""The features of clients that use a session of the official Python SDK, 1.x or 2.x."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from driver import Driver, Result
from mcp import types


class SessionDriver(Driver):
    """Uses `self.session`, which has the methods of the SDK's client."""

    session: Any
    sdk_error: type[Exception]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.logged: list[Any] = []
        self.notifications: list[str] = []
        self.notified = anyio.Event()

    # Requests and notifications of the server

    async def answer_elicitation(self, context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"city": "Rome", "days": 3})

    async def answer_sampling(self, context: Any, params: Any) -> Any:
        content = types.TextContent(type="text", text="Oslo")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def answer_roots(self, context: Any) -> Any:
        root: Any = {"uri": "file:///work"}
        return types.ListRootsResult(roots=[types.Root(**root)])

    async def hear_log(self, params: Any) -> None:
        self.logged.append([params.level, params.data])

    async def hear(self, message: Any) -> None:
        # 1.x wraps notifications.
        notification = getattr(message, "root", message)
        if hasattr(notification, "method"):
            self.notifications.append(notification.method)
            self.notified.set()
            self.notified = anyio.Event()

    async def wait_for(self, method: str) -> None:
        while method not in self.notifications:
            await self.notified.wait()

    # Features

    async def list_tools(self) -> list[str]:
        return [
            tool["name"] for tool in await everything(self.session.list_tools, "tools")
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], **options: Any
    ) -> Result:
        return whole(await self.session.call_tool(name, arguments, **options))

    async def ping(self) -> Any:
        await self.session.send_ping()
        return "pong"

    async def bad_arguments(self) -> Any:
        return (await self.call_tool("greet", {})).is_error

    async def unknown_tool(self) -> Any:
        try:
            await self.call_tool("no_such_tool", {})
        except self.sdk_error as error:
            failure: Any = error
            return failure.error.code
        return "no error"

    async def progress(self) -> Any:
        steps: list[Any] = []

        async def hear(
            progress: float, total: float | None, message: str | None
        ) -> None:
            steps.append([progress, total, message])

        await self.call_tool("count", {"steps": 3}, progress_callback=hear)
        return steps

    async def logging(self) -> Any:
        await self.set_log_level()
        await self.call_tool("talk", {})
        return self.logged

    async def set_log_level(self) -> None:
        await self.session.set_logging_level("info")

    async def cancellation(self) -> Any:
        started = anyio.Event()

        async def hear(*progress: Any) -> None:
            started.set()

        async with anyio.create_task_group() as calls:

            async def call() -> None:
                await self.call_tool("wait_for_ever", {}, progress_callback=hear)

            calls.start_soon(call)
            await started.wait()
            calls.cancel_scope.cancel()
        return (await self.call_tool("was_cancelled", {})).text

    async def elicitation(self) -> Any:
        return (await self.call_tool("ask_user", {})).text

    async def sampling(self) -> Any:
        return (await self.call_tool("ask_model", {})).text

    async def roots(self) -> Any:
        return (await self.call_tool("ask_roots", {})).text

    async def resumption(self) -> Any:
        return (await self.call_tool("drop", {})).text

    async def resources(self) -> Any:
        listed = await everything(self.session.list_resources, "resources")
        text = await self.read("note://today")
        picture = await self.read("note://picture")
        return {
            "uris": sorted(resource["uri"] for resource in listed),
            "text": text["text"],
            "blob": picture["blob"][:6],
        }

    async def templates(self) -> Any:
        listed = await everything(
            self.session.list_resource_templates, "resourceTemplates"
        )
        return {
            "templates": [template["uriTemplate"] for template in listed],
            "text": (await self.read("note://by-day/Monday"))["text"],
        }

    async def read(self, uri: str) -> dict[str, Any]:
        contents: dict[str, Any] = plain(await self.session.read_resource(uri))[
            "contents"
        ][0]
        return contents

    async def subscriptions(self) -> Any:
        await self.session.subscribe_resource("note://today")
        await self.call_tool("change_note", {})
        await self.wait_for("notifications/resources/updated")
        return "notified"

    async def prompts(self) -> Any:
        listed = await everything(self.session.list_prompts, "prompts")
        prompt = plain(await self.session.get_prompt("recommend", {"city": "Rome"}))
        return {
            "names": [prompt["name"] for prompt in listed],
            "text": prompt["messages"][0]["content"]["text"],
        }

    async def completion(self) -> Any:
        place = types.PromptReference(type="ref/prompt", name="recommend")
        begun = {"name": "city", "value": "O"}
        return plain(await self.session.complete(place, begun))["completion"]["values"]

    async def list_changes(self) -> Any:
        await self.call_tool("add_tool", {})
        await self.wait_for("notifications/tools/list_changed")
        return "added" in await self.list_tools()


async def everything(
    list_page: Callable[..., Awaitable[Any]], field: str
) -> list[dict[str, Any]]:
    """Return the items of all pages."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = plain(await list_page(cursor=cursor))
        items += page[field]
        cursor = page.get("nextCursor")
        if cursor is None:
            return items


def plain(model: Any) -> dict[str, Any]:
    """Return a model as JSON. The field names differ between 1.x and 2.x."""
    fields: dict[str, Any] = model.model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return fields


def whole(model: Any) -> Result:
    """Return a result of the SDK as the matrix shows it."""
    result = plain(model)
    content = result["content"]
    return Result(
        "".join(item.get("text", "") for item in content),
        result.get("isError", False),
        result.get("structuredContent"),
        [item["type"] for item in content],
    )
