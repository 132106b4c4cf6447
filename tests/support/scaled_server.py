"""The server of tests with several processes: tools for each kind of state."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

import trio

from mcp_trio import Context, Server

server: Server[Any] = Server(
    "scaled", secret="the same for all processes, and long enough"
)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def pid() -> int:
    """Return the process that has answered."""
    return os.getpid()


@server.tool
async def advance(until: str, seconds: float, ctx: Context) -> str:
    """Report a step each so many seconds, with the process, until a file exists."""
    for step in count(1):
        await ctx.progress(step, message=str(os.getpid()))
        if Path(until).exists():
            break
        await trio.sleep(seconds)
    return "done"


@server.tool(task="required", poll_interval=0.2)
async def once(name: str, journal: str, until: str) -> str:
    """Be a task that is not run again."""
    return await work(name, Path(journal), Path(until))


@server.tool(task="required", poll_interval=0.2, retry=True)
async def again(name: str, journal: str, until: str) -> str:
    """Be a task that is run again if its process is lost."""
    return await work(name, Path(journal), Path(until))


async def work(name: str, journal: Path, until: Path) -> str:
    """Write to a journal that a task begins, and wait until a file exists."""
    with journal.open("a", encoding="utf-8") as file:
        file.write(f"{name} {os.getpid()}\n")
    while not until.exists():
        await trio.sleep(0.1)
    return f"done {name}"
