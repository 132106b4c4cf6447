"""Clients of the official Python SDK, 1.x, whose server is killed during a call.

python resuming_python.py COUNT STEPS FIRST_URL LATER_URL ARGUMENTS

Each client opens a session at FIRST_URL, and calls the tool `advance` with these
arguments, in JSON. When its stream is cut off, the SDK continues it by a GET with
`Last-Event-ID`. That request, and all later ones, are sent to LATER_URL.

When each client has received so many steps, prints the messages of their first steps,
as a JSON array. Then prints a JSON object for each client whose call has ended. Run it
with an interpreter that has the package `mcp`: see install.py.
"""

from __future__ import annotations

import json
import logging
import ssl
import sys
import time
from typing import Any

import anyio
import httpx
import mcp
from mcp.client.streamable_http import streamable_http_client

# How many clients open their sessions at once.
AT_ONCE = 10
# Seconds that a response may take to begin, or to go on.
PATIENCE = 120
# Seconds for everything.
LONGEST = 300


class ResumingClient:
    """One of the clients."""

    def __init__(self, number: int, enough: int) -> None:
        self.number = number
        self.enough = enough
        self.has_enough = anyio.Event()
        self.steps: list[float] = []
        self.message: str | None = None
        self.is_resumed = False

    async def route(self, request: httpx.Request, later: httpx.URL) -> None:
        """Send a request to another server if a stream was cut off."""
        if "last-event-id" in request.headers:
            self.is_resumed = True
        if self.is_resumed:
            request.url = later
            request.headers["host"] = later.netloc.decode()

    async def note(self, done: float, total: float | None, message: str | None) -> None:
        """Note a step."""
        self.steps.append(done)
        self.message = self.message or message
        if len(self.steps) >= self.enough:
            self.has_enough.set()

    async def call(
        self, session: mcp.ClientSession, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Call the tool, then another one, and return a report about both calls."""
        try:
            result = await session.call_tool(
                "advance", arguments, progress_callback=self.note
            )
            outcome: dict[str, Any] = {"text": result.content[0].text}
        except mcp.McpError as error:
            outcome = {"code": error.error.code, "message": error.error.message}
        ended = time.time()
        added = await session.call_tool("add", {"a": self.number, "b": 1})
        return {
            **outcome,
            "number": self.number,
            "ended": ended,
            "steps": self.steps,
            "is_resumed": self.is_resumed,
            "added": json.loads(added.content[0].text),
        }


async def main(
    count: int, enough: int, first: str, later: str, arguments: dict[str, Any]
) -> None:
    clients = [ResumingClient(number, enough) for number in range(count)]
    opening = anyio.CapacityLimiter(AT_ONCE)
    trust = ssl.create_default_context()

    async def run(client: ResumingClient) -> None:
        async def route(request: httpx.Request) -> None:
            await client.route(request, httpx.URL(later))

        async with (
            httpx.AsyncClient(
                timeout=PATIENCE, event_hooks={"request": [route]}, verify=trust
            ) as http,
            streamable_http_client(first, http_client=http) as (read, write, _),
            mcp.ClientSession(read, write) as session,
        ):
            async with opening:
                await session.initialize()
            report = await client.call(session, arguments)
            print(json.dumps(report), flush=True)

    with anyio.fail_after(LONGEST):
        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(run, client)
            for client in clients:
                await client.has_enough.wait()
            print(json.dumps([client.message for client in clients]), flush=True)


if __name__ == "__main__":
    # The SDK logs errors when it closes sessions at a server that was killed.
    logging.disable(logging.ERROR)
    count, enough, first, later, arguments = sys.argv[1:]
    anyio.run(main, int(count), int(enough), first, later, json.loads(arguments))
