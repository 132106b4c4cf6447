"""The server for the soak: a tool of each kind, and one that reports resources."""

import gc
import threading
import time

import trio

from mcp_trio import Context, Server
from mcp_trio.transports.http.sessions import Sessions

# Short, so that sessions expire soon after their clients have left.
Sessions.idle_timeout = 10.0
server = Server("soaked", grace=2)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
def block(seconds: float) -> str:
    time.sleep(min(seconds, 0.05))
    return "blocked"


@server.tool
async def wait(seconds: float) -> str:
    await trio.sleep(seconds)
    return "waited"


@server.tool
async def steps(ctx: Context, count: int, seconds: float = 0) -> str:
    """Report a number of steps."""
    for step in range(count):
        await ctx.progress(step, count)
        await trio.sleep(seconds)
    return f"{count} steps"


@server.tool
async def held() -> dict[str, int]:
    """Return what the process holds, after collecting garbage."""
    gc.collect()
    # How many idle tasks are kept for later calls depends on how many calls once waited
    # at the same time. Their number is bounded.
    living = trio.lowlevel.current_statistics().tasks_living - server.idle_tasks
    return {
        "tasks": living,
        "threads": threading.active_count(),
        "objects": len(gc.get_objects()),
    }


@server.resource("notes://{name}")
async def note(name: str) -> str:
    return name


@server.prompt
async def greet(who: str) -> str:
    return f"Hello {who}"
