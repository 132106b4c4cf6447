"""Answers every example of the second seed (2025-11-25) as that document shows it."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from mcp_trio import (
    Annotations,
    Audio,
    EmbeddedResource,
    Icon,
    Image,
    InvalidParams,
    ResourceLink,
    Server,
    Text,
    TextContents,
    ToolError,
    ToolResult,
)

WEATHER = "Current weather in {}:\nTemperature: 72°F\nConditions: Partly cloudy"
LOCATION = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "City name or zip code"}
    },
    "required": ["location"],
}
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
SOURCE = "file:///project/src/main.rs"
TODAY = date(2025, 8, 8)


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


class Weather(Struct):
    temperature: Annotated[float, Meta(description="Temperature in celsius")]
    conditions: Annotated[str, Meta(description="Weather conditions description")]
    humidity: Annotated[float, Meta(description="Humidity percentage")]


server = Server("seed 001", pages=first_tool_first)


@server.tool(
    title="Weather Information Provider",
    icons=[
        Icon(
            "https://example.com/weather-icon.png",
            mime_type="image/png",
            sizes=["48x48"],
        )
    ],
    input_schema=LOCATION,
)
async def get_weather(location: str) -> str:
    """Get current weather information for a location"""
    return WEATHER.format(location)


@server.tool(title="Weather Data Retriever", input_schema=LOCATION)
async def get_weather_data(location: str) -> Weather:
    """Get current weather data for a location"""
    weather = Weather(temperature=22.5, conditions="Partly cloudy", humidity=65)
    # The example's text has spaces, unlike text from the server.
    text = Text(json.dumps(to_builtins(weather)))
    return ToolResult([text], structured=weather)  # type: ignore[return-value]


async def calculate_sum(a: float, b: float) -> Any:
    """Add two numbers"""
    return a + b


server.add_tool(calculate_sum, input_schema=NUMBERS)


@server.tool
async def use_draft_07() -> str:
    """Show calculate_sum's schema in that draft from now on."""
    server.remove_tool("calculate_sum")
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **NUMBERS}
    server.add_tool(calculate_sum, input_schema=schema)
    return "done"


@server.tool(input_schema={"type": "object", "additionalProperties": False})
async def get_current_time() -> str:
    """Returns the current server time"""
    return datetime.now(UTC).isoformat()


@server.tool(input_schema={"type": "object"})
async def take_anything(**anything: Any) -> str:
    """Takes any arguments at all."""
    return ", ".join(anything)


@server.tool
async def book_trip(departure: date) -> str:
    """Book a trip."""
    if departure <= TODAY:
        raise ToolError(
            f"Invalid departure date: must be in the future. Current date is {TODAY:%d/%m/%Y}."
        )
    return f"booked for {departure:%d/%m/%Y}"


@server.tool
async def text() -> Text:
    """Text content."""
    return Text("Tool result text")


@server.tool
async def image() -> Image:
    """Image content."""
    return Image(
        "base64-encoded-data",
        "image/png",
        annotations=Annotations(audience=["user"], priority=0.9),
    )


@server.tool
async def audio() -> Audio:
    """Audio content."""
    return Audio("base64-encoded-audio-data", "audio/wav")


@server.tool
async def resource_link() -> ResourceLink:
    """A resource link."""
    return ResourceLink(
        SOURCE,
        "main.rs",
        description="Primary application entry point",
        mime_type="text/x-rust",
    )


@server.tool
async def resource() -> EmbeddedResource:
    """An embedded resource."""
    code = 'fn main() {\n println!("Hello world!");\n}'
    hints = Annotations(
        audience=["user", "assistant"],
        priority=0.7,
        last_modified="2025-05-03T14:30:00Z",
    )
    return EmbeddedResource(
        TextContents(SOURCE, code, mime_type="text/x-rust", annotations=hints)
    )
