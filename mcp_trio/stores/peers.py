"""The processes of one server that share a store, and their messages.

Each process has an id. The names of its streams and questions contain this id. While
the process lives, it holds a lease of its id and renews it. These are the keys in the
store. Each also contains the name of the server.

    lease process:ID     held by the process; writes to its streams name this lease
    record process:ID    exists while the process does, and can be sent messages
    record lost:ID       the process was lost, and cannot write any more
    bulletin news        messages to all processes
    bulletin inbox:ID    messages to one process

A process is lost if its lease has ended and another process has taken the lease over.
If it still runs, because it was only stopped or cut off for a while, it cancels the
requests whose clients may have been told so, and goes on under a new id.
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
from .patience import until_available
from .peer_messages import AnyMessage, Changed, decode_message, encode_message

log = logging.getLogger("mcp_trio")

# The length of a process's lease, and the time between renewals, in seconds.
LEASE = 10.0
RENEW = 3.0
# Seconds between two attempts while the store is away.
RETRY = 0.5
# Seconds until the record of a process expires, unless it is renewed.
RECORD = 3 * LEASE
# Seconds until this process looks again whether another one lives.
FRESH = 1.0
# Seconds until it is forgotten that a process was lost.
REMEMBERED = 24 * 3600.0
# The bulletins are kept for a year, and for an hour, after the latest message.
NEWS_TTL = 365 * 24 * 3600.0
INBOX_TTL = 3600.0
# Seconds that a process has for its farewell.
FAREWELL = 1.0


class Identity(Struct, eq=False):
    """What a process is called, with its lease of that name as soon as it has it."""

    id: str
    held: trio.Event
    lost: trio.Event
    lease: Lease | None = None


class PeerObserver(Protocol):
    """Receives messages, in the order of their arrival."""

    def heard(self, message: AnyMessage) -> None:
        """Act on a message."""

    def missed_messages(self) -> None:
        """Note that messages were lost."""

    def lost_identity(self, identity: Identity) -> None:
        """Cancel everything that was done under an identity, which was taken over."""


class _Look(Struct):
    """What was found when somebody looked whether a process lives, and when."""

    at: float
    found: bool


class Peers:
    """This process among those of one server."""

    def __init__(self, store: Store, server: str) -> None:
        self.store = store
        self.identity = _new_identity()
        self._server = server
        self._news = Bulletin(store, self.key("news"), ttl=NEWS_TTL)
        self._observers: list[PeerObserver] = []
        self._subscriptions: Subscriptions | None = None
        self._nursery: trio.Nursery | None = None
        self._lost: dict[str, _Look] = {}
        self._existing: dict[str, _Look] = {}
        self._numbers = count(1)

    def key(self, kind: str, name: str = "") -> str:
        """Return a key of this server in the store."""
        return f"{kind}:{self._server}:{name}"

    def new_name(self) -> str:
        """Return a name that belongs to this process: see `process_of`."""
        return f"{self.identity.id}.{next(self._numbers)}"

    def observe(self, observer: PeerObserver) -> None:
        """Call an observer with each message from now on."""
        self._observers.append(observer)

    def stop_observing(self, observer: PeerObserver) -> None:
        """Call an observer no more."""
        self._observers.remove(observer)

    # Running

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Be one of the server's processes for as long as this is entered."""
        self.identity = _new_identity()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            follow_news = partial(self._news.follow, self._receive, self._missed)
            await nursery.start(follow_news)
            await nursery.start(self._be)
            yield
            with trio.move_on_after(FAREWELL, shield=True):
                await self._leave()
            nursery.cancel_scope.cancel()

    def start_soon(self, function: Callable[[], Awaitable[object]]) -> None:
        """Do something in the background, for as long as this process runs."""
        if self._nursery is not None:
            self._nursery.start_soon(_contained, function)

    async def _be(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Hold a lease of one id after the other, and receive messages to it."""
        while True:
            identity = self.identity
            name = self.key("inbox", identity.id)
            inbox = Bulletin(self.store, name, ttl=INBOX_TTL)
            async with trio.open_nursery() as nursery:
                follow = partial(inbox.follow, self._receive, self._missed)
                await nursery.start(follow)
                await nursery.start(self._hold, identity)
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await identity.lost.wait()
                nursery.cancel_scope.cancel()
            log.warning("this process was declared lost; its requests are canceled")
            self.identity = _new_identity()
            for observer in list(self._observers):
                observer.lost_identity(identity)

    async def _hold(
        self,
        identity: Identity,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hold the lease of an identity until it is lost."""
        while not identity.lost.is_set():
            try:
                await self._renew(identity)
                seconds = RENEW
            except StoreUnavailable as problem:
                log.debug("the process's lease is not renewed: %s", problem.reason)
                seconds = RETRY
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep(seconds)

    async def _renew(self, identity: Identity) -> None:
        """Acquire or renew the lease of an identity, or note that it is lost."""
        name = self.key("process", identity.id)
        if identity.lease is None:
            identity.lease = await self.store.acquire(name, LEASE)
            if identity.lease is None:
                # It was acquired before, but the acknowledgment was lost.
                identity.lost.set()
                return
            identity.held.set()
        try:
            await self.store.renew(identity.lease, LEASE)
        except LeaseLost:
            identity.lost.set()
            return
        await self.store.write(name, b"", ttl=RECORD)

    async def _leave(self) -> None:
        """Let the others know at once that this process is gone."""
        identity = self.identity
        try:
            await self._declare_lost(identity.id)
            await self.store.delete(self.key("process", identity.id))
            if identity.lease is not None:
                await self.store.release(identity.lease)
        except StoreUnavailable as problem:
            log.debug("no farewell: %s", problem.reason)

    # Messages

    async def post(self, message: AnyMessage) -> None:
        """Tell all processes, this one too. Raises StoreUnavailable."""
        await self._news.post(encode_message(message))

    def post_soon(self, message: AnyMessage) -> None:
        """Tell all processes as soon as the store is there."""
        self.start_soon(partial(until_available, partial(self.post, message)))

    async def send(self, process: str, message: AnyMessage) -> None:
        """Tell one process, if it exists. Raises StoreUnavailable."""
        if await self.exists(process):
            name = self.key("inbox", process)
            inbox = Bulletin(self.store, name, ttl=INBOX_TTL)
            await inbox.post(encode_message(message))

    def send_soon(self, process: str, message: AnyMessage) -> None:
        """Tell one process as soon as the store is there."""
        self.start_soon(partial(until_available, partial(self.send, process, message)))

    def _receive(self, data: bytes) -> None:
        message = decode_message(data)
        if isinstance(message, Changed):
            if self._subscriptions is not None:
                is_own = message.process == self.identity.id
                audience = Audience.SHARED if is_own else Audience.ALL
                self._subscriptions.announce(message.topics, audience)
            return
        for observer in list(self._observers):
            observer.heard(message)

    def _missed(self) -> None:
        log.warning("messages of other processes were lost in the store")
        for observer in list(self._observers):
            observer.missed_messages()

    # Changes of lists and resources

    def relay_changes_for(self, subscriptions: Subscriptions) -> None:
        """Announce the changes at all processes to the clients of this one."""
        self._subscriptions = subscriptions
        subscriptions.relay = self

    def announce(self, topics: list[Topic]) -> None:
        """Tell all processes of changes at this one."""
        self.post_soon(Changed(topics, self.identity.id))

    # Other processes

    async def exists(self, process: str) -> bool:
        """Return whether there is, or lately was, a process of this name."""
        if process == self.identity.id:
            return True
        look = self._existing.get(process)
        if look is None or look.at + FRESH < trio.current_time():
            found = await self.store.read(self.key("process", process))
            look = _Look(trio.current_time(), found is not None)
            _remember(self._existing, process, look)
        return look.found

    async def is_lost(self, process: str) -> bool:
        """Return whether a process was lost. From then on it cannot write any more.

        Raises StoreUnavailable.
        """
        now = trio.current_time()
        look = self._lost.get(process)
        if look is not None and (look.found or now < look.at + FRESH):
            return look.found
        # Others that ask during the wait need not look too.
        _remember(self._lost, process, _Look(now, found=False))
        found = await self._look_for(process)
        _remember(self._lost, process, _Look(trio.current_time(), found))
        return found

    async def turns_out_lost(self, process: str) -> bool:
        """Return whether a process is lost already, which may not be known yet.

        This takes as long as a lease.
        """
        await trio.sleep(LEASE + FRESH)
        return await until_available(partial(self.is_lost, process))

    async def _look_for(self, process: str) -> bool:
        if await self.store.read(self.key("lost", process)) is not None:
            return True
        lease = await self.store.acquire(self.key("process", process), LEASE)
        if lease is None:
            return False
        log.warning("process %s was lost", process)
        await self._declare_lost(process)
        return True

    async def _declare_lost(self, process: str) -> None:
        await self.store.write(self.key("lost", process), b"", ttl=REMEMBERED)


def process_of(name: str) -> str:
    """Return the id of the process that has made a name."""
    return name.partition(".")[0]


# Processes that are remembered at once.
MOST_LOOKS = 1000


def _remember(looks: dict[str, _Look], process: str, look: _Look) -> None:
    """Keep a look, and forget the oldest one if there are too many."""
    looks.pop(process, None)
    if len(looks) >= MOST_LOOKS:
        del looks[next(iter(looks))]
    looks[process] = look


def _new_identity() -> Identity:
    return Identity(secrets.token_hex(6), trio.Event(), trio.Event())


async def _contained(function: Callable[[], Awaitable[object]]) -> None:
    """Do something whose failure must not end the process."""
    try:
        await function()
    except Exception:
        log.exception("work for other processes has failed")
