"""A server that answers as the fifth seed, the pocket profile, shows it."""

from typing import Annotated

import trio
from msgspec import Meta

from mcp_trio import Context, Server, ToolError

server = Server("seed 004", profile="pocket", pages=2)


@server.tool
async def greet(name: str) -> str:
    """Greet someone."""
    return f"Hello, {name}"


@server.tool
async def say_nothing() -> None:
    """Do nothing, and say so by no content."""


@server.tool
async def measure(text: str) -> dict[str, int]:
    """Count the letters and the words of a text."""
    return {"letters": len(text), "words": len(text.split())}


@server.tool
async def divide(a: float, b: float) -> str:
    """Divide a by b."""
    if b == 0:
        raise ToolError("Division by zero: b must be another number")
    return f"{a / b:g}"


@server.tool
async def count(steps: Annotated[int, Meta(ge=1, le=100)], ctx: Context) -> str:
    """Count to a number, a step a second, telling the progress."""
    for step in range(1, steps + 1):
        await trio.sleep(1)
        await ctx.progress(step, steps)
    return f"Counted to {steps}"
