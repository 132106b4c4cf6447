"""A server that shows two items at a time."""

from __future__ import annotations

from mcp_trio import Server

server = Server("pages", pages=2)


async def nothing() -> str:
    """Do nothing."""
    return "Nothing was done."


async def read(part: str) -> str:
    """A part."""
    return part


for name in ("ant", "bee", "cow", "dog", "elk"):
    server.add_tool(nothing, name=name)
    server.add_prompt(nothing, name=name)
    server.add_resource(f"animals://{name}", nothing, name=name)
    server.add_resource(f"animals://{name}/{{part}}", read, name=name)
