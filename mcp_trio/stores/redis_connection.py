"""The connection to Redis: commands, messages and reconnection."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit, urlunsplit

import trio
from coredis import Redis
from coredis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from coredis.patterns.pubsub import PubSub
from coredis.retry import NoRetryPolicy
from msgspec import Struct

from ..server.shared_state import StoreStatistics
from .base import StoreUnavailable
from .subscription import Inbox

log = logging.getLogger("mcp_trio")

T = TypeVar("T")

DEFAULT_PREFIX = "mcp_trio"
EXPECTED_URL = "expected redis://[USER:PASSWORD@]HOST[:PORT][/DB][?prefix=NAME]"
# Timeouts of connecting and of an operation, in seconds.
CONNECT_TIMEOUT = 2.0
OPERATION_TIMEOUT = 5.0
# Seconds between two pings.
CHECK_INTERVAL = 1.0
# Seconds between two attempts to connect. They double up to the maximum.
MIN_BACKOFF = 0.1
MAX_BACKOFF = 2.0

# The exceptions of a command while Redis is unavailable.
UNAVAILABLE = (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    OSError,
    ReadOnlyError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)
# The exceptions of receiving messages when the connection is lost.
INTERRUPTED = (*UNAVAILABLE, RedisError)
# The prefixes of Redis errors that mean that it is unavailable.
NOT_READY = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "OOM")


class RedisAddress(Struct, frozen=True):
    """The URL of Redis, and the prefix of the keys."""

    url: str
    prefix: str

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.url.startswith("rediss:")

    @property
    def name(self) -> str:
        """The address without the password, for the log."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}"


def parse_redis_url(url: str) -> RedisAddress:
    """Parse a URL: redis:// or rediss://, with `?prefix=NAME`. Raises ValueError."""
    parts = urlsplit(url)
    hidden = _without_password(url)
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ValueError(f"{EXPECTED_URL}, got {hidden!r}")
    try:
        _ = parts.port
    except ValueError as problem:
        raise ValueError(f"{EXPECTED_URL}, got {hidden!r}: {problem}") from None
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise ValueError(
            f"{EXPECTED_URL}, got {hidden!r}: the database is not a number"
        )
    query = parse_qs(parts.query, keep_blank_values=True)
    prefixes = query.pop("prefix", [DEFAULT_PREFIX])
    if query:
        raise ValueError(f"{EXPECTED_URL}, got the unknown parameter {min(query)!r}")
    if len(prefixes) != 1 or not prefixes[0]:
        raise ValueError(f"{EXPECTED_URL}, got {hidden!r}: expected one prefix")
    plain = urlunsplit(parts._replace(query="", fragment=""))
    return RedisAddress(plain, prefixes[0])


def _without_password(url: str) -> str:
    """Return a URL without its user and password, for messages."""
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, _, _ = before.partition("://")
    return f"{scheme}://...@{after}"


