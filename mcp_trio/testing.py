"""For tests of one's own server: a client in the same process, without a byte on any wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from .client import NEWEST, Client, talk, ungrouped
from .server.app import Server
from .server.dispatch import converse
from .transports.memory import memory_pair

__all__ = ["connect"]


@asynccontextmanager
async def connect(server: Server, revision: str = NEWEST, **options: Any) -> AsyncIterator[Client]:
    """A client of `server`, its session open. Options: `capabilities` and `answer`, for what the server may ask.

    async with connect(server, revision=...) as client:
        result = await client.call_tool("get_weather", {"location": "New York"})
    """
    ours, theirs = memory_pair()
    with ungrouped():
        async with server.running(), trio.open_nursery() as nursery:
            nursery.start_soon(converse, server, theirs)
            try:
                async with talk(ours, revision, **options) as client:
                    yield client
            finally:
                await ours.aclose()
                nursery.cancel_scope.cancel()
