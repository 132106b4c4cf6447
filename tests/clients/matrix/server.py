"""The server of the matrix: one tool, resource or prompt for each feature.

`server` sends each list in one page, `paged` in several. If the environment variable
`LIFESPAN_FILE`
names a file, the lifespan of `server` creates it when it ends.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from msgspec import Struct

from mcp_trio import (
    Audio,
    Context,
    EmbeddedResource,
    Image,
    ResourceLink,
    Server,
    Text,
    TextContents,
    ToolError,
)
from mcp_trio.demo import png, wav

PAUSE = 0.05
CITIES = ["Bergen", "Osaka", "Oslo", "Rome"]


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[None]:
    try:
        yield
    finally:
        path = os.environ.get("LIFESPAN_FILE")
        if path:
            Path(path).write_text("ended")


server = Server("matrix", "1.0.0", lifespan=lifespan)


class Measurement(Struct):
    """A structured result."""

    city: str
    celsius: float


class Stop(Struct):
    """A part of a nested argument."""

    name: str
    nights: int = 1


class Trip(Struct):
    """A nested argument."""

    city: str
    stops: list[Stop]


class Visit(Struct):
    """A form."""

    city: str
    days: int


# Results


@server.tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.tool
async def revision(ctx: Context) -> str:
    """Return the protocol revision that this request uses."""
    return ctx.revision


@server.tool
async def measure(city: str) -> Measurement:
    """Return a structured result."""
    return Measurement(city, 4.5)


@server.tool
async def plan(trip: Trip, tags: list[str] | None = None) -> str:
    """Take nested arguments."""
    stops = [f"{stop.name} ({stop.nights})" for stop in trip.stops]
    return f"{trip.city} via {', '.join(stops)}: {' '.join(tags or [])}"


@server.tool
async def show() -> list[Text | Image | Audio | ResourceLink | EmbeddedResource]:
    """Return every type of content."""
    return [
        Text("a text"),
        Image(png(1), "image/png"),
        Audio(wav(440.0), "audio/wav"),
        ResourceLink("note://today", "today"),
        EmbeddedResource(TextContents("note://embedded", "embedded")),
    ]


@server.tool
async def fail() -> str:
    """Fail."""
    raise ToolError("the printer is out of paper")


# During a call


@server.tool
async def count(steps: int, ctx: Context) -> str:
    """Report progress."""
    for step in range(1, steps + 1):
        await ctx.progress(step, steps, f"step {step}")
        await trio.sleep(PAUSE)
    return f"counted to {steps}"


@server.tool
async def talk(ctx: Context) -> str:
    """Send a log message."""
    await ctx.info("working")
    await trio.sleep(PAUSE)
    return "talked"


@server.tool
async def drop(ctx: Context) -> str:
    """Close the stream of this call, so that the client has to come back for the result."""
    await ctx.close_stream(retry=PAUSE)
    await trio.sleep(2 * PAUSE)
    return "back again"


cancelled = trio.Event()


@server.tool
async def wait_for_ever(ctx: Context) -> str:
    """Wait until the call is cancelled."""
    try:
        await ctx.progress(0)
        await trio.sleep_forever()
    finally:
        cancelled.set()
    return "never"


@server.tool
async def was_cancelled() -> str:
    """Wait until a call of `wait_for_ever` was cancelled, for at most ten seconds."""
    with trio.move_on_after(10):
        await cancelled.wait()
    return "cancelled" if cancelled.is_set() else "still waiting"


# Questions to the client


@server.tool
async def ask_user(ctx: Context) -> str:
    """Ask the user to fill in a form."""
    answer = await ctx.elicit("Where do you want to go?", Visit)
    if answer.content is None:
        return answer.action
    return f"{answer.content.days} days in {answer.content.city}"


@server.tool
async def ask_model(ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("What is the capital of Norway?", max_tokens=100)
    return f"The model says: {answer.text}"


@server.tool
async def ask_roots(ctx: Context) -> str:
    """Ask the client for its roots."""
    return " ".join(root.uri for root in await ctx.roots())


# Resources and prompts


@server.resource("note://today", mime_type="text/plain")
async def today() -> str:
    """A text."""
    return "Buy bread."


@server.resource("note://picture", mime_type="image/png")
async def picture() -> bytes:
    """Bytes."""
    return png(1)


@server.resource("note://by-day/{day}", mime_type="text/plain")
async def by_day(day: str) -> str:
    """A text for any day."""
    return f"Nothing to do on {day}."


@server.tool
async def change_note() -> str:
    """Notify the subscribers of a resource."""
    server.resource_updated("note://today")
    return "changed"


@server.prompt
async def recommend(city: str) -> str:
    """Ask for a recommendation.

    Args:
        city: The city to visit
    """
    return f"What should I see in {city}?"


@server.complete("recommend", "city")
async def complete_city(value: str) -> list[str]:
    return [city for city in CITIES if city.startswith(value)]


# Changing lists


async def added() -> str:
    """A tool that was not there at first."""
    return "added"


@server.tool
async def add_tool() -> str:
    """Add a tool, and notify the client."""
    server.add_tool(added)
    return "done"


# Pages

paged = Server("matrix, in pages", "1.0.0", pages=10)
PAGED_TOOLS = [f"tool_{number:02}" for number in range(25)]


async def page_item() -> str:
    """One of many tools."""
    return "called"


for name in PAGED_TOOLS:
    paged.add_tool(page_item, name=name)
