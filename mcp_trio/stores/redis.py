"""The store in Redis, which many processes on many machines may share.

Each part of the store is made of plain Redis types, under keys with a common prefix:

    PREFIX:record:KEY                   a hash: value and version
    PREFIX:log:KEY, PREFIX:log-size:KEY a stream, and a hash of its counts
    PREFIX:bucket:KEY                   a hash: tokens, and when they were counted
    PREFIX:lease:KEY                    the token of the lease; it expires with the lease
    PREFIX:latest:KEY                   the token of the latest lease on that key
    PREFIX:queue:NAME:...               the items of a queue, by id, and their order
    PREFIX:channel:NAME                 a channel

One connection receives the messages of all subscriptions. After it was interrupted, every
subscriber gets an empty list, because messages may have been missed.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit, urlunsplit

import trio
from coredis import Redis
from coredis.exceptions import ConnectionError, RedisError, ResponseError
from msgspec import Struct

from ..server.limits import Rate
from . import redis_scripts as scripts
from .base import Entry, Job, Lease, LeaseLost, LogPage, Record, StoreUnavailable

log = logging.getLogger("mcp_trio")

T = TypeVar("T")

DEFAULT_PREFIX = "mcp_trio"
# Seconds that one operation may take.
OPERATION_TIMEOUT = 5.0
# Seconds between two looks whether Redis is there.
CHECK_INTERVAL = 1.0
# Seconds between two attempts to reach it, which double from the first to the second.
MIN_BACKOFF, MAX_BACKOFF = 0.1, 5.0
# Milliseconds for which the token of the latest lease on a key is remembered.
REMEMBERED = 24 * 3600 * 1000
# Messages that a subscriber may be behind. After that it misses the oldest.
MOST_UNREAD = 10_000
# Seconds after which a process looks for items of a queue, even if it was told of none.
POLL_INTERVAL = 5.0

# What a command raises when Redis cannot carry it out now.
_UNAVAILABLE = (ConnectionError, OSError, trio.TooSlowError, trio.BrokenResourceError)


class StoreStatistics(Struct):
    """What a store has done, for the metrics."""

    operations: int = 0
    seconds: float = 0.0
    errors: int = 0
    reconnections: int = 0


class RedisSubscription:
    """Messages of some channels."""

    def __init__(self) -> None:
        self._unread: deque[bytes] = deque(maxlen=MOST_UNREAD)
        self._has_missed = False
        self._arrived = trio.lowlevel.ParkingLot()

    def deliver(self, message: bytes) -> None:
        """Add a message."""
        self._unread.append(message)
        self._arrived.unpark_all()

    def note_gap(self) -> None:
        """Note that messages may have been missed."""
        self._has_missed = True
        self._arrived.unpark_all()

    async def receive(self) -> list[bytes]:
        """Wait for messages. An empty list says that some may have been missed."""
        while not self._unread and not self._has_missed:
            await self._arrived.park()
        if self._has_missed:
            self._has_missed = False
            return []
        messages = list(self._unread)
        self._unread.clear()
        return messages


class RedisStore:
    """A store in a Redis server, version 6.2 or later, or in Valkey.

    `open_redis_store` makes one. `connected_since` is when Redis was last found again
    after it was away, and infinity while it is away.
    """

    is_shared = True

    def __init__(self, client: Redis[bytes], prefix: str) -> None:
        self.statistics = StoreStatistics()
        self.connected_since = math.inf
        self._client = client
        self._prefix = prefix
        self._subscriptions: dict[str, set[RedisSubscription]] = {}
        self._pubsub: Any = None
        self._write = client.register_script(scripts.WRITE)
        self._append = client.register_script(scripts.APPEND)
        self._take = client.register_script(scripts.TAKE)
        self._acquire = client.register_script(scripts.ACQUIRE)
        self._renew = client.register_script(scripts.RENEW)
        self._release = client.register_script(scripts.RELEASE)
        self._push = client.register_script(scripts.PUSH)
        self._pull = client.register_script(scripts.PULL)
        self._finish = client.register_script(scripts.FINISH)

    @property
    def is_available(self) -> bool:
        """Whether Redis answered when it was last asked."""
        return self.connected_since < math.inf

    # Records

    async def read(self, key: str) -> Record | None:
        """Return the record under a key, unless it has expired."""
        value, version = await self._run(
            self._client.hmget(self._key("record", key), ["v", "n"])
        )
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
        keys = [
            self._key("record", key),
            self._key("versions"),
            self._key("latest", "" if lease is None else lease.key),
        ]
        arguments: list[Any] = [
            value,
            "" if ttl is None else _milliseconds(ttl),
            "" if expected is None else expected,
            "" if lease is None else lease.token,
        ]
        version = await self._run(self._write(keys, arguments))
        if version == -1:
            assert lease is not None
            raise LeaseLost(lease.key)
        return version or None

    async def delete(self, key: str) -> None:
        """Delete a record, if it exists."""
        await self._run(self._client.delete([self._key("record", key)]))

    # Logs

    async def append(
        self, log: str, data: bytes, *, entries: int, size: int, ttl: float
    ) -> int:
        """Append an entry to a log, and return its position. See `Store.append`."""
        keys = [self._key("log", log), self._key("log-size", log)]
        arguments = [data, entries, size, _milliseconds(ttl)]
        position: int = await self._run(self._append(keys, arguments))
        return position

    async def read_log(self, log: str, after: int = 0) -> LogPage:
        """Return the entries of a log after a position."""
        key = self._key("log", log)
        stored = await self._run(self._client.xrange(key, start="-", end="+"))
        entries = [
            Entry(int(entry.identifier.split(b"-")[0]), entry.field_values[b"d"])
            for entry in stored
        ]
        if not entries:
            return LogPage([], is_complete=after == 0)
        later = [entry for entry in entries if entry.position > after]
        return LogPage(later, is_complete=entries[0].position <= after + 1)

    # Channels

    async def publish(self, channel: str, message: bytes) -> None:
        """Send a message to all who subscribe to a channel at this moment."""
        await self._run(self._client.publish(self._key("channel", channel), message))

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[RedisSubscription]:
        """Subscribe to channels for as long as this is entered."""
        subscription = RedisSubscription()
        names = [self._key("channel", channel) for channel in channels]
        new = [name for name in names if name not in self._subscriptions]
        for name in names:
            self._subscriptions.setdefault(name, set()).add(subscription)
        try:
            if new:
                await self._run(self._pubsub.subscribe(*new))
            yield subscription
        finally:
            unused = []
            for name in names:
                subscribed = self._subscriptions[name]
                subscribed.discard(subscription)
                if not subscribed:
                    del self._subscriptions[name]
                    unused.append(name)
            if unused:
                await self._unsubscribe(unused)

    async def _unsubscribe(self, names: Sequence[str]) -> None:
        """Unsubscribe, if that is possible: too many messages do no harm."""
        with trio.CancelScope(shield=True):
            try:
                await self._run(self._pubsub.unsubscribe(*names))
            except StoreUnavailable as problem:
                log.debug("could not unsubscribe: %s", problem)

    # Rates

    async def take(self, bucket: str, rate: Rate) -> float:
        """Take one token from a bucket. See `Store.take`."""
        keys = [self._key("bucket", f"{rate}:{bucket}")]
        arguments = [rate.each_second, rate.burst]
        left = float(await self._run(self._take(keys, arguments)))
        missing = 1 - left
        if missing <= 1e-6:
            return 0.0
        tenths = math.ceil(missing / rate.each_second * 10 - 1e-6)
        return max(tenths / 10, 0.1)

    # Leases

    async def acquire(self, key: str, seconds: float) -> Lease | None:
        """Lease a key, unless it is leased already."""
        if not self._may_take_over(seconds):
            if await self._run(self._client.exists([self._key("latest", key)])):
                # Whoever had it may be about to renew it.
                return None
        keys = [self._key("lease", key), self._key("latest", key), self._key("tokens")]
        token = await self._run(
            self._acquire(keys, [_milliseconds(seconds), REMEMBERED])
        )
        return Lease(key, token) if token else None

    async def renew(self, lease: Lease, seconds: float) -> None:
        """Hold a lease for so many seconds from now. Raises LeaseLost."""
        keys = [self._key("lease", lease.key), self._key("latest", lease.key)]
        arguments = [lease.token, _milliseconds(seconds), REMEMBERED]
        if not await self._run(self._renew(keys, arguments)):
            raise LeaseLost(lease.key)

    async def release(self, lease: Lease) -> None:
        """End a lease. Does nothing if it has ended already."""
        keys = [self._key("lease", lease.key)]
        await self._run(self._release(keys, [lease.token]))

    def _may_take_over(self, seconds: float) -> bool:
        """Return whether leases that have expired may be taken over.

        While Redis was away nobody could renew. So those who hold leases get the time of
        a whole lease to do it.
        """
        return trio.current_time() - self.connected_since >= seconds

    # Queues

    async def push(
        self, queue: str, data: bytes, *, hold: float | None = None
    ) -> Job | None:
        """Add an item to a queue. See `Store.push`."""
        id = f"{queue}-{secrets.token_hex(8)}"
        arguments: list[Any] = [
            id,
            data,
            "" if hold is None else _milliseconds(hold),
            REMEMBERED,
            *self._lease_prefixes(),
        ]
        found = await self._run(self._push(self._queue_keys(queue), arguments))
        if hold is not None:
            return _job(queue, found)
        await self.publish(f"queue:{queue}", b"")
        return None

    async def pull(self, queue: str, seconds: float) -> Job:
        """Wait for an item, and lease it for so many seconds. See `Store.pull`."""
        async with self.subscribe(f"queue:{queue}") as changes:
            while True:
                found = await self._pull_one(queue, seconds)
                if isinstance(found, Job):
                    return found
                with trio.move_on_after(found):
                    await changes.receive()

    async def _pull_one(self, queue: str, seconds: float) -> Job | float:
        """Lease an item. If there is none, return the seconds until the next look."""
        arguments: list[Any] = [
            _milliseconds(seconds),
            REMEMBERED,
            *self._lease_prefixes(),
            int(self._may_take_over(seconds)),
        ]
        found = await self._run(self._pull(self._queue_keys(queue), arguments))
        if found[0] is not None:
            return _job(queue, found)
        next_end: int = found[1]
        if next_end < 0:
            return POLL_INTERVAL
        return min(next_end / 1000 + 0.01, POLL_INTERVAL)

    async def done(self, job: Job) -> None:
        """Remove an item for good."""
        await self._end_job(job, is_done=True)

    async def give_back(self, job: Job) -> None:
        """End the lease of an item, so that it can be pulled again at once."""
        if await self._end_job(job, is_done=False):
            await self.publish(f"queue:{job.queue}", b"")

    async def _end_job(self, job: Job, *, is_done: bool) -> bool:
        keys = [
            *self._queue_keys(job.queue)[:4],
            self._key("lease", job.id),
            self._key("latest", job.id),
        ]
        arguments = [job.id, job.lease.token, int(is_done)]
        return bool(await self._run(self._finish(keys, arguments)))

    def _queue_keys(self, queue: str) -> list[str]:
        parts = ("data", "attempts", "waiting", "leased")
        return [
            *(self._key("queue", f"{queue}:{part}") for part in parts),
            self._key("tokens"),
        ]

    def _lease_prefixes(self) -> tuple[str, str]:
        return self._key("lease", ""), self._key("latest", "")

    # The connection

    async def watch(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Receive messages, and notice when Redis goes and comes back."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._receive)
            await self._check()
            if not self.is_available:
                log.warning("the store cannot be reached; trying again")
            task_status.started()
            nursery.start_soon(self._keep_checking)

    async def _receive(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Hand the messages of all channels to the subscriptions."""
        is_started = False
        backoff = MIN_BACKOFF
        while True:
            try:
                async with self._client.pubsub() as self._pubsub:
                    # Without any channel, reading messages would end.
                    names = [self._key("channel", ""), *self._subscriptions]
                    await self._pubsub.subscribe(*names)
                    if not is_started:
                        is_started = True
                        task_status.started()
                    backoff = MIN_BACKOFF
                    async for message in self._pubsub:
                        self._deliver(message)
            except* (*_UNAVAILABLE, RedisError) as problems:
                log.debug("the store's messages were interrupted: %r", problems)
            if not is_started:
                is_started = True
                task_status.started()
            await trio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF)

    def _deliver(self, message: Any) -> None:
        channel = message["channel"]
        name = channel.decode() if isinstance(channel, bytes) else channel
        subscriptions = self._subscriptions.get(name, set())
        if message["type"] == "message":
            for subscription in subscriptions:
                subscription.deliver(message["data"])
        elif message["type"] == "subscribe":
            # The first time, or again after the connection was interrupted.
            for subscription in subscriptions:
                subscription.note_gap()

    async def _keep_checking(self) -> None:
        backoff = MIN_BACKOFF
        while True:
            await trio.sleep(CHECK_INTERVAL if self.is_available else backoff)
            await self._check()
            backoff = MIN_BACKOFF if self.is_available else min(2 * backoff, MAX_BACKOFF)

    async def _check(self) -> None:
        """Ask Redis for a sign of life."""
        try:
            await self._run(self._client.ping())
        except StoreUnavailable:
            pass

    async def _run(self, command: Awaitable[T]) -> T:
        """Wait for a command. Raises StoreUnavailable."""
        began = perf_counter()
        self.statistics.operations += 1
        try:
            with trio.fail_after(OPERATION_TIMEOUT):
                result = await command
        except _UNAVAILABLE as problem:
            self._note_failure(problem)
            raise StoreUnavailable(f"the store cannot be reached: {problem}") from None
        except ResponseError as problem:
            self.statistics.errors += 1
            if str(problem).startswith(("LOADING", "READONLY", "MASTERDOWN", "BUSY")):
                raise StoreUnavailable(f"the store is not ready: {problem}") from None
            raise
        self.statistics.seconds += perf_counter() - began
        if not self.is_available:
            self.connected_since = trio.current_time()
        return result

    def _note_failure(self, problem: Exception) -> None:
        self.statistics.errors += 1
        if self.is_available:
            self.connected_since = math.inf
            self.statistics.reconnections += 1
            log.warning("the store cannot be reached: %s", problem)

    def _key(self, kind: str, name: str | None = None) -> str:
        if name is None:
            return f"{self._prefix}:{kind}"
        return f"{self._prefix}:{kind}:{name}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _job(queue: str, found: Sequence[Any]) -> Job:
    """Return the job that a script has leased."""
    id, data, attempt, token = found
    id = id.decode() if isinstance(id, bytes) else id
    return Job(queue, id, data, attempt, Lease(id, token))


