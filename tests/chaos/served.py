"""The server for the faults: a tool of each kind, and one that reports resources."""

import gc
import os
import select
import threading
from pathlib import Path

import trio
from msgspec import Struct

from mcp_trio import Context, Server

server = Server("chaos", grace=2)


class Sure(Struct):
    """A form with one question."""

    sure: bool


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
def block(seconds: float) -> str:
    """Hold a worker thread."""
    # Under libfaketime 0.9.10, time.sleep fails.
    select.select([], [], [], min(seconds, 1))
    return "blocked"


@server.tool
def hang() -> str:
    """Hold a worker thread, however long the client waits."""
    select.select([], [], [], 600)
    return "hung"


@server.tool
async def wait(seconds: float, text: str = "") -> str:
    await trio.sleep(seconds)
    return "waited"


@server.tool
async def steps(ctx: Context, count: int) -> str:
    """Report progress."""
    for step in range(count):
        await ctx.progress(step, count)
    return f"{count} steps"


@server.tool
async def recite() -> str:
    """Return as much as a result may hold."""
    return "x" * (7 * 2**20)


@server.tool
async def confirm(ctx: Context) -> str:
    """Ask the user, which in some revisions takes a signed state with a time."""
    answer = await ctx.elicit("Are you sure?", Sure)
    return f"{answer.action}: {answer.content}"


@server.tool(task="optional", poll_interval=0.05)
async def later(ctx: Context) -> str:
    """Run as a task, for clients that declare tasks."""
    await trio.sleep(0.1)
    return "done later"


@server.tool
async def held() -> dict[str, int]:
    """Report what the process holds, after releasing everything unused."""
    gc.collect()
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    return {
        "memory": _memory(),
        "descriptors": len(descriptors),
        "highest_descriptor": max(descriptors),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "threads": threading.active_count(),
    }


def _memory() -> int:
    """Return the bytes of resident memory."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@server.resource("notes://{name}")
async def note(name: str) -> str:
    return f"about {name}"
