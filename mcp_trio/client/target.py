"""TODO"""

from __future__ import annotations

import math
from collections.abc import (
    AsyncIterator,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
)
from typing import Any, Literal
from urllib.parse import urlsplit

from .client import NEWEST, Client, Wire, talk, ungrouped
from .stdio import start

# Seconds in which a server at a URL has to open a session.
TO_ANSWER = 30.0


@asynccontextmanager
async def connect(
    target: str | Sequence[str],
    revision: str = NEWEST,
    *,
    token: str = "",
    **options: Any,
) -> AsyncIterator[Client]:
    """A client of the server at a URL (http, https, ws, wss), or of a command that is started for it.

    A URL whose path ends in /sse is taken for the HTTP+SSE of the first revisions. `token` is the bearer token for a
    URL. The other options are those of Client.
    """
    with ungrouped():
        # A command may have to be fetched first; who listens already can answer.
        within = TO_ANSWER if is_url(target) else math.inf
        async with (
            _wire_to(target, token) as wire,
            talk(wire, revision, within=within, **options) as client,
        ):
            yield client


def is_url(target: object) -> bool:
    """Whether a target is a URL, of the kinds that `connect` takes."""
    return isinstance(target, str) and target.startswith(
        ("http://", "https://", "ws://", "wss://")
    )


def transport_of(url: str) -> Literal["ws", "sse", "http"]:
    """What a URL is reached over."""
    parts = urlsplit(url)
    if parts.scheme in ("ws", "wss"):
        return "ws"
    return "sse" if parts.path.endswith("/sse") else "http"


def _wire_to(
    target: str | Sequence[str], token: str
) -> AbstractAsyncContextManager[Wire]:
    if not isinstance(target, str):
        return start(target)
    from .transports import WIRES

    return WIRES[transport_of(target)](target, token)
