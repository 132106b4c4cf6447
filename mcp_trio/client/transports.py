"""The transports that reach a URL."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from .client import ClientWire
from .http import open_http
from .sse import open_sse
from .token import Token


class OpenUrl(Protocol):
    """Opens a wire to a URL, with a bearer token unless it is empty."""

    def __call__(
        self, url: str, token: Token = ""
    ) -> AbstractAsyncContextManager[ClientWire]:
        """Return the context manager that opens the wire."""


def _open_websocket(
    url: str, token: Token = ""
) -> AbstractAsyncContextManager[ClientWire]:
    # Deferred for start-up time: the other transports do without the library.
    from .websocket import open_websocket

    return open_websocket(url, token)


# What opens a wire over each transport. The keys are those of `transport_of`.
WIRES: dict[str, OpenUrl] = {
    "http": open_http,
    "sse": open_sse,
    "ws": _open_websocket,
}