def split_url(url: str) -> tuple[str, str]:
    """Return a URL for Redis without our own query, and the prefix in that query.

    Raises ValueError.
    """
    parts = urlsplit(url)
    expected = "expected redis://[USER:PASSWORD@]HOST[:PORT][/DB][?prefix=NAME]"
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ValueError(f"{expected}, got {url!r}")
    query = parse_qs(parts.query, keep_blank_values=True)
    prefixes = query.pop("prefix", [DEFAULT_PREFIX])
    if query:
        unknown = ", ".join(sorted(query))
        raise ValueError(f"{expected}; {unknown} is not known")
    if len(prefixes) != 1 or not prefixes[0]:
        raise ValueError(f"{expected}; a prefix is one name")
    return urlunsplit(parts._replace(query="")), prefixes[0]


@asynccontextmanager
async def open_redis_store(url: str) -> AsyncIterator[RedisStore]:
    """Use the Redis at a URL: redis:// or rediss://, with `?prefix=NAME`."""
    address, prefix = split_url(url)
    client = Redis.from_url(address, decode_responses=False)
    async with client, trio.open_nursery() as nursery:
        store = RedisStore(client, prefix)
        await nursery.start(lambda **given: store.watch(**given))
        yield store
        nursery.cancel_scope.cancel()
