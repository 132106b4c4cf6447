"""Events of streams that have ended: clients can read them for a while, not for ever."""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from mcp_trio import Context, Server
from mcp_trio.stores.memory import MemoryStore
from mcp_trio.stores.parent import ParentStore, serve_store
from mcp_trio.transports.http.event_stream import EventStream
from mcp_trio.transports.http.sessions import Sessions
from tests.support.http_wire import Site, make_server, message, site
from tests.support.reachable import reachable
from tests.support.shared_sites import (
    SharedMemoryStore,
    calling,
    getting,
    one_site,
    until,
)

pytestmark = pytest.mark.thorough

TEXT = "a text to look for"


@pytest.fixture(autouse=True)
def brief_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep streams for a second after their end, and sessions without requests too."""
    monkeypatch.setattr(Sessions, "idle_timeout", 1.0)


def make() -> Server:
    server = make_server()

    @server.tool
    async def tell(context: Context) -> str:
        await context.progress(1, message=TEXT)
        return "told"

    return server


async def follow(there: Site, session: dict[str, str]) -> str:
    """Read a stream to its end, twice, and return the id of its first event."""
    async with calling(there, session, "tell") as events:
        told = await events.rest()
    assert told[0]["params"]["message"] == TEXT
    first = events.ids[0]
    async with getting(there, session, first) as again:
        assert await again.rest() == told
    return first


async def use(there: Site, session: dict[str, str]) -> int:
    """Call a tool whose response is not a stream, and return the status."""
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    return (await there.post(message("tools/call", params), session)).status


async def test_streams_of_one_process_are_forgotten_with_their_session() -> None:
    async with site(make()) as there:
        for _ in range(3):
            await follow(there, await there.open_session())
        await until(lambda: not open_streams())


def open_streams() -> list[object]:
    """Return the streams that are in memory."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is EventStream and one.name]


@asynccontextmanager
async def shared_store(kind: str) -> AsyncIterator[tuple[MemoryStore, list[Site]]]:
    """Serve two processes with a store in memory, or with that of their parent."""
    async with AsyncExitStack() as stack:
        kept = SharedMemoryStore()
        stores: list[MemoryStore | ParentStore] = [kept, kept]
        if kind == "parent":
            # The paths of sockets must be short.
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            nursery = await stack.enter_async_context(trio.open_nursery())
            stack.callback(nursery.cancel_scope.cancel)
            await nursery.start(serve_store, kept, f"{folder}/store")
            stores = [ParentStore(f"{folder}/store") for _ in range(2)]
        sites = [
            await stack.enter_async_context(one_site(make, store)) for store in stores
        ]
        yield kept, sites


@pytest.mark.parametrize(
    "kind",
    [
        "memory",
        pytest.param(
            "parent",
            marks=pytest.mark.skipif(
                sys.platform == "win32", reason="there are no Unix sockets"
            ),
        ),
    ],
)
async def test_a_shared_store_forgets_streams_while_their_session_goes_on(
    kind: str,
) -> None:
    async with shared_store(kind) as (store, (a, b)):
        session = await a.open_session()
        for _ in range(3):
            first = await follow(a, session)
            async with getting(b, session, first) as elsewhere:
                assert len(await elsewhere.rest()) == 2
        assert is_kept(store)
        with trio.fail_after(20):
            while is_kept(store):
                assert await use(b, session) == 200
                await trio.sleep(0.05)


def is_kept(store: MemoryStore) -> bool:
    """Return whether an event is in a store."""
    return any(TEXT.encode() in data for data in reachable(store, bytes))
