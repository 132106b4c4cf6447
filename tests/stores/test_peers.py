"""The processes of one server that share a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from mcp_trio.stores.base import LogPage, StoreUnavailable
from mcp_trio.stores.peer_messages import AnyMessage, SessionEnded, StreamGrew
from mcp_trio.stores.peers import (
    INTRODUCTION_TIMEOUT,
    LEASE,
    Identity,
    Peers,
    process_of,
)
from tests.support.reachable import reachable
from tests.support.shared_sites import PartedStore, SharedMemoryStore


class Heard:
    """What an observer was called with."""

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []
        self.lost: list[str] = []

    def on_message(self, message: AnyMessage) -> None:
        self.messages.append(message)

    def on_messages_missed(self) -> None:
        raise AssertionError("nothing was lost")

    def on_identity_lost(self, identity: Identity) -> None:
        self.lost.append(identity.id)


@asynccontextmanager
async def process(store: SharedMemoryStore) -> AsyncIterator[tuple[Peers, Heard]]:
    peers = Peers(store, "server")
    heard = Heard()
    peers.observe(heard)
    async with peers.running():
        yield peers, heard


async def test_messages_reach_all_processes_or_one(autojump_clock: MockClock) -> None:
    store = SharedMemoryStore()
    async with process(store) as (a, at_a), process(store) as (b, at_b):
        to_all = SessionEnded("s")
        to_b = StreamGrew("s", "t")
        await a.post(to_all)
        await a.send(b.identity.id, to_b)
        await a.send("nobody", to_b)
        await trio.sleep(1)
        assert at_a.messages == [to_all]
        assert sorted(map(repr, at_b.messages)) == sorted(map(repr, [to_all, to_b]))
    assert [text for text in reachable(store, str) if "nobody" in text] == []


async def test_a_process_that_lives_is_never_lost(autojump_clock: MockClock) -> None:
    store = SharedMemoryStore()
    async with process(store) as (a, at_a), process(store) as (b, _):
        for _ in range(30):
            await trio.sleep(LEASE / 3)
            assert not await b.is_lost(a.identity.id)
            assert await b.exists(a.identity.id)
        assert at_a.lost == []


async def test_a_process_that_was_killed_is_lost_after_its_lease(
    autojump_clock: MockClock,
) -> None:
    store = SharedMemoryStore()
    async with process(store) as (b, _):
        with trio.CancelScope() as killed:
            async with process(store) as (a, _):
                name = a.new_name()
                killed.cancel()
                await trio.sleep_forever()
        assert not await b.is_lost(process_of(name))
        await trio.sleep(LEASE + 1)
        assert await b.is_lost(process_of(name))


async def test_a_process_that_stops_is_lost_at_once(autojump_clock: MockClock) -> None:
    store = SharedMemoryStore()
    async with process(store) as (b, _):
        async with process(store) as (a, _):
            id = a.identity.id
        assert await b.is_lost(id)
        assert not await b.exists(id)


async def test_a_process_that_was_declared_lost_goes_on_as_another(
    autojump_clock: MockClock,
) -> None:
    shared = SharedMemoryStore()
    parted = PartedStore(shared)
    async with process(parted) as (a, at_a), process(shared) as (b, _):
        old = a.identity
        parted.is_cut_off = True
        await trio.sleep(2 * LEASE)
        assert await b.is_lost(old.id)
        assert at_a.lost == []
        parted.is_cut_off = False
        await trio.sleep(1)
        assert at_a.lost == [old.id]
        assert a.identity is not old
        await trio.sleep(2 * LEASE)
        assert not await b.is_lost(a.identity.id)


async def test_a_process_that_turns_out_lost_has_another_id_at_once(
    autojump_clock: MockClock,
) -> None:
    store = SharedMemoryStore()
    async with process(store) as (a, at_a), process(store) as (b, _):
        old = a.identity
        for _ in range(2):  # several streams may find out
            a.lose(old)
            new = a.identity
            assert new is not old
            await a.wait_until_known()
            assert new.known.is_set()
        assert a.identity is new
        assert at_a.lost == [old.id]
        message = StreamGrew("s", "t")
        await b.send(new.id, message)
        await trio.sleep(1)
        assert at_a.messages == [message]


async def test_a_process_that_was_cut_off_in_vain_keeps_its_name(
    autojump_clock: MockClock,
) -> None:
    shared = SharedMemoryStore()
    parted = PartedStore(shared)
    async with process(parted) as (a, at_a):
        id = a.identity.id
        parted.is_cut_off = True
        await trio.sleep(2 * LEASE)
        parted.is_cut_off = False
        await trio.sleep(2 * LEASE)
        assert a.identity.id == id
        assert at_a.lost == []


async def test_a_process_has_its_lease_only_when_others_can_send_to_it(
    autojump_clock: MockClock,
) -> None:
    shared = SharedMemoryStore()
    parted = PartedStore(shared)
    parted.is_cut_off = True
    async with process(shared) as (b, _), process(parted) as (a, at_a):
        assert not a.identity.known.is_set()
        assert not await b.exists(a.identity.id)
        with trio.fail_after(INTRODUCTION_TIMEOUT + 0.1):
            await a.wait_until_known()
        assert not a.identity.known.is_set()
        parted.is_cut_off = False
        await a.wait_until_known()
        # That it did not exist a moment ago must not be remembered.
        message = StreamGrew("s", "t")
        await b.send(a.identity.id, message)
        await trio.sleep(1)
        assert at_a.messages == [message]


class UnreadableStore(PartedStore):
    """A store whose logs one process cannot read for a while."""

    is_unreadable = True

    async def read_log(self, log: str, after: int = 0) -> LogPage:
        """Read a log, unless it is unreadable."""
        if self.is_unreadable:
            raise StoreUnavailable("unreadable")
        return await super().read_log(log, after)


async def test_a_process_receives_what_was_sent_before_it_could_read(
    autojump_clock: MockClock,
) -> None:
    shared = SharedMemoryStore()
    parted = UnreadableStore(shared)
    async with process(shared) as (b, _), process(parted) as (a, at_a):
        await a.identity.known.wait()
        message = StreamGrew("s", "t")
        await b.send(a.identity.id, message)
        parted.is_unreadable = False
        await trio.sleep(1)
        assert at_a.messages == [message]
