"""The official Python SDK's client, 1.x or 2.x, which leaves while a tool runs.

python leaving_python.py TOOL COMMAND...

Prints how many seconds the client took to leave.
"""

import sys
import time
import warnings

import anyio
import mcp


async def main(tool: str, command: list[str]) -> None:
    parameters = mcp.StdioServerParameters(command=command[0], args=command[1:])
    started = 0.0
    async with (
        mcp.stdio_client(parameters) as (read, write),
        mcp.ClientSession(read, write) as session,
    ):
        await session.initialize()
        with anyio.move_on_after(1):
            await session.send_request(call(tool), mcp.types.CallToolResult)
        started = time.monotonic()
    print(time.monotonic() - started)


def call(tool: str) -> object:
    """Return a call that the client does not cancel when it stops waiting."""
    params = mcp.types.CallToolRequestParams(name=tool, arguments={})
    request = mcp.types.CallToolRequest(method="tools/call", params=params)
    client_request = getattr(mcp.types, "ClientRequest", None)
    if isinstance(client_request, type):
        return client_request(request)
    return request


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    anyio.run(main, sys.argv[1], sys.argv[2:])
