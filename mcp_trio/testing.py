"""For tests of one's own server: a client in the same process, without a byte on any wire; and replays of traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from .auth.principal import Principal, owner
from .client.client import NEWEST, Client, talk, ungrouped
from .server.app import Server
from .server.serve_conversation import serve_conversation
from .transports.memory import memory_pair

if TYPE_CHECKING:
    from .trace.format import Transport

__all__ = ["connect", "replay"]


@asynccontextmanager
async def connect(
    server: Server,
    revision: str = NEWEST,
    *,
    principal: Principal | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """A client of `server`, its session open. Options: `capabilities` and `answer`, for what the server may ask.

    `principal` is who the client is; by default the owner of the process, who may use everything.

    async with connect(server, revision=...) as client:
        result = await client.call_tool("get_weather", {"location": "New York"})
    """
    ours, theirs = memory_pair()
    with ungrouped():
        async with server.running(), trio.open_nursery() as nursery:
            nursery.start_soon(serve_conversation, server, theirs, principal or owner())
            try:
                async with talk(ours, revision, **options) as client:
                    yield client
            finally:
                await ours.aclose()
                nursery.cancel_scope.cancel()


async def replay(
    trace: Path | str, server: Server | str, over: Transport = "stdio"
) -> None:
    """Replay a trace against a server, or the one that a SPEC names, loaded anew. Raises AssertionError: what differs.

    await replay("traces/weather.jsonl", server, over="http")
    """
    from .trace.format import read
    from .trace.replay import Replay, ways
    from .trace.suite import Result, told

    result = Result(Path(trace))
    recorded = read(result.path)
    result.replays = [Replay(recorded, over, way) for way in ways(recorded, over)]
    for run in result.replays:
        await run.against(server)
    if result.findings:
        raise AssertionError("\n".join(told(result)))
