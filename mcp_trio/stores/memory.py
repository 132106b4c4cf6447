"""The store in the memory of this process."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

import trio
from msgspec import Struct

from ..server.limiter import Buckets
from ..server.limits import Rate
from ..server.shared_state import StoreStatistics
from .base import Entry, Lease, LeaseLost, LogPage, QueuedJob, Record
from .subscription import Inbox

# Outdated entries of the heap of expiries that are kept, besides one for each record
# and each log.
MOST_OUTDATED = 1000


class _Stored(Struct):
    value: bytes
    version: int
    expires: float


class _Log(Struct):
    entries: deque[Entry]
    expires: float
    size: int = 0
    last: int = 0  # the position of the latest entry


class _Queued(Struct):
    """An item of a queue. It is leased if `lease` is set and has not expired.

    `attempts` is how often it was begun, and `is_begun` whether it was under the lease.
    """

    id: str
    data: bytes
    attempts: int = 0
    is_begun: bool = False
    lease: Lease | None = None


class _Queue(Struct):
    waiting: deque[_Queued]
    leased: dict[str, _Queued]
    changed: trio.lowlevel.ParkingLot


class MemoryStore:
    """A store in the memory of this process, which does not outlive it."""

    is_shared = False
    is_available = True

    def __init__(self) -> None:
        self.statistics = StoreStatistics()
        self._records: dict[str, _Stored] = {}
        # A heap of the times at which records and logs expire. If the time to live was
        # extended, the old entry is ignored.
        self._expiries: list[tuple[float, str]] = []
        self._logs: dict[str, _Log] = {}
        self._subscriptions: dict[str, set[Inbox]] = {}
        self._buckets = Buckets()
        # Key -> its lease, and when that expires. Tokens are never reused.
        self._leases: dict[str, tuple[Lease, float]] = {}
        self._tokens = count(1)
        self._versions = count(1)
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Use the store inside this block."""
        yield

    # Records

    async def read(self, key: str) -> Record | None:
        """Return the record under a key, unless it has expired."""
        stored = self._records.get(key)
        if stored is None or stored.expires <= trio.current_time():
            return None
        return Record(stored.value, stored.version)

    async def write(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None = None,
        expected: int | None = None,
        lease: Lease | None = None,
    ) -> int | None:
        """Write a record, and return its version. See `Store.write`."""
        now = trio.current_time()
        self._forget_expired(now)
        if lease is not None:
            self._check_lease(lease)
        stored = self._records.get(key)
        version = 0 if stored is None else stored.version
        if expected is not None and expected != version:
            return None
        expires = inf if stored is None else stored.expires
        if ttl is not None:
            expires = now + ttl
        version = next(self._versions)
        self._records[key] = _Stored(value, version, expires)
        if ttl is not None:
            self._note_expiry(key, expires)
        return version

    async def touch(self, key: str, ttl: float) -> bool:
        """Set a record's time to live. Returns False if the record does not exist."""
        now = trio.current_time()
        self._forget_expired(now)
        stored = self._records.get(key)
        if stored is None:
            return False
        stored.expires = now + ttl
        self._note_expiry(key, stored.expires)
        return True

    async def delete(self, key: str) -> None:
        """Delete a record, if it exists."""
        self._records.pop(key, None)
        self._forget_expired(trio.current_time())

    def _note_expiry(self, key: str, expires: float) -> None:
        """Note when a record or a log expires.

        A log that is appended to often, or that ends early, leaves outdated entries. If
        there are too many, the heap is built again.
        """
        heappush(self._expiries, (expires, key))
        kept = len(self._records) + len(self._logs)
        if len(self._expiries) > 2 * kept + MOST_OUTDATED:
            records = [(each.expires, name) for name, each in self._records.items()]
            logs = [(each.expires, name) for name, each in self._logs.items()]
            self._expiries = records + logs
            heapify(self._expiries)

    def _forget_expired(self, now: float) -> None:
        expiries = self._expiries
        while expiries and expiries[0][0] <= now:
            _, key = heappop(expiries)
            record = self._records.get(key)
            if record is not None and record.expires <= now:
                del self._records[key]
            log = self._logs.get(key)
            if log is not None and log.expires <= now:
                del self._logs[key]

    # Logs

    async def append(
        self,
        log: str,
        *data: bytes,
        entries: int,
        size: int,
        ttl: float,
        position: int | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Append entries to a log, and return its last position. See `Store.append`."""
        now = trio.current_time()
        self._forget_expired(now)
        if lease is not None:
            self._check_lease(lease)
        kept = self._logs.get(log)
        if kept is None:
            kept = self._logs[log] = _Log(deque(), inf)
        if position is not None:
            if kept.last >= position:
                return kept.last
            kept.last = position - 1
        for entry in data:
            kept.last += 1
            kept.size += len(entry)
            kept.entries.append(Entry(kept.last, entry))
        while len(kept.entries) > 1:
            if len(kept.entries) <= entries and kept.size <= size:
                break
            kept.size -= len(kept.entries.popleft().data)
        kept.expires = now + ttl
        self._note_expiry(log, kept.expires)
        return kept.last

    async def delete_log(self, log: str) -> None:
        """Delete a log, if it exists."""
        self._logs.pop(log, None)

    async def read_log(self, log: str, after: int = 0) -> LogPage:
        """Return the entries of a log after a position."""
        kept = self._logs.get(log)
        if kept is None or kept.expires <= trio.current_time():
            return LogPage([], is_complete=after == 0)
        if not kept.entries:
            return LogPage([], is_complete=after == 0)
        later = [entry for entry in kept.entries if entry.position > after]
        return LogPage(later, is_complete=kept.entries[0].position <= after + 1)

    # Channels

    async def publish(self, channel: str, message: bytes) -> None:
        """Send a message to the current subscribers of a channel."""
        for subscription in self._subscriptions.get(channel, ()):
            subscription.deliver(message)

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[Inbox]:
        """Subscribe to channels inside this block."""
        subscription = Inbox()
        for channel in channels:
            self._subscriptions.setdefault(channel, set()).add(subscription)
        try:
            yield subscription
        finally:
            for channel in channels:
                subscribed = self._subscriptions[channel]
                subscribed.remove(subscription)
                if not subscribed:
                    del self._subscriptions[channel]

    # Rates

    async def take(self, bucket: str, rate: Rate, weight: float = 1.0) -> float:
        """Take from a bucket. See `Store.take`."""
        found = self._buckets.get_or_create(bucket, rate)
        wait = found.wait(trio.current_time(), weight)
        if not wait:
            found.tokens = min(rate.burst, found.tokens - weight)
        return wait

    # Leases

    async def acquire(self, key: str, seconds: float) -> Lease | None:
        """Lease a key. Returns None if it is already leased."""
        now = trio.current_time()
        if self._is_leased(key, now):
            return None
        return self._grant(key, now + seconds)

    async def renew(self, lease: Lease, seconds: float) -> None:
        """Extend a lease to so many seconds from now. Raises LeaseLost."""
        self._check_lease(lease)
        self._leases[lease.key] = (lease, trio.current_time() + seconds)

    async def release(self, lease: Lease) -> None:
        """Release a lease. Does nothing if it was already released or lost."""
        held = self._leases.get(lease.key)
        if held is not None and held[0] == lease:
            del self._leases[lease.key]

    def _grant(self, key: str, until: float) -> Lease:
        lease = Lease(key, next(self._tokens))
        self._leases[key] = (lease, until)
        return lease

    def _is_leased(self, key: str, now: float) -> bool:
        held = self._leases.get(key)
        return held is not None and held[1] > now

    def _check_lease(self, lease: Lease) -> None:
        held = self._leases.get(lease.key)
        if held is None or held[0] != lease:
            raise LeaseLost(lease.key)

    # Queues

    async def push(
        self, queue: str, data: bytes, *, hold: float | None = None
    ) -> QueuedJob | None:
        """Add an item to a queue. See `Store.push`."""
        items = self._queue(queue)
        item = _Queued(f"{queue}-{next(self._versions)}", data)
        if hold is not None:
            job = self._lease_item(queue, item, hold)
            await self.begin(job)
            return job
        items.waiting.append(item)
        items.changed.unpark()
        return None

    async def pull(self, queue: str, seconds: float) -> QueuedJob:
        """Wait for an item, and lease it for so many seconds. See `Store.pull`."""
        items = self._queue(queue)
        while True:
            item = self._expired_item(items)
            if item is None and items.waiting:
                item = items.waiting.popleft()
            if item is not None:
                return self._lease_item(queue, item, seconds)
            with trio.move_on_at(self._next_end(items)):
                await items.changed.park()

    async def begin(self, job: QueuedJob) -> None:
        """Note that an item is begun. Raises LeaseLost."""
        self._check_lease(job.lease)
        item = self._queue(job.queue).leased[job.id]
        if not item.is_begun:
            item.is_begun = True
            item.attempts += 1

    async def done(self, job: QueuedJob) -> None:
        """Remove an item from its queue."""
        item = self._queue(job.queue).leased.get(job.id)
        if item is not None and item.lease == job.lease:
            del self._queue(job.queue).leased[job.id]
        await self.release(job.lease)

    async def give_back(self, job: QueuedJob) -> None:
        """Return an item to its queue, as if it had not been pulled."""
        items = self._queue(job.queue)
        item = items.leased.get(job.id)
        if item is not None and item.lease == job.lease:
            del items.leased[job.id]
            if item.is_begun:
                item.attempts -= 1
            items.waiting.append(item)
            items.changed.unpark()
        await self.release(job.lease)

    def _queue(self, queue: str) -> _Queue:
        if queue not in self._queues:
            lot = trio.lowlevel.ParkingLot()
            self._queues[queue] = _Queue(deque(), {}, lot)
        return self._queues[queue]

    def _lease_item(self, queue: str, item: _Queued, seconds: float) -> QueuedJob:
        item.is_begun = False
        item.lease = self._grant(item.id, trio.current_time() + seconds)
        items = self._queue(queue)
        items.leased[item.id] = item
        # Others that wait have to take it over if this lease ends.
        items.changed.unpark_all()
        return QueuedJob(queue, item.id, item.data, item.attempts + 1, item.lease)

    def _expired_item(self, items: _Queue) -> _Queued | None:
        """Return an item whose lease has expired, or None."""
        now = trio.current_time()
        for item in items.leased.values():
            if not self._is_leased(item.id, now):
                return item
        return None

    def _next_end(self, items: _Queue) -> float:
        """Return when the next lease of an item expires."""
        ends = [self._leases[id][1] for id in items.leased if id in self._leases]
        return min(ends, default=inf)
