"""The processes of one server that share a store, and the messages between them.

Each process has an id, which is part of the names of its streams and questions. It
holds a lease on its id and renews it. These are the keys in the store, which also
contain the server's name:

    lease process:ID     held by the process; writes to its streams name this lease
    record process:ID    exists while the process runs and can receive messages
    record lost:ID       the process was declared lost, and can no longer write
    bulletin news        messages to all processes
    bulletin inbox:ID    messages to one process

A process is lost if its lease has expired and another process has taken it over. If it
still runs, because it was suspended or disconnected for a while, it cancels the
requests that other processes may have reported as lost, and continues with a new id.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Protocol

import trio
from msgspec import Struct

from ..server.subscriptions import Audience, Subscriptions, Topic
from .base import Lease, LeaseLost, Store, StoreUnavailable
from .bulletin import Bulletin
from .peer_messages import AnyMessage, Changed, decode_message, encode_message
from .retry import until_available

log = logging.getLogger("mcp_trio")

# The length of a process's lease, and the time between renewals, in seconds.
LEASE = 10.0
RENEW = 3.0
# Seconds between two attempts while the store is unavailable.
RETRY = 0.5
# The time to live of a process's record, which is renewed with its lease, in seconds.
RECORD = 3 * LEASE
# Seconds that the state of another process is cached.
FRESH = 1.0
# The time to live of the record that a process was lost, in seconds.
REMEMBERED = 24 * 3600.0
# The time to live of the bulletins after the latest message, in seconds.
NEWS_TTL = 365 * 24 * 3600.0
INBOX_TTL = 3600.0
# Seconds that a stopping process has to notify the others.
LEAVE_TIMEOUT = 1.0
# Seconds that a client waits for a process with a new id, so that the other processes
# know that id.
INTRODUCTION_TIMEOUT = 2.0


class Identity(Struct, eq=False):
    """The id of a process, and the lease on it.

    `known` is set when the lease is acquired and others can send messages to the id, or
    when that turns out to be impossible. Clients should not get a name with the id
    before that. `lost` is set when the lease is lost.
    """

    id: str
    known: trio.Event
    lost: trio.Event
    lease: Lease | None = None


class PeerObserver(Protocol):
    """Receives the messages of other processes, in order."""

    def on_message(self, message: AnyMessage) -> None:
        """Called with each message."""

    def on_messages_missed(self) -> None:
        """Called when messages may have been lost."""

    def on_identity_lost(self, identity: Identity) -> None:
        """Called when this process has lost an id. Must cancel its requests."""


class _Check(Struct):
    """The cached result of a check of another process, and its time."""

    at: float
    result: bool


class Peers:
    """This process as one of the processes of a server."""

    def __init__(self, store: Store, server: str) -> None:
        self.store = store
        self.identity = _new_identity()
        self._server = server
        self._news = Bulletin(store, self.key("news"), ttl=NEWS_TTL)
        self._observers: list[PeerObserver] = []
        self._subscriptions: Subscriptions | None = None
        self._nursery: trio.Nursery | None = None
        self._lost: dict[str, _Check] = {}
        self._existing: dict[str, _Check] = {}
        self._numbers = count(1)

    def key(self, kind: str, name: str = "") -> str:
        """Return a key in the store, for this server."""
        return f"{kind}:{self._server}:{name}"

    def new_name(self) -> str:
        """Return a name that belongs to this process: see `process_of`."""
        return f"{self.identity.id}.{next(self._numbers)}"

    def observe(self, observer: PeerObserver) -> None:
        """Notify an observer of messages from now on."""
        self._observers.append(observer)

    def stop_observing(self, observer: PeerObserver) -> None:
        """Stop notifying an observer."""
        self._observers.remove(observer)

    # Running

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take part as one of the server's processes inside this block."""
        self.identity = _new_identity()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            follow_news = partial(self._news.follow, self._receive, self._missed)
            await nursery.start(follow_news)
            await nursery.start(self._keep_identity)
            yield
            with trio.move_on_after(LEAVE_TIMEOUT, shield=True):
                await self._leave()
            nursery.cancel_scope.cancel()

    def start_soon(self, function: Callable[[], Awaitable[object]]) -> None:
        """Run a function in the background. Its exceptions are logged."""
        if self._nursery is not None:
            self._nursery.start_soon(_run_logged, function)

    async def _keep_identity(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Hold the lease on an id and receive its messages. If lost, use a new id."""
        while True:
            identity = self.identity
            name = self.key("inbox", identity.id)
            inbox = Bulletin(self.store, name, ttl=INBOX_TTL)
            async with trio.open_nursery() as nursery:
                # Nothing was sent to this id before.
                follow = partial(
                    inbox.follow, self._receive, self._missed, from_start=True
                )
                await nursery.start(follow)
                await nursery.start(self._hold, identity)
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await identity.lost.wait()
                log.warning(
                    "this process has lost its lease, which had expired, or the store "
                    "has lost its data; requests with shared streams are cancelled"
                )
                for observer in list(self._observers):
                    observer.on_identity_lost(identity)
                nursery.cancel_scope.cancel()

    def lose(self, identity: Identity) -> None:
        """Stop using an identity whose lease was lost. New requests get a new one."""
        identity.lost.set()
        identity.known.set()
        if self.identity is identity:
            self.identity = _new_identity()

    async def _hold(
        self,
        identity: Identity,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Renew the lease of an identity until it is lost."""
        while not identity.lost.is_set():
            try:
                await self._renew(identity)
                seconds = RENEW
            except StoreUnavailable as problem:
                log.debug("cannot renew the lease of this process: %s", problem.reason)
                seconds = RETRY
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep(seconds)

    async def _renew(self, identity: Identity) -> None:
        """Acquire or renew the lease of an identity, or mark it as lost."""
        name = self.key("process", identity.id)
        if identity.lease is None:
            identity.lease = await self.store.acquire(name, LEASE)
            if identity.lease is None:
                # It was acquired before, but the acknowledgment was lost.
                self.lose(identity)
                return
        else:
            try:
                await self.store.renew(identity.lease, LEASE)
            except LeaseLost:
                self.lose(identity)
                return
        await self.store.write(name, b"", ttl=RECORD)
        identity.known.set()

    async def wait_until_known(self) -> None:
        """Wait until others can send messages to this process.

        Give up after some seconds, or if the store is unavailable.
        """
        identity = self.identity
        if not identity.known.is_set() and self.store.is_available:
            with trio.move_on_after(INTRODUCTION_TIMEOUT):
                await identity.known.wait()

    async def _leave(self) -> None:
        """Tell the other processes that this process is stopping."""
        identity = self.identity
        try:
            await self._declare_lost(identity.id)
            await self.store.delete(self.key("process", identity.id))
            if identity.lease is not None:
                await self.store.release(identity.lease)
        except StoreUnavailable as problem:
            log.debug("cannot sign off from the store: %s", problem.reason)

    # Messages

    async def post(self, message: AnyMessage) -> None:
        """Send a message to all processes, including this. Raises StoreUnavailable."""
        await self._news.post(encode_message(message))

    def post_soon(self, message: AnyMessage) -> None:
        """Send a message to all processes as soon as the store is available."""
        self.start_soon(partial(until_available, partial(self.post, message)))

    async def send(self, process: str, message: AnyMessage) -> bool:
        """Send a message to a process. Returns False if it does not exist.

        Raises StoreUnavailable.
        """
        if not await self.exists(process):
            return False
        name = self.key("inbox", process)
        inbox = Bulletin(self.store, name, ttl=INBOX_TTL)
        await inbox.post(encode_message(message))
        return True

    def send_soon(self, process: str, message: AnyMessage) -> None:
        """Send a message to a process as soon as the store is available."""
        self.start_soon(partial(until_available, partial(self.send, process, message)))

    def _receive(self, data: bytes) -> None:
        message = decode_message(data)
        if isinstance(message, Changed):
            if self._subscriptions is not None:
                is_own = message.process == self.identity.id
                audience = Audience.SHARED if is_own else Audience.ALL
                self._subscriptions.notify_clients(message.topics, audience)
            return
        for observer in list(self._observers):
            observer.on_message(message)

    def _missed(self) -> None:
        log.warning(
            "messages from other processes were lost, because the store was "
            "unavailable for too long"
        )
        for observer in list(self._observers):
            observer.on_messages_missed()

    # Changes of lists and resources

    def relay_changes_for(self, subscriptions: Subscriptions) -> None:
        """Notify the clients of this process of the changes at all processes."""
        self._subscriptions = subscriptions
        subscriptions.relay = self

    def publish(self, topics: list[Topic]) -> None:
        """Publish changes at this process to all processes."""
        self.post_soon(Changed(topics, self.identity.id))

    # Other processes

    async def exists(self, process: str) -> bool:
        """Return whether a process with this id exists, or did until recently."""
        if process == self.identity.id:
            return True
        check = self._existing.get(process)
        if check is not None and trio.current_time() <= check.at + FRESH:
            return True
        if await self.store.read(self.key("process", process)) is None:
            # Not cached, because the process may be about to begin.
            return False
        check = _Check(trio.current_time(), result=True)
        _remember(self._existing, process, check)
        return True

    async def is_lost(self, process: str) -> bool:
        """Return whether a process was lost, after which it can no longer write.

        Raises StoreUnavailable.
        """
        now = trio.current_time()
        check = self._lost.get(process)
        if check is not None and (check.result or now < check.at + FRESH):
            return check.result
        # Before waiting, so that concurrent callers do not check too.
        _remember(self._lost, process, _Check(now, result=False))
        is_lost = await self._check_lost(process)
        _remember(self._lost, process, _Check(trio.current_time(), is_lost))
        return is_lost

    async def turns_out_lost(self, process: str) -> bool:
        """Wait for as long as a lease lasts, and return whether a process was lost."""
        await trio.sleep(LEASE + FRESH)
        return await until_available(partial(self.is_lost, process))

    async def _check_lost(self, process: str) -> bool:
        """Return whether a process was lost. Declare it lost if its lease expired."""
        if await self.store.read(self.key("lost", process)) is not None:
            return True
        lease = await self.store.acquire(self.key("process", process), LEASE)
        if lease is None:
            return False
        log.warning("process %s was lost: its lease has expired", process)
        await self._declare_lost(process)
        return True

    async def _declare_lost(self, process: str) -> None:
        await self.store.write(self.key("lost", process), b"", ttl=REMEMBERED)


def process_of(name: str) -> str:
    """Return the id of the process that a name belongs to."""
    return name.partition(".")[0]


# The maximum number of cached checks.
MOST_CHECKS = 1000


def _remember(checks: dict[str, _Check], process: str, check: _Check) -> None:
    """Cache a check, and drop the oldest one if there are too many."""
    checks.pop(process, None)
    if len(checks) >= MOST_CHECKS:
        del checks[next(iter(checks))]
    checks[process] = check


def _new_identity() -> Identity:
    return Identity(secrets.token_hex(6), trio.Event(), trio.Event())


async def _run_logged(function: Callable[[], Awaitable[object]]) -> None:
    """Run a function, and log its exceptions."""
    try:
        await function()
    except Exception:
        log.exception("a background task of the shared store failed")
