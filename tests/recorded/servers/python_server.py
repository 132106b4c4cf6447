"""A small server on the Python SDK, 1.x or 2.x: `python_server.py [--http PORT]`.

It has what the conversation of tests/clients/python_client.py asks for. Run it with an
interpreter that has `mcp`.
"""

# Annotations are not postponed, because the SDK reads them.
import sys
from typing import Any

import anyio
from pydantic import BaseModel

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.types import Completion
except ImportError:  # 1.x has it under another name
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.types import Completion

CITIES = {"New York": "Partly cloudy", "London": "Light rain", "Nairobi": "Sunny"}
server: Any = MCPServer("small server", instructions="Sample data, built in.")


@server.tool()
async def get_weather(location: str) -> str:
    """The weather of a city of the sample."""
    if location not in CITIES:
        raise ValueError(f"there is no {location} in the sample")
    return CITIES[location]


@server.tool()
def calculate_sum(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool()
async def count_slowly(steps: int, seconds: float, ctx: Context) -> str:
    """Count, telling each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step} of {steps}")
        await anyio.sleep(seconds)
    return f"Counted to {steps}"


class Trip(BaseModel):
    """The form of plan_trip."""

    city: str
    days: int = 3


@server.tool()
async def plan_trip(ctx: Context) -> str:
    """Ask the user where to."""
    answer = await ctx.elicit("Where to?", Trip)
    return (
        f"{answer.data.days} days in {answer.data.city}"
        if answer.action == "accept"
        else "No trip, then."
    )


@server.resource("sample://about", mime_type="text/plain")
def about() -> str:
    """What this server is."""
    return "A small server."


@server.resource("sample://cities/{name}")
def city(name: str) -> str:
    """One city of the sample."""
    return CITIES[name]


@server.prompt()
def write_postcard(city: str) -> str:
    """Have a postcard written from a city."""
    return f"Write a postcard from {city}."


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    """The cities whose names begin so."""
    return Completion(
        values=[name for name in CITIES if name.casefold().startswith(argument.value)]
    )


def main() -> None:
    """Serve, until the client leaves, or on HTTP for ever."""
    if sys.argv[1:2] != ["--http"]:
        server.run()
    elif hasattr(server.settings, "port"):  # 1.x
        server.settings.port = int(sys.argv[2])
        server.run("streamable-http")
    else:
        server.run("streamable-http", port=int(sys.argv[2]))


if __name__ == "__main__":
    main()
