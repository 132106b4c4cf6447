"""Rates that are counted over all processes, in the store that they share."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from mcp_trio import Limits, Principal, Server
from mcp_trio.stores.memory import MemoryStore
from mcp_trio.stores.parent import ParentStore, serve_store
from mcp_trio.testing import connect
from tests.support.checked import NEWEST, call, opened
from tests.support.http_wire import site

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="there are no Unix sockets"
)

ALICE = Principal("alice")
BOB = Principal("bob")


class Stores:
    """A store that can be unavailable, and servers that share it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._scope = trio.CancelScope()
        self.has_begun = trio.Event()  # the tool that waits

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve the store until it is taken away."""
        with self._scope:
            await serve_store(MemoryStore(), self._path, task_status=task_status)

    def take_away(self) -> None:
        self._scope.cancel()

    def server(self, limits: Limits | None = None, **own: object) -> Server:
        server = Server("shared", limits=limits)
        server.use_store(ParentStore(self._path))

        @server.tool(**own)  # type: ignore[call-overload]
        async def work() -> str:
            return "done"

        @server.tool(max_in_flight=1)
        async def wait() -> None:
            self.has_begun.set()
            await trio.sleep_forever()

        @server.tool(max_in_flight=1)
        async def alone() -> str:
            await trio.lowlevel.checkpoint()
            return "done"

        return server


@pytest.fixture
async def stores(nursery: trio.Nursery) -> AsyncIterator[Stores]:
    # The paths of sockets must be short.
    with tempfile.TemporaryDirectory() as folder:
        stores = Stores(str(Path(folder) / "store"))
        await nursery.start(stores.run)
        yield stores


async def calls_of(
    server: Server, times: int, principal: Principal = ALICE
) -> list[str]:
    """Call a tool this many times, and return the refusals."""
    async with connect(server, principal=principal) as client:
        results = [await client.call_tool("work") for _ in range(times)]
    return [result.text for result in results if result.is_error]


async def test_two_processes_answer_as_many_calls_as_one(stores: Stores) -> None:
    limits = Limits(rate="10/h")
    refused = await calls_of(stores.server(limits), 6)
    refused += await calls_of(stores.server(limits), 6)
    assert len(refused) == 2
    assert refused[0].startswith("Too many calls: 10 an hour are allowed; try again in")
    # Another client has its own rate.
    assert await calls_of(stores.server(limits), 5, BOB) == []


async def test_an_address_has_one_rate_at_all_processes(stores: Stores) -> None:
    refusals = []
    for _ in range(2):
        async with site(stores.server(Limits(rate="3/h"))) as there:
            for _ in range(2):
                reply = await there.modern("tools/call", {"name": "work"})
                refusals.append("Too many calls" in reply.body.decode())
    assert refusals == [False, False, False, True]


async def test_clients_of_one_process_have_rates_of_their_own(stores: Stores) -> None:
    server = stores.server(Limits(rate="2/h"))
    for _ in range(2):
        # This client has neither a principal nor an address.
        async with opened(server, NEWEST) as client:
            replies = await client.exchange(
                *[call(NEWEST, id, "work") for id in range(3)]
            )
        assert sum("Too many calls" in str(reply) for reply in replies) == 1


async def test_the_rate_of_a_tool_is_for_all_processes(stores: Stores) -> None:
    refused = await calls_of(stores.server(rate="2/h"), 1)
    refused += await calls_of(stores.server(rate="2/h"), 3)
    assert len(refused) == 2
    assert refused[0].startswith("Too many calls of work: 2 an hour are allowed")


async def test_a_call_that_the_tool_refuses_does_not_count(stores: Stores) -> None:
    server = stores.server(Limits(rate="2/h"))
    async with connect(server, principal=ALICE) as client, trio.open_nursery() as calls:
        calls.start_soon(client.call_tool, "wait")
        await stores.has_begun.wait()
        for _ in range(5):
            result = await client.call_tool("wait")
            assert result.text.startswith(
                "Busy: too many calls of wait in progress (limit: 1)"
            )
        # The first call has used one, and the refused calls none.
        assert not (await client.call_tool("work")).is_error
        assert (await client.call_tool("work")).is_error
        calls.cancel_scope.cancel()


async def test_a_tool_that_is_busy_is_free_again_when_its_call_ends(
    stores: Stores,
) -> None:
    server = stores.server(Limits(rate="100/h"))
    async with connect(server, principal=ALICE) as client:
        for _ in range(3):
            # More than one call at once would be refused.
            result = await client.call_tool("alone")
            assert result.text == "done"


async def test_while_the_store_is_away_each_process_counts_for_itself(
    stores: Stores,
) -> None:
    server = stores.server(Limits(rate="3/h"))
    async with server.running():
        assert len(await calls_of(server, 4)) == 1
        stores.take_away()
        assert server.shared_state is not None
        while server.shared_state.is_available:
            await trio.sleep(0.001)
        assert len(await calls_of(server, 4)) == 1


async def test_without_a_shared_store_nothing_is_shared() -> None:
    server = Server("alone", limits=Limits(rate="3/h"))
    server.use_store("memory:")
    async with server.running():
        assert server.shared_limiter is None
