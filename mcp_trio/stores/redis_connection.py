"""The connection to Redis: commands, messages, and what happens while it is away."""

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
# Seconds that connecting, and one operation, may take.
CONNECT_TIMEOUT = 2.0
OPERATION_TIMEOUT = 5.0
# Seconds between two looks whether Redis is there.
CHECK_INTERVAL = 1.0
# Seconds between two attempts to reach it, which double from the first to the second.
MIN_BACKOFF = 0.1
MAX_BACKOFF = 2.0

# What a command raises while Redis cannot carry it out.
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
# What receiving messages raises when its connection is lost.
INTERRUPTED = (*UNAVAILABLE, RedisError)
# The beginnings of errors with which Redis says the same.
NOT_READY = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "OOM")


class RedisAddress(Struct, frozen=True):
    """Where Redis is, and the prefix of the keys in it."""

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
        raise ValueError(f"{EXPECTED_URL}, got another parameter, {min(query)!r}")
    if len(prefixes) != 1 or not prefixes[0]:
        raise ValueError(f"{EXPECTED_URL}; the prefix must be one name")
    plain = urlunsplit(parts._replace(query="", fragment=""))
    return RedisAddress(plain, prefixes[0])


def _without_password(url: str) -> str:
    """Return a URL as it may be shown."""
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, _, _ = before.partition("://")
    return f"{scheme}://...@{after}"


class RedisConnection:
    """Commands to one Redis, and the messages of the channels in it.

    `connected_since` is when Redis was last found again after it was away, and infinity
    while it is away. Meanwhile commands fail at once; one task tries to reach it.

    One connection receives the messages of all subscriptions. After it was interrupted,
    every subscriber gets an empty list, because messages may have been missed.
    """

    def __init__(self, address: RedisAddress, statistics: StoreStatistics) -> None:
        self.connected_since = math.inf
        self._address = address
        self._statistics = statistics
        self._went_away = trio.Event()
        # The channels, with those who subscribe to them.
        self._inboxes: dict[bytes, set[Inbox]] = {}
        self._pubsub: PubSub[bytes] | None = None
        self._receiving = trio.CancelScope()
        self._has_tried_to_receive = trio.Event()

    @property
    def is_available(self) -> bool:
        """Whether Redis answered when it was last asked."""
        return self.connected_since < math.inf

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Redis[bytes]]:
        """Keep up the connection for as long as this is entered."""
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
                log.warning("cannot reach %s; trying again", self._address.name)
            nursery.start_soon(self._keep_checking, client)
            nursery.start_soon(self._keep_receiving, client)
            await self._has_tried_to_receive.wait()
            yield client
            nursery.cancel_scope.cancel()

    # Commands

    async def run(self, command: Callable[[], Awaitable[T]]) -> T:
        """Carry out a command. Raises StoreUnavailable."""
        if not self.is_available:
            raise StoreUnavailable(f"{self._address.name} is away")
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
        """Note that Redis cannot be used, and return what to raise."""
        self._statistics.errors += 1
        explanation = str(problem) or type(problem).__name__
        reason = f"{self._address.name}: {explanation}"
        if self.is_available:
            self.connected_since = math.inf
            self._went_away.set()
            log.warning("lost the store: %s", reason)
        return StoreUnavailable(reason)

    # Reaching Redis

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
                log.warning("reached the store again: %s", self._address.name)

    async def _check(self, client: Redis[bytes]) -> None:
        """Ask Redis for a sign of life."""
        try:
            await self._run(client.ping)
        except StoreUnavailable as problem:
            log.debug("no sign of life: %s", problem.reason)
            return
        if not self.is_available:
            self.connected_since = trio.current_time()
            self._went_away = trio.Event()

    # Messages

    @asynccontextmanager
    async def subscribe(self, channels: list[str]) -> AsyncIterator[Inbox]:
        """Subscribe to channels for as long as this is entered."""
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
        """Remove an inbox, and return the channels that have no other."""
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
        """Subscribe or unsubscribe. If that fails, receive on another connection."""
        try:
            with trio.fail_after(OPERATION_TIMEOUT):
                await change(*names)
        except INTERRUPTED as problem:
            log.debug("could not change the channels of the store: %r", problem)
            self._receiving.cancel()

    async def _keep_receiving(self, client: Redis[bytes]) -> None:
        """Hand the messages of all channels to the subscribers."""
        backoff = MIN_BACKOFF
        while True:
            with trio.CancelScope() as self._receiving:
                try:
                    await self._receive(client)
                except* INTERRUPTED as problems:
                    log.debug("the store's messages were interrupted: %r", problems)
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
            # Without any channel, coredis would stop to receive.
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
                    # Strings only if they were to be decoded.
                    assert isinstance(channel, bytes)
                    assert isinstance(data, bytes)
                    self._deliver(channel, data)

    def _deliver(self, channel: bytes, data: bytes) -> None:
        for inbox in self._inboxes.get(channel, ()):
            inbox.deliver(data)
