"""Responses that are streams of events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import ClassVar

import msgspec
import trio

from ...auth.access import Access
from ...auth.principal import Principal
from . import sse
from .event_stream import EventStream
from .messages import EVENTS, Fields
from .metrics import Metrics

# Seconds of silence after which a stream is sent a comment.
HEARTBEAT = 15.0


class Feed(msgspec.Struct, eq=False):
    """A response that is a stream of events.

    A host sends `status` and `headers`, and then every block that `next` returns. With
    `access`, the feed ends when the token is no longer valid for the principal.
    """

    status: ClassVar[int] = 200
    headers: ClassVar[Fields] = EVENTS
    stream: EventStream
    metrics: Metrics
    after: int | None = None  # the number of the event that the client has seen last
    access: Access | None = None
    principal: Principal | None = None
    token: str = ""
    is_silent: bool = True

    @asynccontextmanager
    async def open(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Read the stream inside this block. Its tasks run in the host's nursery."""
        if self.access is not None and self.principal is not None:
            stop = partial(self.stream.detach, self)
            nursery.start_soon(self.access.outlast, self.token, self.principal, stop)
        nursery.start_soon(self._send_heartbeats)
        self.stream.attach(self, self.after)
        self.metrics.streams += 1
        try:
            yield
        finally:
            self.metrics.streams -= 1
            self.stream.detach(self)

    async def next(self) -> bytes:
        """Wait for the next block to send. Returns empty bytes at the end."""
        block = await self.stream.take(self)
        self.is_silent = block == sse.COMMENT
        return block

    async def _send_heartbeats(self) -> None:
        """Send a comment whenever nothing else was sent for a while.

        One task for the whole stream costs less than a timeout for each block.
        """
        while True:
            self.is_silent = True
            await trio.sleep(HEARTBEAT)
            if self.is_silent:
                self.stream.send_comment(self)
