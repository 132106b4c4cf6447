"""Two processes of one server, simulated by two servers with one store in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from mcp_trio import Server
from mcp_trio.stores.base import Lease, Store, StoreUnavailable
from mcp_trio.stores.memory import MemoryStore
from tests.support.http_wire import (
    MODERN,
    PATIENCE,
    Site,
    Wire,
    message,
    modern_headers,
    request,
    site_on,
)


class SharedMemoryStore(MemoryStore):
    """A store in memory that claims to be shared by several processes."""

    is_shared = True


class PartedStore(SharedMemoryStore):
    """The store as one process sees it, which can be cut off from it.

    Then the process cannot write any more.
    """

    def __init__(self, shared: SharedMemoryStore) -> None:
        self.__dict__ = dict(shared.__dict__)
        self.is_cut_off = False

    def _check(self) -> None:
        if self.is_cut_off:
            raise StoreUnavailable("cut off")

    async def write(self, key: str, value: bytes, **options: Any) -> int | None:
        """Write, unless it is cut off."""
        self._check()
        return await super().write(key, value, **options)

    async def delete(self, key: str) -> None:
        """Delete, unless it is cut off."""
        self._check()
        await super().delete(key)

    async def append(self, log: str, *data: bytes, **options: Any) -> int:
        """Append, unless it is cut off."""
        self._check()
        return await super().append(log, *data, **options)

    async def renew(self, lease: Lease, seconds: float) -> None:
        """Renew a lease, unless it is cut off."""
        self._check()
        await super().renew(lease, seconds)


Make = Callable[[], Server]


@asynccontextmanager
async def one_site(
    make: Make, store: Store, host: str = "native"
) -> AsyncIterator[Site]:
    """Serve one of the processes of a server."""
    server = make()
    server.use_store(store)
    async with site_on(host, server) as there:
        yield there


@asynccontextmanager
async def two_sites(
    make: Make, store: MemoryStore | None = None, host: str = "native"
) -> AsyncIterator[tuple[Site, Site]]:
    """Serve two processes of one server."""
    shared = store or SharedMemoryStore()
    async with one_site(make, shared, host) as a, one_site(make, shared, host) as b:
        yield a, b


class Killable:
    """A process that can end at once, without cleaning up."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._store: PartedStore | None = None

    async def run(
        self,
        make: Make,
        store: SharedMemoryStore,
        *,
        task_status: trio.TaskStatus[Site],
    ) -> None:
        """Serve until it is killed."""
        self._store = PartedStore(store)
        with self._scope:
            async with one_site(make, self._store) as there:
                task_status.started(there)
                await trio.sleep_forever()
        self._ended.set()

    async def kill(self) -> None:
        """End it, and wait until it has ended."""
        # Not even tasks that are canceled write anything.
        self._store.is_cut_off = True
        self._scope.cancel()
        await self._ended.wait()


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

    @property
    def has_unread(self) -> bool:
        """Whether messages have arrived that `next` has not returned yet."""
        return bool(self._messages)

    async def primed(self) -> str:
        """Wait for the first event, and return the id of the latest one."""
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
    body = message("tools/call", params, id)
    async with posting(there, session, body, patience) as events:
        yield events


@asynccontextmanager
async def posting(
    there: Site, session: dict[str, str], body: Any, patience: float = PATIENCE
) -> AsyncIterator[Events]:
    """Post a request whose response is a stream."""
    data = json.dumps(body).encode()
    async with there.wire() as wire:
        wire.patience = patience
        await wire.send(request("POST", "/mcp", session, data))
        head = await wire.head()
        assert head.status == 200, head.status
        assert head.headers["content-type"] == "text/event-stream"
        yield Events(wire)


@asynccontextmanager
async def listening(there: Site, wanted: Any) -> AsyncIterator[Events]:
    """Open a `subscriptions/listen` of the newest revision."""
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
    """Wait for a condition that is not announced."""
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.01)
