"""What the server's process holds, and must have released after a fault."""

from __future__ import annotations

from typing import Any

import trio
from msgspec import Struct
from msgspec.structs import asdict

from mcp_trio.client import connect

from .process import ServerProcess

MIB = 2**20
# Bytes of memory that the allocator may keep.
MORE_MEMORY = 40 * MIB
# How much other numbers may grow: by connections that clients keep for their next
# request, with two tasks each, by threads that wait for the next call, and by the event
# history of sessions, which is limited.
ALLOWED = {
    "descriptors": 3,
    "tasks": 6,
    "threads": 6,
    "charged": MIB,
}
# Seconds between two measurements.
INTERVAL = 0.5


class Held(Struct, frozen=True):
    """The resources that a process holds."""

    memory: int = 0
    descriptors: int = 0
    tasks: int = 0
    threads: int = 0
    sessions: int = 0
    streams: int = 0
    requests: int = 0
    charged: int = 0  # bytes, to all accounts
    highest_descriptor: int = 0

    def more_than(
        self, before: Held, memory: int = MORE_MEMORY, **more: int
    ) -> list[str]:
        """Return what has grown beyond what is allowed."""
        allowed = {**ALLOWED, "memory": memory, **more}
        found = []
        earlier = asdict(before)
        for name, count in asdict(self).items():
            if name == "highest_descriptor":
                continue
            most = earlier[name] + allowed.get(name, 0)
            if count > most:
                found.append(f"{name}: {earlier[name]:,} before, {count:,} after")
        return found


async def look(server: ServerProcess) -> Held:
    """Ask the server what it holds. It must be idle."""
    async with connect(server.url(), timeout=30) as client:
        found: dict[str, Any] = (await client.call_tool("held")).structured
    gauges = await server.gauges()
    charged = [value for name, value in gauges.items() if "mcp_held_bytes" in name]
    return Held(
        **found,
        sessions=int(gauges["mcp_sessions"]),
        streams=int(gauges["mcp_streams"]),
        requests=int(gauges["mcp_requests_in_flight"]),
        charged=int(sum(charged)),
    )


async def look_until_back(
    server: ServerProcess, before: Held, memory: int, within: float
) -> Held:
    """Measure until nothing has grown, or until a timeout."""
    deadline = trio.current_time() + within
    while True:
        held = await look(server)
        if not held.more_than(before, memory) or trio.current_time() > deadline:
            return held
        await trio.sleep(INTERVAL)
