"""What every store does, shown on the one in memory."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_trio.server.limits import read_rate
from mcp_trio.stores.base import LeaseLost, Store
from mcp_trio.stores.memory import MOST_UNREAD, MemoryStore

T = TypeVar("T")


@pytest.fixture
def store() -> Store:
    return MemoryStore()


async def without_waiting(doing: Awaitable[T]) -> T:
    """Return what an awaitable returns, which must not wait for anything."""
    with trio.CancelScope() as scope:
        scope.cancel()
        return await doing
    raise AssertionError("it waited")


# Records


async def test_a_record_is_read_as_it_was_written(store: Store) -> None:
    assert await store.read("a") is None
    version = await store.write("a", b"1")
    assert await store.read("a") == (b"1", version)


async def test_records_never_wait(store: Store) -> None:
    await without_waiting(store.write("a", b"1", ttl=5))
    await without_waiting(store.read("a"))
    await without_waiting(store.delete("a"))
    await without_waiting(store.publish("c", b""))
    await without_waiting(store.append("l", b"", entries=1, size=1, ttl=1))
    await without_waiting(store.take("b", read_rate("1/s")))
    await without_waiting(store.push("q", b""))


async def test_compare_and_set_refuses_a_stale_version(store: Store) -> None:
    assert await store.write("a", b"1", expected=7) is None
    first = await store.write("a", b"1", expected=0)
    assert await store.write("a", b"2", expected=0) is None
    second = await store.write("a", b"2", expected=first)
    assert second != first
    assert await store.write("a", b"3", expected=first) is None
    assert await store.read("a") == (b"2", second)


async def test_a_version_is_not_used_again_after_a_delete(store: Store) -> None:
    version = await store.write("a", b"1")
    await store.delete("a")
    assert await store.read("a") is None
    assert await store.write("a", b"2", expected=version) is None
    assert await store.write("a", b"2", expected=0) != version


async def test_a_record_expires_after_its_time_to_live(
    store: Store, autojump_clock: MockClock
) -> None:
    await store.write("a", b"1", ttl=10)
    await trio.sleep(9)
    assert await store.read("a") is not None
    await store.write("a", b"2")  # keeps the time that it has
    await trio.sleep(1)
    assert await store.read("a") is None
    assert await store.write("a", b"3", expected=0) is not None


async def test_a_longer_time_to_live_replaces_a_shorter_one(
    store: Store, autojump_clock: MockClock
) -> None:
    await store.write("a", b"1", ttl=1)
    await store.write("a", b"1", ttl=10)
    await trio.sleep(5)
    await store.write("b", b"", ttl=1)
    assert await store.read("a") is not None


async def test_expired_records_are_forgotten(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    for number in range(100):
        await store.write(f"{number}", b"", ttl=1)
    await trio.sleep(1)
    await store.write("last", b"")
    assert len(store._records) == 1


# Logs


async def test_a_log_is_read_from_a_position(store: Store) -> None:
    for data in (b"a", b"b", b"c"):
        last = await store.append("l", data, entries=10, size=100, ttl=10)
    assert last == 3
    page = await store.read_log("l", after=1)
    assert page.entries == [(2, b"b"), (3, b"c")]
    assert page.is_complete
    assert (await store.read_log("l", after=3)).entries == []


@pytest.mark.parametrize(("entries", "size"), [(2, 1000), (1000, 20)])
async def test_a_log_is_bounded_and_says_that_entries_are_gone(
    store: Store, entries: int, size: int
) -> None:
    for data in (b"a" * 10, b"b" * 10, b"c" * 10):
        await store.append("l", data, entries=entries, size=size, ttl=10)
    page = await store.read_log("l")
    assert [entry.position for entry in page.entries] == [2, 3]
    assert not page.is_complete
    assert (await store.read_log("l", after=1)).is_complete


async def test_the_latest_entry_is_kept_even_if_it_is_large(store: Store) -> None:
    await store.append("l", b"a" * 100, entries=5, size=10, ttl=10)
    assert len((await store.read_log("l")).entries) == 1


async def test_a_log_expires_without_new_entries(
    store: Store, autojump_clock: MockClock
) -> None:
    await store.append("l", b"a", entries=5, size=10, ttl=10)
    await trio.sleep(9)
    await store.append("l", b"b", entries=5, size=10, ttl=10)
    await trio.sleep(9)
    assert len((await store.read_log("l")).entries) == 2
    await trio.sleep(1)
    page = await store.read_log("l", after=2)
    assert page == ([], False)


# Channels


async def test_subscribers_receive_what_is_published_meanwhile(store: Store) -> None:
    await store.publish("a", b"early")
    async with store.subscribe("a", "b") as both, store.subscribe("b") as one:
        await store.publish("a", b"1")
        await store.publish("b", b"2")
        await store.publish("c", b"3")
        assert await both.receive() == [b"1", b"2"]
        assert await one.receive() == [b"2"]


async def test_a_subscriber_waits_for_messages(
    store: Store, nursery: trio.Nursery
) -> None:
    received = []

    async def listen(task_status: trio.TaskStatus[None]) -> None:
        async with store.subscribe("a") as subscription:
            task_status.started()
            received.extend(await subscription.receive())

    await nursery.start(listen)
    await wait_all_tasks_blocked()
    await store.publish("a", b"1")
    await wait_all_tasks_blocked()
    assert received == [b"1"]


async def test_a_subscriber_that_is_far_behind_misses_the_oldest(
    store: Store,
) -> None:
    async with store.subscribe("a") as subscription:
        for number in range(MOST_UNREAD + 5):
            await store.publish("a", b"%d" % number)
        received = await subscription.receive()
    assert len(received) == MOST_UNREAD
    assert received[0] == b"5"


# Rates


async def test_a_bucket_refills(store: Store, autojump_clock: MockClock) -> None:
    rate = read_rate("2/s:2")
    assert [await store.take("b", rate) for _ in range(3)] == [0, 0, 0.5]
    assert await store.take("other", rate) == 0
    await trio.sleep(0.5)
    assert await store.take("b", rate) == 0


# Leases


async def test_a_key_is_leased_to_one_at_a_time(
    store: Store, autojump_clock: MockClock
) -> None:
    lease = await store.acquire("a", 10)
    assert lease is not None
    assert await store.acquire("a", 10) is None
    await store.release(lease)
    again = await store.acquire("a", 10)
    assert again is not None
    assert again.token > lease.token


async def test_a_lease_ends_unless_it_is_renewed(
    store: Store, autojump_clock: MockClock
) -> None:
    lease = await store.acquire("a", 10)
    assert lease is not None
    await trio.sleep(9)
    await store.renew(lease, 10)
    await trio.sleep(9)
    assert await store.acquire("a", 10) is None
    await trio.sleep(1)
    assert await store.acquire("a", 10) is not None
    with pytest.raises(LeaseLost):
        await store.renew(lease, 10)


async def test_a_lease_that_nobody_else_was_granted_can_be_renewed_late(
    store: Store, autojump_clock: MockClock
) -> None:
    lease = await store.acquire("a", 10)
    assert lease is not None
    await trio.sleep(20)
    await store.write("result", b"", lease=lease)
    await store.renew(lease, 10)
    assert await store.acquire("a", 10) is None


async def test_a_late_write_under_an_old_lease_is_refused(
    store: Store, autojump_clock: MockClock
) -> None:
    old = await store.acquire("a", 10)
    assert old is not None
    await store.write("result", b"early", lease=old)
    await trio.sleep(10)
    new = await store.acquire("a", 10)
    with pytest.raises(LeaseLost):
        await store.write("result", b"late", lease=old)
    await store.release(old)  # does not end the new one
    await store.write("result", b"right", lease=new)
    record = await store.read("result")
    assert record is not None
    assert record.value == b"right"


# Queues


async def test_items_are_pulled_in_order(store: Store) -> None:
    for data in (b"1", b"2"):
        await store.push("q", data)
    jobs = [await store.pull("q", 10) for _ in range(2)]
    assert [(job.data, job.attempt) for job in jobs] == [(b"1", 1), (b"2", 1)]


async def test_pulling_waits_for_an_item(store: Store, nursery: trio.Nursery) -> None:
    pulled = []

    async def pull() -> None:
        pulled.append((await store.pull("q", 10)).data)

    nursery.start_soon(pull)
    nursery.start_soon(pull)
    await wait_all_tasks_blocked()
    await store.push("q", b"1")
    await store.push("q", b"2")
    await wait_all_tasks_blocked()
    assert sorted(pulled) == [b"1", b"2"]


async def test_an_item_is_pulled_again_after_its_lease(
    store: Store, autojump_clock: MockClock
) -> None:
    await store.push("q", b"1")
    first = await store.pull("q", 10)
    await trio.sleep(5)
    await store.renew(first.lease, 10)
    second = await store.pull("q", 10)
    assert (second.id, second.data, second.attempt) == (first.id, b"1", 2)
    with pytest.raises(LeaseLost):
        await store.write("a", b"", lease=first.lease)
    await store.done(first)  # too late: it belongs to another
    await store.give_back(second)
    assert (await store.pull("q", 10)).attempt == 3


async def test_an_item_that_is_done_does_not_come_back(
    store: Store, autojump_clock: MockClock
) -> None:
    await store.push("q", b"1")
    await store.done(await store.pull("q", 10))
    with trio.move_on_after(100) as waiting:
        await store.pull("q", 10)
    assert waiting.cancelled_caught


async def test_an_item_can_be_held_from_the_start(
    store: Store, autojump_clock: MockClock
) -> None:
    held = await store.push("q", b"1", hold=10)
    assert held is not None
    began = trio.current_time()
    job = await store.pull("q", 10)
    assert trio.current_time() - began == pytest.approx(10)
    assert (job.data, job.attempt) == (b"1", 2)
