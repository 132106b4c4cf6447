"""The connection to Redis: commands, messages and reconnection."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit, urlunsplit

import trio
from coredis import Redis
from coredis.exceptions import RedisError
from coredis.patterns.pubsub import PubSub
from coredis.retry import NoRetryPolicy
from msgspec import Struct

from ..server.shared_state import StoreStatistics
from . import redis_scripts as scripts
from .base import StoreUnavailable
from .subscription import Inbox

log = logging.getLogger("mcp_trio")

T = TypeVar("T")

DEFAULT_PREFIX = "mcp_trio"
EXPECTED_URL = "expected redis://[USER:PASSWORD@]HOST[:PORT][/DB][?prefix=NAME]"
PASSWORD_HINT = (
    "if the password contains characters such as / or @, percent-encode them"
)
# Timeouts of connecting and of an operation, in seconds.
CONNECT_TIMEOUT = 2.0
OPERATION_TIMEOUT = 5.0
# The maxmemory-policy of a Redis that refuses writes when it is full.
KEEPS_ALL = "noeviction"
# Seconds between two pings.
CHECK_INTERVAL = 1.0
# Seconds between two attempts to connect. They double up to the maximum.
MIN_BACKOFF = 0.1
MAX_BACKOFF = 2.0

# The exceptions of a command if Redis cannot be reached or refuses the command, because
# it is full, starting or a replica, or because the user may not run it.
UNAVAILABLE = (
    OSError,
    RedisError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)


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
    hidden = _without_password(url)
    # The messages of urllib are not shown, because they may contain a part of the
    # password.
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise _invalid(hidden, "the host or the port is invalid") from None
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise _invalid(hidden, "the host is missing")
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise _invalid(hidden, "the database is not a number")
    query = parse_qs(parts.query, keep_blank_values=True)
    prefixes = query.pop("prefix", [DEFAULT_PREFIX])
    if query:
        raise _invalid(hidden, "?prefix= is the only parameter")
    if len(prefixes) != 1 or not prefixes[0]:
        raise _invalid(hidden, "expected one prefix")
    plain = urlunsplit(parts._replace(query="", fragment=""))
    return RedisAddress(plain, prefixes[0])


def _invalid(hidden: str, problem: str) -> ValueError:
    """Return the error for an invalid URL, which is given without its password."""
    hint = f"; {PASSWORD_HINT}" if "@" in hidden else ""
    return ValueError(f"{EXPECTED_URL}, got {hidden!r}: {problem}{hint}")


def _without_password(url: str) -> str:
    """Return a URL without its user and password, for messages."""
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, _, _ = before.partition("://")
    return f"{scheme}://...@{after}"


def _explain(problem: BaseException) -> str:
    """Return the message of an exception, and that of its cause."""
    # Redis also names the script in which an error has occurred.
    message = str(problem).partition(" script: ")[0].rstrip(".")
    message = message or type(problem).__name__
    if problem.__cause__ is None:
        return message
    return f"{message}: {_explain(problem.__cause__)}"


class RedisConnection:
    """Commands and messages of one Redis.

    `connected_since` is when Redis last became available. It is infinity while Redis is
    unavailable. Commands then fail immediately, and one task tries to reconnect.

    Redis is also unavailable while it refuses commands. It may respond to a ping
    nevertheless, so it becomes available only when it accepts a write and a message.

    One connection receives the messages of all subscriptions. After it was interrupted,
    each subscriber gets an empty list, because messages may have been lost.
    """

    def __init__(self, address: RedisAddress, statistics: StoreStatistics) -> None:
        self.connected_since = math.inf
        self._address = address
        self._statistics = statistics
        self._went_away = trio.Event()
        # Why the latest command has failed, for the log.
        self._problem = ""
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
                log.warning("cannot use %s; retrying", self._problem)
            else:
                await self._warn_of_eviction(client)
            nursery.start_soon(self._keep_checking, client)
            nursery.start_soon(self._keep_receiving, client)
            await self._has_tried_to_receive.wait()
            yield client
            nursery.cancel_scope.cancel()

    async def _warn_of_eviction(self, client: Redis[bytes]) -> None:
        """Log a warning if Redis may drop data when it is full."""
        try:
            with trio.fail_after(OPERATION_TIMEOUT):
                found = await client.info("memory")
        except UNAVAILABLE as problem:  # perhaps the user may not run it
            log.debug("cannot read the settings of the store: %r", problem)
            return
        policy = found.get("maxmemory_policy", KEEPS_ALL)
        if found.get("maxmemory") and policy != KEEPS_ALL:
            log.warning(
                "%s drops data when it is full, such as sessions and tasks: its "
                "maxmemory-policy is %s. Set it to noeviction",
                *(self._address.name, policy),
            )

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
        self._statistics.seconds += perf_counter() - began
        return result

    def _failed(self, problem: Exception) -> StoreUnavailable:
        """Note that Redis is unavailable, and return the exception to raise."""
        self._statistics.errors += 1
        reason = f"{self._address.name}: {_explain(problem)}"
        if self.is_available:
            self.connected_since = math.inf
            self._went_away.set()
            log.warning("the store is unavailable: %s", reason)
        elif self._problem not in ("", reason):
            log.warning("the store is still unavailable: %s", reason)
        self._problem = reason
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
                log.warning("the store is available again: %s", self._address.name)

    async def _check(self, client: Redis[bytes]) -> None:
        """Note whether Redis is available."""
        try:
            if self.is_available:
                await self._run(client.ping)
            else:
                await self._run(partial(self._probe, client))
        except StoreUnavailable as problem:
            log.debug("a check has failed: %s", problem.reason)
            # The address may belong to another Redis by now, after a failover.
            client.connection_pool.disconnect()
            return
        if not self.is_available:
            self.connected_since = trio.current_time()
            self._went_away = trio.Event()

    async def _probe(self, client: Redis[bytes]) -> None:
        """Do what Redis may refuse although it responds to a ping."""
        probe = client.register_script(scripts.PROBE)
        await probe([f"{self._address.prefix}:probe"], [self._lasting_channel])

    # Messages

    @property
    def _lasting_channel(self) -> str:
        """A channel without messages for anyone."""
        return f"{self._address.prefix}:channel"

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
        except UNAVAILABLE as problem:
            log.debug("cannot change the subscribed channels: %r", problem)
            self._receiving.cancel()

    async def _keep_receiving(self, client: Redis[bytes]) -> None:
        """Deliver the messages of all channels, and reconnect if necessary."""
        backoff = MIN_BACKOFF
        while True:
            with trio.CancelScope() as self._receiving:
                try:
                    await self._receive(client)
                except* UNAVAILABLE as problems:
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
            known = list(self._inboxes)
            await pubsub.subscribe(self._lasting_channel, *known)
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
