"""The server that is fuzzed."""

import trio

from mcp_trio import Context, Server

server = Server("fuzzed", pages=2)


@server.tool
async def get_weather(location: str, units: str = "metric") -> str:
    return location


@server.tool
async def calculate_sum(a: float, b: float) -> float:
    return a + b


@server.tool
async def wait(ctx: Context, seconds: float = 0) -> str:
    await ctx.progress(1)
    await trio.sleep(min(max(seconds, 0), 0.01))
    return "waited"


@server.resource("notes://{id}")
async def note(id: str) -> str:
    return id


@server.prompt
async def greet(who: str) -> str:
    return who
