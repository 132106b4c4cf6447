"""WebSocket: each message is one text frame."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    wrap_client_stream,
)

from .buffered_wire import BufferedWire, open_buffered_wire
from .http_connection import Connections, authorization, target_of
from .token import Token

# Seconds that opening a connection may take, and then opening a WebSocket on it.
OPEN_TIMEOUT = 10.0
# The client accepts messages of any size, but the library requires a limit.
_NO_LIMIT = 2**62


@asynccontextmanager
async def open_websocket(url: str, token: Token = "") -> AsyncIterator[BufferedWire]:
    """Open a wire over WebSocket. Raises OSError."""
    connections = Connections(url)
    headers = await authorization(token)
    # The library can connect too, but would not close a connection that is rejected.
    with _open_timeout(url):
        stream = await connections.connect()
    try:
        with _rejection_as_os_error(url):
            async with trio.open_nursery() as nursery:
                with _open_timeout(url):
                    connection = await wrap_client_stream(
                        nursery,
                        stream,
                        connections.authority.decode(),
                        target_of(url),
                        subprotocols=["mcp"],
                        extra_headers=headers,
                        max_message_size=_NO_LIMIT,
                    )
                async with connection, _open_wire_on(connection) as wire:
                    yield wire
    finally:
        await trio.aclose_forcefully(stream)


@asynccontextmanager
async def _open_wire_on(
    connection: WebSocketConnection,
) -> AsyncIterator[BufferedWire]:
    async def receive() -> AsyncIterator[bytes]:
        with suppress(ConnectionClosed):
            while True:
                message = await connection.get_message()
                yield message.encode() if isinstance(message, str) else message

    async def send(message: bytes) -> None:
        # If the connection is closed, `receive` ends the wire.
        with suppress(ConnectionClosed):
            await connection.send_message(message.decode())

    async with open_buffered_wire(receive(), send) as wire:
        yield wire


@contextmanager
def _open_timeout(url: str) -> Iterator[None]:
    """Limit the time to connect. Raises OSError."""
    try:
        with trio.fail_after(OPEN_TIMEOUT):
            yield
    except OSError as error:
        raise OSError(f"{url} cannot be opened: {error.strerror or error}") from None
    except trio.TooSlowError:
        reason = f"no response within {OPEN_TIMEOUT:g} s"
        raise OSError(f"{url} cannot be opened: {reason}") from None


@contextmanager
def _rejection_as_os_error(url: str) -> Iterator[None]:
    try:
        yield
    except BaseExceptionGroup as group:
        rejected = group.subgroup(ConnectionRejected)
        if rejected is None:
            raise
        rejection = rejected.exceptions[0]
        assert isinstance(rejection, ConnectionRejected)
        reason = f"the server answered with status {rejection.status_code}"
        raise OSError(f"{url} cannot be opened: {reason}") from None
