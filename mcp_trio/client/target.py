"""Connect to a server: at a URL, or with a command that starts it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

from ..protocol.types import Json
from .client import NEWEST, Client, ClientWire, talk, ungrouped
from .handlers import (
    AnswerCallback,
    ElicitationHandler,
    Handlers,
    LogHandler,
    ProgressHandler,
    Roots,
    SamplingHandler,
)
from .stdio import open_stdio
from .token import Token, check_token

EXPECTED_URL = "expected a URL such as http://127.0.0.1:8000/mcp"
# Seconds that a server at a URL may take to open a session.
OPEN_TIMEOUT = 30.0


@asynccontextmanager
async def connect(
    target: str | Sequence[str],
    revision: str = NEWEST,
    *,
    token: Token = "",
    capabilities: Json | None = None,
    answer: AnswerCallback | None = None,
    elicitation: ElicitationHandler | None = None,
    sampling: SamplingHandler | None = None,
    roots: Roots | None = None,
    progress: ProgressHandler | None = None,
    log: LogHandler | None = None,
    timeout: float | None = None,
) -> AsyncIterator[Client]:
    """Connect to the server at a URL, or to a command that is started as a server.

    The client declares the capabilities that the handlers give it.

    Args:
        target: A URL with the scheme http, https, ws or wss, or a command as a list of
            strings. If the path of a URL ends in /sse, the transport is HTTP+SSE.
        revision: The protocol revision to use; by default, the newest one.
        token: A bearer token for a URL, or an async function that returns one. The
            function is called before each HTTP request, and once for a WebSocket.
        capabilities: Capabilities that the client declares in addition.
        answer: Answers all questions of the server that have no handler of their own.
        elicitation: Fills in forms for the user.
        sampling: Answers for the model.
        roots: The URIs of the folders that the server may work in.
        progress: Called with each report of progress.
        log: Called with each log message.
        timeout: How many seconds to wait for each reply. By default, there is no limit.
    """
    check_token(token)
    handlers = Handlers(
        answer=answer,
        elicitation=elicitation,
        sampling=sampling,
        roots=roots,
        progress=progress,
        log=log,
    )
    # A command such as npx may have to download the server first. A server at a URL is
    # already running.
    within = OPEN_TIMEOUT if is_url(target) else math.inf
    with ungrouped():
        async with (
            _open_wire_to(target, token) as wire,
            talk(
                wire,
                revision,
                within=within,
                capabilities=capabilities,
                handlers=handlers,
                timeout=timeout,
            ) as client,
        ):
            yield client


def is_url(target: object) -> bool:
    """Return whether a target is a URL that `connect` accepts."""
    return isinstance(target, str) and target.startswith(
        ("http://", "https://", "ws://", "wss://")
    )


def transport_of(url: str) -> Literal["ws", "sse", "http"]:
    """Return the transport that reaches a URL."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValueError(f"{EXPECTED_URL}, got {url!r}: {error}") from None
    if parts.scheme in ("ws", "wss"):
        return "ws"
    if parts.path.endswith("/sse"):
        return "sse"
    return "http"


def _as_command(target: object) -> Sequence[str]:
    """Return the words of a command. Raises ValueError."""
    is_text = isinstance(target, str | bytes)
    if isinstance(target, Sequence) and target and not is_text:
        return target
    raise ValueError(
        f"{EXPECTED_URL}, or a command as a list such as ['python', 'server.py'], got "
        f"{target!r}"
    )


def _open_wire_to(
    target: str | Sequence[str], token: Token
) -> AbstractAsyncContextManager[ClientWire]:
    if not isinstance(target, str) or not is_url(target):
        return open_stdio(_as_command(target))
    # Imported here to start faster: only URLs need the network libraries.
    from .transports import WIRES

    return WIRES[transport_of(target)](target, token)
