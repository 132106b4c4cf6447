"""A server of the pocket profile, with a tool that reports progress."""

from __future__ import annotations

from mcp_trio import Context, Server

server = Server("pocket", profile="pocket")


@server.tool
async def count(steps: int, ctx: Context) -> str:
    """Count to a number."""
    for step in range(1, steps + 1):
        await ctx.progress(step, steps)
    return f"Counted to {steps}"
