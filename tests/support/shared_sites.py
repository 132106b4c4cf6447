"""Two processes of one server, as two servers in this one that share a store in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from mcp_trio import Server
from mcp_trio.stores.memory import MemoryStore
from tests.support.http_wire import (
    MODERN,
    PATIENCE,
    Site,
    Wire,
    message,
    modern_headers,
    request,
    site,
)


class SharedMemoryStore(MemoryStore):
    """A store in memory that counts as one that several processes share."""

    is_shared = True


Make = Callable[[], Server]


@asynccontextmanager
async def two_sites(
    make: Make, store: MemoryStore | None = None
) -> AsyncIterator[tuple[Site, Site]]:
    """Serve two processes of one server."""
    shared = store or SharedMemoryStore()
    servers = [make(), make()]
    for server in servers:
        server.use_store(shared)
    async with site(servers[0]) as a, site(servers[1]) as b:
        yield a, b


class Events:
    """The events of one response, which is a stream."""

    def __init__(self, wire: Wire) -> None:
        self.ids: list[str] = []
        self._wire = wire
        self._bytes = b""
        self._messages: list[Any] = []

    async def next(self) -> Any:
        """Return the next message; None at the end."""
        while not self._messages:
            if not await self._more():
                return None
        return self._messages.pop(0)

    async def primed(self) -> str:
        """Return the id of the latest event, as soon as there is one."""
        while not self.ids:
            assert await self._more(), "the stream ended"
        return self.ids[-1]

    async def rest(self) -> list[Any]:
        """Return all messages up to the end."""
        found = []
        while True:
            sent = await self.next()
            if sent is None:
                return found
            found.append(sent)

    async def _more(self) -> bool:
        chunk = await self._wire.chunk()
        *events, self._bytes = (self._bytes + chunk).split(b"\n\n")
        for event in events:
            for line in event.decode().splitlines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self.ids.append(value)
                if name == "data" and value:
                    self._messages.append(json.loads(value))
        return bool(chunk)


@asynccontextmanager
async def getting(
    there: Site,
    session: dict[str, str],
    last_event: str | None = None,
    patience: float = PATIENCE,
) -> AsyncIterator[Events]:
    """Open a GET stream of a session."""
    headers = dict(session)
    if last_event is not None:
        headers["Last-Event-ID"] = last_event
    async with there.wire() as wire:
        wire.patience = patience
        await wire.send(request("GET", "/mcp", headers))
        head = await wire.head()
        assert head.status == 200, head.status
        yield Events(wire)


@asynccontextmanager
async def calling(
    there: Site,
    session: dict[str, str],
    tool: str,
    arguments: Any = None,
    id: Any = 7,
    patience: float = PATIENCE,
) -> AsyncIterator[Events]:
    """Call a tool whose response is a stream."""
    params = {
        "name": tool,
        "arguments": arguments or {},
        "_meta": {"progressToken": "p"},
    }
    body = json.dumps(message("tools/call", params, id)).encode()
    async with there.wire() as wire:
        wire.patience = patience
        await wire.send(request("POST", "/mcp", session, body))
        head = await wire.head()
        assert head.status == 200, head.status
        assert head.headers["content-type"] == "text/event-stream"
        yield Events(wire)


@asynccontextmanager
async def listening(there: Site, wanted: Any) -> AsyncIterator[Events]:
    """Open a `subscriptions/listen` of the newest revision, which is acknowledged."""
    params = {"notifications": wanted, "_meta": MODERN}
    body = message("subscriptions/listen", params)
    async with there.wire() as wire:
        head = modern_headers(body)
        await wire.send(request("POST", "/mcp", head, json.dumps(body).encode()))
        assert (await wire.head()).status == 200
        events = Events(wire)
        acknowledged = await events.next()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        yield events


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something is so that nothing announces."""
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.01)
