"""Answers every example of the fourth seed (2024-11-05) as that document shows it."""

from collections.abc import Sequence
from typing import Any

from mcp_trio import (
    EmbeddedResource,
    Image,
    InvalidParams,
    Server,
    Text,
    TextContents,
    ToolError,
)

WEATHER = "Current weather in {}:\nTemperature: 72°F\nConditions: Partly cloudy"
LOCATION = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "City name or zip code"}
    },
    "required": ["location"],
}


def first_tool_first(
    tools: Sequence[tuple[int, Any]], cursor: str | None
) -> tuple[list[Any], str | None]:
    """Put one tool on the first page, whose cursor the document uses, and the rest
    next.
    """
    in_order = [tool for _, tool in tools]
    if cursor in (None, "optional-cursor-value"):
        return in_order[:1], "next-page-cursor"
    if cursor == "next-page-cursor":
        return in_order[1:], None
    raise InvalidParams("Invalid cursor")


server = Server("seed 003", pages=first_tool_first)


@server.tool(input_schema=LOCATION)
async def get_weather(location: str) -> str:
    """Get current weather information for a location"""
    if location != "New York":
        raise ToolError("Failed to fetch weather data: API rate limit exceeded")
    return WEATHER.format(location)


@server.tool
async def text() -> Text:
    """Text content."""
    return Text("Tool result text")


@server.tool
async def image() -> Image:
    """Image content."""
    return Image("base64-encoded-data", "image/png")


@server.tool
async def resource() -> EmbeddedResource:
    """An embedded resource."""
    return EmbeddedResource(
        TextContents("resource://example", "Resource content", mime_type="text/plain")
    )
