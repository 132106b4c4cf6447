"""Answers every example of the first seed (2025-06-18) as that document shows it."""

from collections.abc import Sequence
from typing import Any

from mcp_trio import (
    Audio,
    EmbeddedResource,
    Image,
    InvalidParams,
    ResourceLink,
    Server,
    Text,
    TextContents,
)

WEATHER = "Current weather in {}:\nTemperature: 72°F\nConditions: Partly cloudy"
LOCATION = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "City name or zip code"}
    },
    "required": ["location"],
}
SOURCE = "file:///project/src/main.rs"


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


server = Server("seed 000", pages=first_tool_first)


@server.tool(title="Weather Information Provider", input_schema=LOCATION)
async def get_weather(location: str) -> str:
    """Get current weather information for a location"""
    return WEATHER.format(location)


@server.tool
async def text() -> Text:
    """Text content."""
    return Text("Tool result text")


@server.tool
async def image() -> Image:
    """Image content."""
    return Image("base64-data", "image/png")


@server.tool
async def audio() -> Audio:
    """Audio content."""
    return Audio("base64-audio", "audio/wav")


@server.tool
async def resource_link() -> ResourceLink:
    """A resource link."""
    return ResourceLink(
        SOURCE, "main.rs", description="Primary entry point", mime_type="text/x-rust"
    )


@server.tool
async def resource() -> EmbeddedResource:
    """An embedded resource."""
    contents = TextContents(
        SOURCE,
        "fn main() {...}",
        title="Project Rust Main File",
        mime_type="text/x-rust",
    )
    return EmbeddedResource(contents)
