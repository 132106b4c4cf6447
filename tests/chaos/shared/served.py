"""The server of two processes that share a Redis: a tool for each kind of state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import trio
from msgspec import Struct

from mcp_trio import Context, Server
from mcp_trio.transports.http.sessions import Sessions
from tests.chaos.served import held

# Sessions and tasks end soon after their clients have left, also in Redis.
Sessions.idle_timeout = 100.0
TTL = 100.0
server: Server[Any] = Server(
    "shared chaos", secret="the same for both processes, and long enough", grace=2
)
# Each task that begins adds a line to this file.
journal = Path(os.environ["CHAOS_JOURNAL"])


class Sure(Struct):
    """A form with one question."""

    sure: bool


server.tool(held)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool(rate="5/s")
async def limited() -> str:
    return "answered"


@server.tool
async def steps(ctx: Context, count: int) -> str:
    """Report progress."""
    for step in range(count):
        await ctx.progress(step, count)
        await trio.sleep(0.05)
    return f"{count} steps"


@server.tool
async def wait(ctx: Context) -> str:
    """Wait until it is canceled."""
    await ctx.progress(0)
    await trio.sleep_forever()
    return "never"


@server.tool
async def confirm(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("Are you sure?", Sure)
    return f"{answer.action}: {answer.content}"


@server.tool(task="required", poll_interval=0.2, ttl=TTL)
async def once(name: str) -> str:
    """Be a task that must not run twice."""
    note(name)
    await trio.sleep(0.5)
    return f"done {name}"


@server.tool(task="required", poll_interval=0.2, ttl=TTL, retry=True)
async def again(name: str, ctx: Context) -> str:
    """Be a task that may run twice, with the same answer."""
    note(name)
    answer = await ctx.elicit("Are you sure?", Sure)
    await trio.sleep(0.5)
    return f"done {name}: {answer.action}"


def note(name: str) -> None:
    """Note that a task has begun."""
    with journal.open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


@server.tool
async def touch(uri: str) -> str:
    """Change a resource."""
    server.resource_updated(uri)
    return "changed"


@server.resource("notes://{name}")
async def read_note(name: str) -> str:
    return f"about {name}"
