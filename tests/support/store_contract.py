"""What every store does. The modules of the stores import these tests.

Each defines the fixtures `store`, `clock` and `pace`. The clock is one that jumps,
which pytest-trio then uses, or None for real time. The pace says how long a second of
these tests is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from mcp_trio.server.limits import read_rate
from mcp_trio.stores.base import Lease, LeaseLost, Store

Pace = Callable[[float], float]


async def until(condition: Callable[[], Awaitable[bool]], pace: Pace) -> None:
    """Wait until a condition is true."""
    with trio.fail_after(pace(20) + 10):
        while not await condition():
            await trio.sleep(pace(0.2))


async def until_gone(store: Store, key: str, pace: Pace) -> None:
    """Wait until a record has expired."""

    async def is_gone() -> bool:
        return await store.read(key) is None

    await until(is_gone, pace)


async def acquire(store: Store, key: str, seconds: float) -> Lease:
    """Lease a key that is free."""
    lease = await store.acquire(key, seconds)
    assert lease is not None
    return lease


async def acquire_when_free(
    store: Store, key: str, seconds: float, pace: Pace
) -> Lease:
    """Lease a key as soon as the lease of another has ended."""
    found = []

    async def is_acquired() -> bool:
        lease = await store.acquire(key, seconds)
        if lease is not None:
            found.append(lease)
        return bool(found)

    await until(is_acquired, pace)
    return found[0]


# Records


async def test_a_record_is_read_as_it_was_written(store: Store) -> None:
    assert await store.read("a") is None
    version = await store.write("a", b"1")
    assert await store.read("a") == (b"1", version)


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
    store: Store, pace: Pace, clock: object
) -> None:
    await store.write("a", b"1", ttl=pace(10))
    await trio.sleep(pace(5))
    assert await store.read("a") is not None
    await store.write("a", b"2")  # keeps the time that it has
    began = trio.current_time()
    await until_gone(store, "a", pace)
    assert trio.current_time() - began < pace(9)
    assert await store.write("a", b"3", expected=0) is not None


async def test_a_longer_time_to_live_replaces_a_shorter_one(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.write("a", b"1", ttl=pace(1))
    await store.write("a", b"1", ttl=pace(10))
    await trio.sleep(pace(5))
    await store.write("b", b"", ttl=pace(1))
    assert await store.read("a") is not None


async def test_a_record_that_is_touched_lives_longer(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.write("a", b"1", ttl=pace(10))
    await trio.sleep(pace(6))
    assert await store.touch("a", pace(10))
    await trio.sleep(pace(6))
    assert await store.read("a") is not None
    await until_gone(store, "a", pace)
    assert not await store.touch("a", pace(10))


# Logs


async def test_a_log_is_read_from_a_position(
    store: Store, pace: Pace, clock: object
) -> None:
    for data in (b"a", b"b", b"c"):
        last = await store.append("l", data, entries=10, size=100, ttl=pace(10))
    assert last == 3
    page = await store.read_log("l", after=1)
    assert page.entries == [(2, b"b"), (3, b"c")]
    assert page.is_complete
    assert (await store.read_log("l", after=3)).entries == []


async def test_several_entries_are_appended_in_one_step(store: Store) -> None:
    assert await store.append("l", b"a", b"b", entries=10, size=100, ttl=10) == 2
    assert await store.append("l", b"c", entries=10, size=100, ttl=10) == 3
    page = await store.read_log("l")
    assert page.entries == [(1, b"a"), (2, b"b"), (3, b"c")]


async def test_entries_with_a_position_are_appended_once(store: Store) -> None:
    for _ in range(2):
        last = await store.append(
            "l", b"a", b"b", entries=10, size=100, ttl=10, position=1
        )
        assert last == 2
    page = await store.read_log("l")
    assert page.entries == [(1, b"a"), (2, b"b")]


async def test_a_log_that_was_lost_goes_on_at_its_position(store: Store) -> None:
    last = await store.append("l", b"c", entries=10, size=100, ttl=10, position=3)
    assert last == 3
    assert await store.read_log("l", after=2) == ([(3, b"c")], True)
    assert not (await store.read_log("l", after=1)).is_complete


async def test_entries_under_an_old_lease_are_refused(store: Store) -> None:
    old = await acquire(store, "a", 10)
    await store.append("l", b"a", entries=10, size=100, ttl=10, lease=old)
    await store.release(old)
    new = await acquire(store, "a", 10)
    with pytest.raises(LeaseLost):
        await store.append("l", b"b", entries=10, size=100, ttl=10, lease=old)
    await store.append("l", b"c", entries=10, size=100, ttl=10, lease=new)
    page = await store.read_log("l")
    assert [entry.data for entry in page.entries] == [b"a", b"c"]


async def test_a_log_that_was_deleted_begins_again(store: Store) -> None:
    await store.append("l", b"a", entries=10, size=100, ttl=10)
    await store.delete_log("l")
    await store.delete_log("l")
    assert (await store.read_log("l")).entries == []
    assert await store.append("l", b"b", entries=10, size=100, ttl=10) == 1


@pytest.mark.parametrize(("entries", "size"), [(2, 1000), (1000, 20)])
async def test_a_log_is_bounded_and_says_that_entries_are_gone(
    store: Store, pace: Pace, clock: object, entries: int, size: int
) -> None:
    for data in (b"a" * 10, b"b" * 10, b"c" * 10):
        await store.append("l", data, entries=entries, size=size, ttl=pace(10))
    page = await store.read_log("l")
    assert [entry.position for entry in page.entries] == [2, 3]
    assert not page.is_complete
    assert (await store.read_log("l", after=1)).is_complete


async def test_the_latest_entry_is_kept_even_if_it_is_large(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.append("l", b"a" * 100, entries=5, size=10, ttl=pace(10))
    assert len((await store.read_log("l")).entries) == 1


async def test_a_log_expires_without_new_entries(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.append("l", b"a", entries=5, size=10, ttl=pace(10))
    await trio.sleep(pace(6))
    await store.append("l", b"b", entries=5, size=10, ttl=pace(10))
    await trio.sleep(pace(6))
    assert len((await store.read_log("l")).entries) == 2

    async def is_gone() -> bool:
        return await store.read_log("l", after=2) == ([], False)

    await until(is_gone, pace)


async def test_a_log_is_kept_for_longer_by_appending_nothing(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.append("l", b"a", b"b", entries=5, size=10, ttl=pace(10))
    await trio.sleep(pace(6))
    assert await store.append("l", entries=5, size=10, ttl=pace(10)) == 2
    await trio.sleep(pace(6))
    assert await store.read_log("l") == ([(1, b"a"), (2, b"b")], True)
    assert await store.append("new", entries=5, size=10, ttl=pace(10)) == 0
    assert await store.read_log("new") == ([], True)


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
    async with store.subscribe("a") as subscription:
        nursery.start_soon(store.publish, "a", b"1")
        assert await subscription.receive() == [b"1"]


# Rates


async def test_a_bucket_refills(store: Store, clock: object) -> None:
    rate = read_rate("2/s:2")
    assert [await store.take("b", rate) for _ in range(2)] == [0, 0]
    assert 0 < await store.take("b", rate) <= 0.5
    assert await store.take("other", rate) == 0
    await trio.sleep(0.55)
    assert await store.take("b", rate) == 0


async def test_parts_of_a_token_are_taken_and_put_back(store: Store) -> None:
    rate = read_rate("1/h:2")
    assert [await store.take("b", rate, 0.5) for _ in range(4)] == [0] * 4
    assert await store.take("b", rate, 0.5) > 0
    assert await store.take("b", rate, -1) == 0
    assert [await store.take("b", rate, 0.25) for _ in range(4)] == [0] * 4
    assert await store.take("b", rate) > 0
    # A bucket never has more than its burst.
    assert await store.take("b", rate, -5) == 0
    assert [await store.take("b", rate) for _ in range(2)] == [0, 0]
    assert await store.take("b", rate) > 0


# Leases


async def test_a_key_is_leased_to_one_at_a_time(store: Store) -> None:
    lease = await acquire(store, "a", 10)
    assert await store.acquire("a", 10) is None
    await store.release(lease)
    again = await acquire(store, "a", 10)
    assert again.token > lease.token


async def test_a_lease_that_was_released_is_lost(store: Store) -> None:
    lease = await acquire(store, "a", 10)
    await store.release(lease)
    with pytest.raises(LeaseLost):
        await store.renew(lease, 10)
    with pytest.raises(LeaseLost):
        await store.write("result", b"", lease=lease)
    assert await store.read("result") is None
    await store.release(lease)


async def test_a_lease_ends_unless_it_is_renewed(
    store: Store, pace: Pace, clock: object
) -> None:
    lease = await acquire(store, "a", pace(10))
    await trio.sleep(pace(6))
    await store.renew(lease, pace(10))
    await trio.sleep(pace(6))
    assert await store.acquire("a", pace(10)) is None
    await acquire_when_free(store, "a", pace(10), pace)
    with pytest.raises(LeaseLost):
        await store.renew(lease, pace(10))


async def test_a_lease_that_nobody_else_was_granted_can_be_renewed_late(
    store: Store, pace: Pace, clock: object
) -> None:
    lease = await acquire(store, "a", pace(5))
    await trio.sleep(pace(12))
    await store.write("result", b"", lease=lease)
    await store.renew(lease, 10)
    assert await store.acquire("a", pace(1)) is None


async def test_a_late_write_under_an_old_lease_is_refused(
    store: Store, pace: Pace, clock: object
) -> None:
    old = await acquire(store, "a", pace(5))
    await store.write("result", b"early", lease=old)
    new = await acquire_when_free(store, "a", pace(5), pace)
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
    send, receive = trio.open_memory_channel[bytes](2)

    async def pull() -> None:
        job = await store.pull("q", 10)
        await send.send(job.data)

    nursery.start_soon(pull)
    nursery.start_soon(pull)
    await store.push("q", b"1")
    await store.push("q", b"2")
    pulled = [await receive.receive(), await receive.receive()]
    assert sorted(pulled) == [b"1", b"2"]


async def test_an_item_is_pulled_again_after_its_lease(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.push("q", b"1")
    first = await store.pull("q", pace(10))
    await store.begin(first)
    await trio.sleep(pace(5))
    await store.renew(first.lease, pace(10))
    began = trio.current_time()
    second = await store.pull("q", pace(10))
    assert trio.current_time() - began > pace(6)
    assert (second.id, second.data, second.attempt) == (first.id, b"1", 2)
    with pytest.raises(LeaseLost):
        await store.write("a", b"", lease=first.lease)
    with pytest.raises(LeaseLost):
        await store.begin(first)
    await store.done(first)  # too late: it belongs to another
    await store.begin(second)
    await store.begin(second)  # counts once
    await store.give_back(second)
    third = await store.pull("q", pace(10))
    assert (third.id, third.attempt) == (first.id, 2)


async def test_an_item_stays_with_its_holder_until_it_is_pulled_again(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.push("q", b"1")
    late = await store.pull("q", pace(2))
    await trio.sleep(pace(10))
    await store.push("q", b"2")
    await store.renew(late.lease, 10)
    assert (await store.pull("q", 10)).data == b"2"
    await store.done(late)
    with pytest.raises(LeaseLost):
        await store.renew(late.lease, 10)


async def test_only_those_who_began_an_item_count_as_attempts(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.push("q", b"1")
    for _ in range(2):
        # Whoever has pulled it is lost before it begins.
        assert (await store.pull("q", pace(2))).attempt == 1
    job = await store.pull("q", pace(2))
    await store.give_back(job)
    begun = await store.pull("q", pace(2))
    assert begun.attempt == 1
    await store.begin(begun)
    assert (await store.pull("q", pace(2))).attempt == 2


async def test_whoever_waited_before_an_item_was_leased_takes_it_over(
    store: Store, pace: Pace, clock: object, nursery: trio.Nursery
) -> None:
    send, receive = trio.open_memory_channel[int](2)

    async def pull() -> None:
        job = await store.pull("q", pace(2))
        await send.send(job.lease.token)

    nursery.start_soon(pull)
    nursery.start_soon(pull)
    await trio.sleep(pace(1))
    await store.push("q", b"1")
    first = await receive.receive()
    with trio.fail_after(pace(20) + 10):
        assert await receive.receive() > first


async def test_an_item_that_is_done_is_not_delivered_again(
    store: Store, pace: Pace, clock: object
) -> None:
    await store.push("q", b"1")
    await store.done(await store.pull("q", pace(2)))
    with trio.move_on_after(pace(10)) as waiting:
        await store.pull("q", pace(2))
    assert waiting.cancelled_caught


async def test_an_item_can_be_held_from_the_start(
    store: Store, pace: Pace, clock: object
) -> None:
    held = await store.push("q", b"1", hold=pace(10))
    assert held is not None
    assert (held.data, held.attempt) == (b"1", 1)
    began = trio.current_time()
    job = await store.pull("q", pace(10))
    assert trio.current_time() - began > pace(5)
    assert (job.data, job.attempt) == (b"1", 2)
