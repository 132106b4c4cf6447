"""mcp_trio over HTTP, with a tool that creates tasks: `tasks.py PORT TTL`.

The tasks wait until the tool `release` is called.
"""

import sys
from functools import partial

import trio

from mcp_trio import Server
from mcp_trio.extensions.tasks import Tasks

PORT = int(sys.argv[1])
TTL = float(sys.argv[2])

server = Server("tasks", "1", extensions=[Tasks(ttl=TTL, most_tasks=10**6)])
released = trio.Event()


@server.tool(task="optional")
async def job(a: int, b: int) -> str:
    """Add two numbers, after the tasks are released."""
    await released.wait()
    return str(a + b)


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def release() -> str:
    """Let all tasks continue."""
    released.set()
    return "released"


if __name__ == "__main__":
    trio.run(partial(server.serve, http=PORT))
