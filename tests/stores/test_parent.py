"""The store of a parent process, as a worker sees it over a Unix socket."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcp_trio.stores.base import Store, StoreUnavailable
from mcp_trio.stores.memory import MemoryStore
from mcp_trio.stores.operations import FrameReader, encode_frame
from mcp_trio.stores.parent import ParentStore, serve_store
from tests.support.store_contract import *  # noqa: F403 (the tests of every store)
from tests.support.store_contract import Pace

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="there are no Unix sockets"
)


@pytest.fixture
def path() -> Iterator[str]:
    # The paths of sockets must be short.
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "store")


@pytest.fixture
async def store(path: str, nursery: trio.Nursery) -> AsyncIterator[Store]:
    await nursery.start(serve_store, MemoryStore(), path)
    store = ParentStore(path)
    async with store.running():
        yield store


@pytest.fixture
def clock() -> MockClock:
    # Both ends of the sockets are in this process, and what one end of a Unix socket
    # sends can be received by the other at once. So nothing is under way when the clock
    # jumps.
    return MockClock(autojump_threshold=0)


@pytest.fixture
def pace() -> Pace:
    return lambda seconds: seconds


def test_frames_arrive_in_any_pieces() -> None:
    frames = encode_frame([1, b"a"]) + encode_frame([2, b"b" * 300])
    reader = FrameReader()
    found = [frame for byte in frames for frame in reader.feed(bytes([byte]))]
    assert found == FrameReader().feed(frames)
    assert len(found) == 2


def test_a_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        FrameReader().feed(b"\xff\xff\xff\xff")


async def test_two_workers_share_one_store(path: str, store: Store) -> None:
    other = ParentStore(path)
    async with other.running(), other.subscribe("c") as subscription:
        await store.write("a", b"1")
        await store.publish("c", b"changed")
        assert await subscription.receive() == [b"changed"]
        assert await other.read("a") == await store.read("a")


async def test_many_operations_are_under_way_at_once(store: Store) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(1000):
            nursery.start_soon(store.push, "q", b"%d" % number)
    found = {(await store.pull("q", 10)).data for _ in range(1000)}
    assert len(found) == 1000


async def test_a_job_is_not_lost_with_whoever_gave_up_waiting_for_it(
    store: Store,
) -> None:
    for number in range(20):
        async with trio.open_nursery() as waiting:
            waiting.start_soon(store.pull, "q", 60)
            await trio.testing.wait_all_tasks_blocked()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.push, "q", b"%d" % number)
                waiting.cancel_scope.cancel()
                nursery.cancel_scope.shield = True
        with trio.fail_after(30):
            job = await store.pull("q", 60)
        assert (job.data, job.attempt) == (b"%d" % number, 1)
        await store.done(job)


async def test_a_worker_comes_back_to_its_parent(
    path: str, nursery: trio.Nursery
) -> None:
    memory = MemoryStore()
    connected = trio.CancelScope()

    async def serve_until_cancelled(task_status: trio.TaskStatus[None]) -> None:
        with connected:
            await serve_store(memory, path, task_status=task_status)

    await nursery.start(serve_until_cancelled)
    worker = ParentStore(path)
    async with worker.running(), worker.subscribe("c") as subscription:
        version = await worker.write("a", b"1")
        connected.cancel()
        with trio.fail_after(30):
            while worker.is_available:
                await trio.sleep(0.01)
        with pytest.raises(StoreUnavailable):
            await worker.read("a")
        Path(path).unlink()
        await nursery.start(serve_store, memory, path)
        with trio.fail_after(30):
            assert await subscription.receive() == []
        assert await worker.read("a") == (b"1", version)
        await worker.publish("c", b"again")
        assert await subscription.receive() == [b"again"]
        assert worker.statistics.reconnections == 1


async def test_a_worker_waits_for_its_parent(path: str, nursery: trio.Nursery) -> None:
    worker = ParentStore(path)
    async with worker.running(), worker.subscribe("c") as subscription:
        with pytest.raises(StoreUnavailable):
            await worker.read("a")
        await nursery.start(serve_store, MemoryStore(), path)
        with trio.fail_after(30):
            assert await subscription.receive() == []
            while not worker.is_available:
                await trio.sleep(0.01)
        assert await worker.read("a") is None
