"""HTTP+SSE, the HTTP transport of the oldest revisions.

The response to one GET carries all messages from the server. Its first event is the URL
that the client posts its own messages to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from urllib.parse import urljoin

import trio

from .buffered_wire import BufferedWire, open_buffered_wire
from .event_parser import EventParser, ServerSentEvent
from .http_connection import Connections, target_of
from .token import Token


@asynccontextmanager
async def open_sse(url: str, token: Token = "") -> AsyncIterator[BufferedWire]:
    """Open a wire over HTTP+SSE. Raises OSError."""
    connections = Connections(url, token)
    accept = [(b"Accept", b"text/event-stream")]
    async with (
        aclosing(connections),
        connections.request(b"GET", target_of(url), accept) as response,
        aclosing(response.events(EventParser())) as events,
    ):
        endpoint = await anext(events, None)
        if endpoint is None or endpoint.name != "endpoint":
            raise OSError(
                f"{url}: expected an event stream that begins with an endpoint, "
                f"got HTTP {response.status}"
            )
        target = target_of(urljoin(url, endpoint.data))
        post = partial(_post, connections, target)
        async with open_buffered_wire(_messages(events), post) as wire:
            yield wire


async def _post(connections: Connections, target: str, message: bytes) -> None:
    headers = [(b"Content-Type", b"application/json")]
    async with connections.request(b"POST", target, headers, message) as response:
        await response.body()


async def _messages(events: AsyncIterator[ServerSentEvent]) -> AsyncIterator[bytes]:
    """Yield the messages in the events, until the stream ends or breaks.

    In both cases the wire ends, which the client notices.
    """
    with suppress(trio.BrokenResourceError):
        async for event in events:
            yield event.data.encode()
