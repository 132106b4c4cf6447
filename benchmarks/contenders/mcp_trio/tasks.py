"""mcp_trio with a tool that becomes a task, over HTTP: `tasks.py PORT TTL`. Tasks wait until `release` is called."""

import sys
from functools import partial

import trio

from mcp_trio import Server
from mcp_trio.extensions.tasks import Tasks

PORT, TTL = int(sys.argv[1]), float(sys.argv[2])

server = Server("tasks", "1", extensions=[Tasks(ttl=TTL, most_tasks=10**6)])
released = trio.Event()


@server.tool(task="optional")
async def job(a: int, b: int) -> str:
    """Add two numbers, once the tasks are released."""
    await released.wait()
    return str(a + b)


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def release() -> str:
    """Let all tasks go on."""
    released.set()
    return "released"


if __name__ == "__main__":
    trio.run(partial(server.serve, http=PORT))
