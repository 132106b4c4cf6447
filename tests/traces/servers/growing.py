"""The servers of the seeds, each with a tool that adds another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp_trio.load_spec import load

SEEDS = Path(__file__).parent.parent.parent / "seeds"


async def one_more() -> str:
    """Be there."""
    return "Here."


def growing(number: int) -> Any:
    """Return the server of a seed, with a tool that adds another."""
    server = load(str(SEEDS / f"seed_00{number}.py"))

    @server.tool
    async def grow() -> str:
        """Add a tool."""
        server.add_tool(one_more)
        return "There is one more tool."

    return server


seed_000, seed_001, seed_002, seed_003, seed_004 = map(growing, range(5))