class RedisConnection:
    """Commands and messages of one Redis.

    `connected_since` is when Redis last became available. It is infinity while Redis is
    unavailable. Commands then fail immediately, and one task tries to reconnect.

    One connection receives the messages of all subscriptions. After it was interrupted,
    each subscriber gets an empty list, because messages may have been lost.
    """

    def __init__(self, address: RedisAddress, statistics: StoreStatistics) -> None:
        self.connected_since = math.inf
        self._address = address
        self._statistics = statistics
        self._went_away = trio.Event()
        # Channel -> its subscribers.
        self._inboxes: dict[bytes, set[Inbox]] = {}
        self._pubsub: PubSub[bytes] | None = None
        self._receiving = trio.CancelScope()
        self._has_tried_to_receive = trio.Event()

    @property
    def is_available(self) -> bool:
        """Whether Redis responded to the latest command."""
        return self.connected_since < math.inf

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Redis[bytes]]:
        """Stay connected inside this block."""
        context = ssl.create_default_context() if self._address.is_encrypted else None
        client = Redis.from_url(
            self._address.url,
            retry_policy=NoRetryPolicy(),
            decode_components=True,
            connect_timeout=CONNECT_TIMEOUT,
            ssl_context=context,
        )
        async with client, trio.open_nursery() as nursery:
            await self._check(client)
            if not self.is_available:
                log.warning("cannot reach %s; retrying", self._address.name)
            nursery.start_soon(self._keep_checking, client)
            nursery.start_soon(self._keep_receiving, client)
            await self._has_tried_to_receive.wait()
            yield client
            nursery.cancel_scope.cancel()

    # Commands

    async def run(self, command: Callable[[], Awaitable[T]]) -> T:
        """Run a command. Raises StoreUnavailable."""
        if not self.is_available:
            raise StoreUnavailable(f"{self._address.name} is unavailable")
        return await self._run(command)

    async def _run(self, command: Callable[[], Awaitable[T]]) -> T:
        began = perf_counter()
        self._statistics.operations += 1
        try:
            with trio.fail_after(OPERATION_TIMEOUT):
                result = await command()
        except UNAVAILABLE as problem:
            raise self._failed(problem) from None
        except ResponseError as problem:
            if str(problem).startswith(NOT_READY):
                raise self._failed(problem) from None
            self._statistics.errors += 1
            raise
        self._statistics.seconds += perf_counter() - began
        return result

    def _failed(self, problem: Exception) -> StoreUnavailable:
        """Note that Redis is unavailable, and return the exception to raise."""
        self._statistics.errors += 1
        explanation = str(problem) or type(problem).__name__
        reason = f"{self._address.name}: {explanation}"
        if self.is_available:
            self.connected_since = math.inf
            self._went_away.set()
            log.warning("lost the connection to the store: %s", reason)
        return StoreUnavailable(reason)

    # Reconnecting

    async def _keep_checking(self, client: Redis[bytes]) -> None:
        backoff = MIN_BACKOFF
        while True:
            if self.is_available:
                backoff = MIN_BACKOFF
                with trio.move_on_after(CHECK_INTERVAL):
                    await self._went_away.wait()
            else:
                await trio.sleep(backoff)
                backoff = min(2 * backoff, MAX_BACKOFF)
            was_available = self.is_available
            await self._check(client)
            if self.is_available and not was_available:
                self._statistics.reconnections += 1
                log.warning("reconnected to the store: %s", self._address.name)

    async def _check(self, client: Redis[bytes]) -> None:
        """Ping Redis, and note whether it is available."""
        try:
            await self._run(client.ping)
        except StoreUnavailable as problem:
            log.debug("no response to a ping: %s", problem.reason)
            return
        if not self.is_available:
            self.connected_since = trio.current_time()
            self._went_away = trio.Event()

    # Messages

    @asynccontextmanager
    async def subscribe(self, channels: list[str]) -> AsyncIterator[Inbox]:
        """Subscribe to channels inside this block."""
        inbox = Inbox()
        names = [channel.encode() for channel in channels]
        new = [name for name in names if name not in self._inboxes]
        for name in names:
            self._inboxes.setdefault(name, set()).add(inbox)
        try:
            if self._pubsub is None:
                inbox.note_gap()
            elif new:
                await self._change_channels(self._pubsub.subscribe, new)
            yield inbox
        finally:
            unused = self._forget(inbox, names)
            if unused and self._pubsub is not None:
                with trio.CancelScope(shield=True):
                    await self._change_channels(self._pubsub.unsubscribe, unused)

    def _forget(self, inbox: Inbox, names: list[bytes]) -> list[bytes]:
        """Remove an inbox, and return the channels that now have none."""
        unused = []
        for name in set(names):
            self._inboxes[name].discard(inbox)
            if not self._inboxes[name]:
                del self._inboxes[name]
                unused.append(name)
        return unused

    async def _change_channels(
        self, change: Callable[..., Awaitable[None]], names: list[bytes]
    ) -> None:
        """Subscribe or unsubscribe. If that fails, reconnect."""
        try:
            with trio.fail_after(OPERATION_TIMEOUT):
                await change(*names)
        except INTERRUPTED as problem:
            log.debug("cannot change the subscribed channels: %r", problem)
            self._receiving.cancel()

    async def _keep_receiving(self, client: Redis[bytes]) -> None:
        """Deliver the messages of all channels, and reconnect if necessary."""
        backoff = MIN_BACKOFF
        while True:
            with trio.CancelScope() as self._receiving:
                try:
                    await self._receive(client)
                except* INTERRUPTED as problems:
                    log.debug("receiving messages was interrupted: %r", problems)
            if self._pubsub is not None:
                backoff = MIN_BACKOFF
            self._pubsub = None
            self._has_tried_to_receive.set()
            await trio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF)

    async def _receive(self, client: Redis[bytes]) -> None:
        """Receive messages until the connection is interrupted."""
        receiving = client.pubsub(
            retry_policy=NoRetryPolicy(), max_idle_seconds=CHECK_INTERVAL
        )
        async with receiving as pubsub:
            # coredis stops receiving if there are no channels.
            lasting = f"{self._address.prefix}:channel".encode()
            known = list(self._inboxes)
            await pubsub.subscribe(lasting, *known)
            self._pubsub = pubsub
            added = [name for name in self._inboxes if name not in known]
            if added:
                await pubsub.subscribe(*added)
            for inbox in set().union(*self._inboxes.values()):
                inbox.note_gap()
            self._has_tried_to_receive.set()
            async for message in pubsub:
                channel = message["channel"]
                data = message["data"]
                if message["type"] == "message":
                    # They are not decoded, so they are bytes.
                    assert isinstance(channel, bytes)
                    assert isinstance(data, bytes)
                    self._deliver(channel, data)

    def _deliver(self, channel: bytes, data: bytes) -> None:
        for inbox in self._inboxes.get(channel, ()):
            inbox.deliver(data)
