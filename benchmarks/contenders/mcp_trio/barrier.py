"""mcp_trio with one tool: `barrier.py`, on standard input and output. It holds calls until so many wait together."""

import trio

from mcp_trio import Server

server = Server("barrier", "1")
waiting: list[trio.Event] = []


@server.tool
async def meet(n: int) -> str:
    """Wait until n calls do."""
    if not waiting:
        waiting.append(trio.Event())
        counts.append(0)
    counts[-1] += 1
    here = waiting[-1]
    if counts[-1] == n:
        waiting.clear()
        here.set()
    await here.wait()
    return str(n)


counts: list[int] = []

if __name__ == "__main__":
    server.run()
