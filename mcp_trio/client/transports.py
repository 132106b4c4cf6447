"""The transports that connect to a URL."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from .client import ClientWire
from .http import open_http
from .sse import open_sse
from .token import Token


class OpenUrl(Protocol):
    """A function that opens a wire to a URL, with a bearer token if it is not empty."""

    def __call__(
        self, url: str, token: Token = ""
    ) -> AbstractAsyncContextManager[ClientWire]:
        """Return the context manager that opens the wire."""


def _open_websocket(
    url: str, token: Token = ""
) -> AbstractAsyncContextManager[ClientWire]:
    # Imported here to start faster: the other transports do not need the library.
    from .websocket import open_websocket

    return open_websocket(url, token)


# The function that opens a wire over each transport, by the names of `transport_of`.
WIRES: dict[str, OpenUrl] = {
    "http": open_http,
    "sse": open_sse,
    "ws": _open_websocket,
}
