"""A log that several processes follow."""

from __future__ import annotations

import pytest
import trio

from mcp_trio.stores import bulletin
from mcp_trio.stores.base import StoreUnavailable
from mcp_trio.stores.bulletin import Bulletin
from mcp_trio.stores.subscription import Inbox
from tests.support.reachable import reachable
from tests.support.shared_sites import SharedMemoryStore


class Follower:
    """What a process has received from a bulletin."""

    def __init__(self, store: SharedMemoryStore) -> None:
        self.received: list[bytes] = []
        self.missed = 0
        self.bulletin = Bulletin(store, "news", ttl=1000)

    def miss(self) -> None:
        self.missed += 1

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        await self.bulletin.follow(
            self.received.append, self.miss, task_status=task_status
        )


@pytest.fixture
def store() -> SharedMemoryStore:
    return SharedMemoryStore()


def note_gaps(store: SharedMemoryStore) -> None:
    """Let all subscribers know that they may have missed something."""
    for inbox in reachable(store, Inbox):
        inbox.note_gap()


async def test_all_followers_receive_the_same_in_the_same_order(
    store: SharedMemoryStore, nursery: trio.Nursery
) -> None:
    await Bulletin(store, "news", ttl=1000).post(b"before")
    followers = [Follower(store), Follower(store)]
    for follower in followers:
        await nursery.start(follower.run)
    for number in range(5):
        await followers[number % 2].bulletin.post(b"%d" % number)
    await trio.testing.wait_all_tasks_blocked()
    for follower in followers:
        assert follower.received == [b"0", b"1", b"2", b"3", b"4"]
        assert not follower.missed


async def test_what_was_posted_while_messages_were_lost_is_read_later(
    store: SharedMemoryStore, nursery: trio.Nursery
) -> None:
    follower = Follower(store)
    await nursery.start(follower.run)
    await follower.bulletin.post(b"0")
    for data in (b"1", b"2"):
        await store.append("news", data, entries=10, size=100, ttl=1000)
    note_gaps(store)
    await trio.testing.wait_all_tasks_blocked()
    assert follower.received == [b"0", b"1", b"2"]
    # A message without the one before it does the same.
    await store.append("news", b"3", entries=10, size=100, ttl=1000)
    await follower.bulletin.post(b"4")
    await trio.testing.wait_all_tasks_blocked()
    assert follower.received == [b"0", b"1", b"2", b"3", b"4"]
    assert not follower.missed


async def test_a_follower_knows_that_entries_are_gone(
    store: SharedMemoryStore, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulletin, "MOST_ENTRIES", 2)
    follower = Follower(store)
    await nursery.start(follower.run)
    await follower.bulletin.post(b"0")
    await trio.testing.wait_all_tasks_blocked()
    for number in range(1, 6):
        await store.append("news", b"%d" % number, entries=2, size=100, ttl=1000)
    note_gaps(store)
    await trio.testing.wait_all_tasks_blocked()
    assert follower.received == [b"0", b"4", b"5"]
    assert follower.missed == 1


async def test_a_log_that_has_expired_is_followed_from_its_beginning(
    store: SharedMemoryStore, nursery: trio.Nursery
) -> None:
    follower = Follower(store)
    await nursery.start(follower.run)
    for number in range(3):
        await follower.bulletin.post(b"%d" % number)
    await trio.testing.wait_all_tasks_blocked()
    await store.delete_log("news")
    await follower.bulletin.post(b"new")
    await trio.testing.wait_all_tasks_blocked()
    assert follower.received == [b"0", b"1", b"2", b"new"]
    assert not follower.missed


class AwayStore(SharedMemoryStore):
    """A store that cannot be reached at first."""

    is_away = True

    async def read_log(self, log: str, after: int = 0):
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().read_log(log, after)


async def test_a_follower_begins_when_the_store_is_there(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    store = AwayStore()
    follower = Follower(store)
    await nursery.start(follower.run)
    await follower.bulletin.post(b"unseen")
    store.is_away = False
    await trio.sleep(5)
    await follower.bulletin.post(b"seen")
    await trio.sleep(1)
    assert follower.received == [b"seen"]
