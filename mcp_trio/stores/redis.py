"""The store in Redis, which processes on several machines can share.

It uses plain Redis types, under keys with a common prefix:

    PREFIX:record:KEY        a hash: the value (v) and its version (n)
    PREFIX:versions          the number of the latest version of any record
    PREFIX:log:KEY           a stream
    PREFIX:log-counts:KEY    a hash: the last position, and the size in bytes
    PREFIX:bucket:KEY        a hash: tokens, and when they were counted
    PREFIX:lease:KEY         a hash: see `redis_scripts`
    PREFIX:tokens            the number of the latest lease
    PREFIX:queue:NAME:PART   data, attempts, waiting, leased: see `redis_scripts`
    PREFIX:queue:NAME:puller:X  a hash: the latest item (id) that X has leased (t)
    PREFIX:channel:NAME      a channel
    PREFIX:probe             written to check whether Redis accepts writes

Some scripts compute keys, so Redis Cluster is not supported.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import trio
from coredis import Redis
from msgspec import Struct

from ..server.limits import Rate
from ..server.shared_state import StoreStatistics
from . import redis_scripts as scripts
from .base import Entry, Lease, LeaseLost, LogPage, QueuedJob, Record, StoreUnavailable
from .redis_connection import RedisConnection, parse_redis_url
from .subscription import Inbox

# Milliseconds after which an expired lease is deleted.
REMEMBERED = 24 * 3600 * 1000
# Seconds between two polls of a queue, in addition to those after a notification.
POLL_INTERVAL = 2.0

# A key or an argument of a script.
Value: TypeAlias = str | bytes | int | float


class _Puller(Struct):
    """A consumer of a queue, which pulls one item at a time.

    If the connection is lost after Redis has leased an item, the puller gets the same
    item again. So a job that was never started is not reported as lost.
    """

    name: str
    received: int = 0  # the token of the latest item


class RedisStore:
    """A store in a Redis server, version 6.2 or later, or in Valkey.

    `url` is redis:// or rediss://, with `?prefix=NAME`. Raises ValueError.
    """

    is_shared = True

    def __init__(self, url: str) -> None:
        self.statistics = StoreStatistics()
        self._address = parse_redis_url(url)
        self._connection = RedisConnection(self._address, self.statistics)
        self._client: Redis[bytes] | None = None
        # Queue -> its pullers that are idle.
        self._pullers: dict[str, list[_Puller]] = {}

    def __repr__(self) -> str:
        return f"<RedisStore {self._address.name}>"

    @property
    def is_available(self) -> bool:
        """Whether Redis responded to the latest command."""
        return self._connection.is_available

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stay connected inside this block."""
        self._connection = RedisConnection(self._address, self.statistics)
        async with self._connection.running() as self._client:
            yield

    # Records

    async def read(self, key: str) -> Record | None:
        """Return the record under a key, unless it has expired."""
        client = self._connected()
        stored = await self._connection.run(
            lambda: client.hmget(self._key("record", key), ["v", "n"])
        )
        value, version = stored
        if value is None or version is None:
            return None
        return Record(value, int(version))

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
        lease_key = "" if lease is None else lease.key
        version = await self._script(
            scripts.WRITE,
            [
                self._key("record", key),
                self._key("versions"),
                self._key("lease", lease_key),
            ],
            value,
            "" if ttl is None else _milliseconds(ttl),
            "" if expected is None else expected,
            "" if lease is None else lease.token,
        )
        if version == -1:
            raise LeaseLost(lease_key)
        return version or None

    async def touch(self, key: str, ttl: float) -> bool:
        """Set a record's time to live. Returns False if the record does not exist."""
        client = self._connected()
        return await self._connection.run(
            lambda: client.pexpire(self._key("record", key), _milliseconds(ttl))
        )

    async def delete(self, key: str) -> None:
        """Delete a record, if it exists."""
        client = self._connected()
        await self._connection.run(lambda: client.delete([self._key("record", key)]))

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
        lease_key = "" if lease is None else lease.key
        last: int = await self._script(
            scripts.APPEND,
            [*self._log_keys(log), self._key("lease", lease_key)],
            entries,
            size,
            _milliseconds(ttl),
            "" if position is None else position,
            "" if lease is None else lease.token,
            *data,
        )
        if last == -1:
            raise LeaseLost(lease_key)
        return last

    async def delete_log(self, log: str) -> None:
        """Delete a log, if it exists."""
        client = self._connected()
        await self._connection.run(lambda: client.delete(self._log_keys(log)))

    def _log_keys(self, log: str) -> list[str]:
        return [self._key("log", log), self._key("log-counts", log)]

    async def read_log(self, log: str, after: int = 0) -> LogPage:
        """Return the entries of a log after a position."""
        keys = [self._key("log", log)]
        oldest, *found = await self._script(scripts.READ_LOG, keys, after + 1)
        if not oldest:
            return LogPage([], is_complete=after == 0)
        pairs = zip(found[::2], found[1::2], strict=True)
        entries = [Entry(position, data) for position, data in pairs]
        return LogPage(entries, is_complete=oldest <= after + 1)

    # Channels

    async def publish(self, channel: str, message: bytes) -> None:
        """Send a message to the current subscribers of a channel."""
        client = self._connected()
        await self._connection.run(
            lambda: client.publish(self._key("channel", channel), message)
        )

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[Inbox]:
        """Subscribe to channels inside this block."""
        names = [self._key("channel", channel) for channel in channels]
        async with self._connection.subscribe(names) as inbox:
            yield inbox

    # Rates

    async def take(self, bucket: str, rate: Rate, weight: float = 1.0) -> float:
        """Take from a bucket. See `Store.take`."""
        # The key contains the rate, so that a different rate starts with a full bucket.
        keys = [self._key("bucket", f"{rate.number}/{rate.unit}:{rate.burst}:{bucket}")]
        left = float(
            await self._script(scripts.TAKE, keys, rate.each_second, rate.burst, weight)
        )
        missing = weight - left
        if missing <= 1e-6:
            return 0.0
        tenths = math.ceil(missing / rate.each_second * 10 - 1e-6)
        return max(tenths / 10, 0.1)

    # Leases

    async def acquire(self, key: str, seconds: float) -> Lease | None:
        """Lease a key. Returns None if it is already leased."""
        token = await self._script(
            scripts.ACQUIRE,
            [self._key("lease", key), self._key("tokens")],
            _milliseconds(seconds),
            REMEMBERED,
            self._may_take_over(seconds),
        )
        return Lease(key, token) if token else None

    async def renew(self, lease: Lease, seconds: float) -> None:
        """Extend a lease to so many seconds from now. Raises LeaseLost."""
        is_held = await self._script(
            scripts.RENEW,
            [self._key("lease", lease.key)],
            lease.token,
            _milliseconds(seconds),
            REMEMBERED,
            lease.key,
        )
        if not is_held:
            raise LeaseLost(lease.key)

    async def release(self, lease: Lease) -> None:
        """Release a lease. Does nothing if it was already released or lost."""
        await self._script(
            scripts.RELEASE, [self._key("lease", lease.key)], lease.token
        )

    def _may_take_over(self, seconds: float) -> int:
        """Return 1 if this process may take over expired leases, else 0.

        Nobody could renew a lease while Redis was unavailable. So after reconnecting,
        their holders get the time of a full lease to renew them.
        """
        connected = trio.current_time() - self._connection.connected_since
        return int(connected >= seconds)

    # Queues

    async def push(
        self, queue: str, data: bytes, *, hold: float | None = None
    ) -> QueuedJob | None:
        """Add an item to a queue. See `Store.push`."""
        id = f"{queue}-{secrets.token_hex(8)}"
        found = await self._script(
            scripts.PUSH,
            [*self._queue_keys(queue), self._key("tokens"), self._key("lease", id)],
            id,
            data,
            "" if hold is None else _milliseconds(hold),
            REMEMBERED,
        )
        if hold is not None:
            return _job(queue, found)
        await self._announce(queue)
        return None

    async def pull(self, queue: str, seconds: float) -> QueuedJob:
        """Wait for an item, and lease it for so many seconds. See `Store.pull`."""
        pullers = self._pullers.setdefault(queue, [])
        puller = pullers.pop() if pullers else _Puller(secrets.token_hex(8))
        try:
            async with self.subscribe(f"queue:{queue}") as changes:
                while True:
                    # If this were cancelled after the lease, the job would be lost.
                    with trio.CancelScope(shield=True):
                        found = await self._pull_now(queue, seconds, puller)
                    if isinstance(found, QueuedJob):
                        puller.received = found.lease.token
                        return found
                    with trio.move_on_after(found):
                        await changes.receive()
        finally:
            pullers.append(puller)

    async def _pull_now(
        self, queue: str, seconds: float, puller: _Puller
    ) -> QueuedJob | float:
        """Lease an item, or return the seconds until the next poll if none is ready."""
        found = await self._script(
            scripts.PULL,
            [
                *self._queue_keys(queue),
                self._key("tokens"),
                self._key("queue", f"{queue}:puller:{puller.name}"),
            ],
            _milliseconds(seconds),
            REMEMBERED,
            self._key("lease", ""),
            self._may_take_over(seconds),
            puller.received,
        )
        if not isinstance(found, int):
            return _job(queue, found)
        if found <= 0:  # none is leased, or this process may not yet take it over
            return POLL_INTERVAL
        return min(found / 1000 + 0.01, POLL_INTERVAL)

    async def begin(self, job: QueuedJob) -> None:
        """Note that an item is begun. Raises LeaseLost."""
        keys = [self._key("queue", f"{job.queue}:attempts"), self._key("lease", job.id)]
        if not await self._script(scripts.BEGIN, keys, job.id, job.lease.token):
            raise LeaseLost(job.id)

    async def done(self, job: QueuedJob) -> None:
        """Remove an item from its queue."""
        await self._end_job(job, is_done=True)

    async def give_back(self, job: QueuedJob) -> None:
        """Return an item to its queue, as if it had not been pulled."""
        if await self._end_job(job, is_done=False):
            await self._announce(job.queue)

    async def _end_job(self, job: QueuedJob, *, is_done: bool) -> bool:
        """End the lease of an item. Returns False if the lease was lost."""
        keys = [*self._queue_keys(job.queue), self._key("lease", job.id)]
        return bool(
            await self._script(
                scripts.FINISH, keys, job.id, job.lease.token, int(is_done)
            )
        )

    async def _announce(self, queue: str) -> None:
        """Wake up pullers that wait. If that fails, they find the item by polling."""
        try:
            await self.publish(f"queue:{queue}", b"")
        except StoreUnavailable:
            pass

    def _queue_keys(self, queue: str) -> list[str]:
        parts = ("data", "attempts", "waiting", "leased")
        return [self._key("queue", f"{queue}:{part}") for part in parts]

    # Commands

    def _connected(self) -> Redis[bytes]:
        if self._client is None:
            raise RuntimeError(
                "the store is not running; enter store.running() before using it"
            )
        return self._client

    async def _script(self, script: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run a script. Raises StoreUnavailable."""
        registered = self._connected().register_script(script)
        return await self._connection.run(lambda: registered(keys, arguments))

    def _key(self, kind: str, name: str | None = None) -> str:
        if name is None:
            return f"{self._address.prefix}:{kind}"
        return f"{self._address.prefix}:{kind}:{name}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _job(queue: str, found: Sequence[Any]) -> QueuedJob:
    """Return the job that a script has returned."""
    id, data, attempt, token = found
    name = id.decode()
    return QueuedJob(queue, name, data, attempt, Lease(name, token))
