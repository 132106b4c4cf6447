"""The store in memory."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from mcp_trio.server.limits import read_rate
from mcp_trio.stores.base import MOST_UNREAD, Store
from mcp_trio.stores.memory import MOST_OUTDATED, MemoryStore
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


async def test_memory_does_not_grow_with_the_number_of_writes(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    day = 24 * 3600.0
    for _ in range(2 * MOST_OUTDATED):
        # Like a stream of a session: kept for a day, and for less after its end.
        await store.write("stream", b"", ttl=day)
        await store.append("stream", b"event", entries=9, size=99, ttl=day)
        await store.touch("stream", 60)
        await store.append("stream", b"end", entries=9, size=99, ttl=60)
    # The events, and the times at which they may expire.
    assert len(reachable(store, tuple)) < 1.2 * MOST_OUTDATED
    assert await store.read("stream") is not None
    await trio.sleep(60)
    assert await store.read("stream") is None


async def test_expired_records_are_forgotten(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    for number in range(100):
        await store.write(f"{number}", b"value of %d" % number, ttl=1)
    await trio.sleep(1)
    await store.write("last", b"the last value")
    assert reachable(store, bytes) == [b"the last value"]


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
