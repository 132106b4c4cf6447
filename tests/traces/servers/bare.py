"""A server with one tool and nothing else."""

from __future__ import annotations

from mcp_trio import Server

server = Server("bare")


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)
