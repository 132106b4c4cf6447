"""The official Python SDK's client 2.x, which cancels calls and then waits.

python cancelling_python.py URL TOOL (abort|timeout) COUNT SECONDS

Prints "alive" if the session still answers a ping after so many seconds.
"""

import sys
import warnings
from contextlib import suppress

import anyio
import mcp
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, tool: str, how: str, count: int, seconds: float) -> None:
    transport = streamable_http_client(url)
    async with mcp.Client(transport, mode="legacy") as client:
        await client.list_tools()
        async with anyio.create_task_group() as calls:
            for _ in range(count):
                calls.start_soon(cancelled_call, client, tool, how)
        await anyio.sleep(seconds)
        await client.send_ping()
        print("alive")


async def cancelled_call(client: mcp.Client, tool: str, how: str) -> None:
    async def listen(*progress: object) -> None:
        """Take the tool's progress."""

    if how == "timeout":
        with suppress(mcp.MCPError):
            await client.call_tool(
                tool, {}, read_timeout_seconds=0.5, progress_callback=listen
            )
    else:
        with anyio.move_on_after(0.5):
            await client.call_tool(tool, {}, progress_callback=listen)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    url, tool, how, count, seconds = sys.argv[1:]
    anyio.run(main, url, tool, how, int(count), float(seconds))
