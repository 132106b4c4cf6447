"""The store in memory."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_trio.server.limits import read_rate
from mcp_trio.stores.base import MOST_UNREAD, Store
from mcp_trio.stores.memory import MemoryStore
from tests.support.reachable import reachable
from tests.support.store_contract import *  # noqa: F403 (the tests of every store)
from tests.support.store_contract import Pace

T = TypeVar("T")


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@pytest.fixture
def pace() -> Pace:
    return lambda seconds: seconds


async def without_waiting(doing: Awaitable[T]) -> T:
    """Return the result of an awaitable that must not wait."""
    with trio.CancelScope() as scope:
        scope.cancel()
        return await doing
    raise AssertionError("it waited")


async def test_records_never_wait(store: Store) -> None:
    await without_waiting(store.write("a", b"1", ttl=5))
    await without_waiting(store.read("a"))
    await without_waiting(store.delete("a"))
    await without_waiting(store.publish("c", b""))
    await without_waiting(store.append("l", b"", entries=1, size=1, ttl=1))
    await without_waiting(store.take("b", read_rate("1/s")))
    await without_waiting(store.push("q", b""))


async def test_expired_records_are_forgotten(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    for number in range(100):
        await store.write(f"{number}", b"value of %d" % number, ttl=1)
    await trio.sleep(1)
    await store.write("last", b"the last value")
    assert reachable(store, bytes) == [b"the last value"]


async def test_expired_logs_are_forgotten(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    for number in range(100):
        entry = b"entry of %d" % number
        await store.append(f"{number}", entry, entries=5, size=100, ttl=1)
    await trio.sleep(1)
    await store.append("last", b"the last entry", entries=5, size=100, ttl=1)
    assert reachable(store, bytes) == [b"the last entry"]


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_many_entries_of_a_log_leave_nothing_behind(
    autojump_clock: MockClock, is_deleted: bool
) -> None:
    store = MemoryStore()
    for number in range(20):
        for _ in range(500):
            await store.append(f"{number}", b"", entries=2, size=100, ttl=86_400)
        # The log expires soon after its end.
        await store.append(f"{number}", b"", entries=2, size=100, ttl=60)
        if is_deleted:
            await store.delete_log(f"{number}")
    await trio.sleep(60)
    await store.write("last", b"the last value", ttl=60)
    assert reachable(store, bytes) == [b"the last value"]
    assert len(reachable(store, tuple)) < 2_000


async def test_a_subscriber_that_is_far_behind_is_told_that_it_missed_something(
    store: Store,
) -> None:
    async with store.subscribe("a") as subscription:
        for number in range(MOST_UNREAD + 5):
            await store.publish("a", b"%d" % number)
        assert await subscription.receive() == []
        received = await subscription.receive()
    assert len(received) == MOST_UNREAD
    assert received[0] == b"5"


async def test_leases_outlive_a_suspension_of_the_process_that_keeps_them(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    store = MemoryStore()
    nursery.start_soon(store.watch_for_suspension)
    lease = await store.acquire("a", 10)
    lost = await store.acquire("b", 10)
    assert lease is not None
    assert lost is not None
    job = await store.push("q", b"1", hold=10)
    assert job is not None
    pulled: list[bytes] = []

    async def pull() -> None:
        pulled.append((await store.pull("q", 10)).data)

    nursery.start_soon(pull)
    await trio.sleep(1.5)
    autojump_clock.jump(60)
    assert await store.acquire("a", 10) is None
    await trio.testing.wait_all_tasks_blocked()
    assert pulled == []
    # Their owners, which could not renew them before, do so now.
    await store.renew(lease, 10)
    await store.renew(job.lease, 15)
    await trio.sleep(9)
    assert await store.acquire("b", 10) is None
    await trio.sleep(1.5)
    assert await store.acquire("b", 10) is not None
    assert pulled == []
    await trio.sleep(5)
    assert pulled == [b"1"]
    nursery.cancel_scope.cancel()
