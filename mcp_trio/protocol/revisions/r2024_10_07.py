"""2024-10-07: the first. A tool's result is any JSON, lists come whole, only the client is asked to sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import UNSET

from ..errors import TABLE, InvalidParams, ProtocolError
from ..model import (
    Audio,
    BlobContents,
    Completion,
    Content,
    EmbeddedResource,
    Image,
    Implementation,
    Json,
    Prompt,
    PromptArgument,
    PromptMessage,
    Resource,
    ResourceLink,
    ResourceTemplate,
    Text,
    TextContents,
    Tool,
    ToolResult,
)
from .base import Fields, Revision, names


def described(item: Content) -> Text:
    """Content that a revision has no place for, as the text that says what it was."""
    if isinstance(item, ResourceLink):
        return Text(f"Resource: {item.title or item.name} ({item.uri})")
    if isinstance(item, EmbeddedResource):
        contents = item.resource
        if isinstance(contents, TextContents):
            return Text(contents.text)
        return Text(_omitted(contents.mime_type or "application/octet-stream", contents.blob, contents.uri))
    if isinstance(item, Audio | Image):
        return Text(_omitted(item.mime_type, item.data))
    return Text(item.text)


def _omitted(mime_type: str, data: str | bytes, of: str = "") -> str:
    size = len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else len(data)
    return f"[{mime_type}, {size} bytes{f', {of}' if of else ''}: this protocol revision cannot carry it]"


class R2024_10_07(Revision):
    name = "2024-10-07"
    pages = False
    requests = names(
        "initialize ping tools/list tools/call prompts/list prompts/get resources/list resources/read"
        " resources/subscribe resources/unsubscribe logging/setLevel completion/complete"
    )
    notifications = names("notifications/initialized notifications/progress")
    asks = names("ping sampling/createMessage")
    tells = names(
        "notifications/progress notifications/message notifications/resources/list_changed"
        " notifications/resources/updated notifications/prompts/list_changed notifications/tools/list_changed"
    )
    capabilities = names("experimental logging prompts resources tools")
    fields = Fields().plus(
        {
            Implementation: "name version",
            Tool: "name description inputSchema",
            ToolResult: "toolResult",
            Text: "text",
            Image: "data mimeType",
            Resource: "uri name description mimeType",
            ResourceTemplate: "uriTemplate name description mimeType",
            TextContents: "uri text mimeType",
            BlobContents: "uri blob mimeType",
            Prompt: "name description arguments",
            PromptArgument: "name description required",
            PromptMessage: "role content",
            Completion: "values total hasMore",
            "notifications/progress": "progressToken progress total",
            "notifications/message": "level logger data",
            "notifications/resources/updated": "uri",
            "sampling/createMessage": (
                "messages systemPrompt includeContext temperature maxTokens stopSequences metadata"
            ),
        }
    )
    levels: ClassVar[Mapping[str, str]] = {
        "debug": "debug",
        "info": "info",
        "notice": "info",
        "warning": "warning",
        "error": "error",
        "critical": "error",
        "alert": "error",
        "emergency": "error",
    }

    def content(self, item: Content) -> Json:
        return super().content(item if type(item) in self.fields else described(item))

    def tool_result(self, result: ToolResult) -> Json:
        return self._with_meta({"toolResult": self._tool_value(result)}, result.meta)

    def _tool_value(self, result: ToolResult) -> Any:
        """The structured value; else the text, where there is one text alone; else the list of content."""
        if result.structured is not UNSET:
            return result.structured
        if not result.content:
            return None
        shaped = [self.content(item) for item in result.content]
        return shaped[0]["text"] if len(shaped) == 1 and shaped[0]["type"] == "text" else shaped

    def error(self, error: ProtocolError) -> Json:
        shaped = super().error(error)
        if shaped["code"] == TABLE[InvalidParams][0]:
            return {"code": shaped["code"], "message": "Invalid params", "data": {"reason": error.reason}}
        return shaped
