"""TODO"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
)
from contextlib import (
    aclosing,
    asynccontextmanager,
    suppress,
)
from urllib.parse import urljoin

import trio

from .event_parser import Event, Parser
from .http_connection import Connections, target_of
from .queued_wire import QueuedWire, open_queued_wire


@asynccontextmanager
async def open_sse(url: str, token: str = "") -> AsyncIterator[QueuedWire]:
    """A wire over HTTP+SSE, of the first revisions: one GET brings everything; messages are posted to where it says."""

    async def post(message: bytes) -> None:
        headers = [(b"Content-Type", b"application/json")]
        async with connections.request(b"POST", target, headers, message) as response:
            await response.body()

    connections = Connections(url, token)
    request = connections.request(
        b"GET", target_of(url), [(b"Accept", b"text/event-stream")]
    )
    async with (
        aclosing(connections),
        request as response,
        aclosing(response.events(Parser())) as events,
    ):
        endpoint = await anext(events, None)  # it comes first
        if endpoint is None or endpoint.name != "endpoint":
            raise OSError(f"{url}: HTTP {response.status}, no event stream")
        target = target_of(urljoin(url, endpoint.data))
        async with open_queued_wire(_whole(events), post) as wire:
            yield wire


async def _whole(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    """What events bring, until the stream ends or breaks: who waits for more hears of that as of any end."""
    with suppress(trio.BrokenResourceError):
        async for event in events:
            yield event.data.encode()
