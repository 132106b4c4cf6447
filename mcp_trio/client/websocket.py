"""TODO"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Iterator,
)
from contextlib import (
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any

import trio

from .http_connection import Connections, bearing, target_of
from .queued_wire import QueuedWire, open_queued_wire

# Seconds in which a WebSocket has to be open.
TO_OPEN = 10.0


@asynccontextmanager
async def open_websocket(url: str, token: str = "") -> AsyncIterator[QueuedWire]:
    """A wire over WebSocket: one message a text frame."""
    from trio_websocket import ConnectionClosed, ConnectionRejected, wrap_client_stream

    async def said() -> AsyncIterator[bytes]:
        with suppress(ConnectionClosed):
            while True:
                message = await connection.get_message()
                yield message.encode() if isinstance(message, str) else message

    async def say(message: bytes) -> None:
        with suppress(ConnectionClosed):  # which the reader sees too
            await connection.send_message(message.decode())

    with _in_time(url):  # not by the library, which leaves it open where it is rejected
        stream: Any = await Connections(url).connect()
    options: Any = {
        "subprotocols": ["mcp"],
        "extra_headers": bearing(token),
        "max_message_size": 2**62,
    }
    try:
        async with trio.open_nursery() as nursery:
            with _in_time(url):
                host = Connections(url).authority.decode()
                connection = await wrap_client_stream(
                    nursery, stream, host, target_of(url), **options
                )
            async with connection, open_queued_wire(said(), say) as wire:
                yield wire
    except BaseExceptionGroup as group:
        if (rejected := group.subgroup(ConnectionRejected)) is None:
            raise
        (problem,) = rejected.exceptions
        why = f"the server answered with status {problem.status_code}"  # type: ignore[union-attr]
        raise OSError(f"{url} cannot be opened: {why}") from None
    finally:
        await trio.aclose_forcefully(stream)


@contextmanager
def _in_time(url: str) -> Iterator[None]:
    try:
        with trio.fail_after(TO_OPEN):
            yield
    except (OSError, trio.TooSlowError):
        raise OSError(f"{url} cannot be opened: nobody there") from None
