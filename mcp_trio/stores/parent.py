"""The store of a parent process, which its workers use over a Unix socket.

The parent serves a store with `serve_store`. A worker uses it as a `ParentStore`, which
multiplexes all operations over one connection.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
import trio
from msgspec import Struct

from ..server.limits import Rate
from ..server.shared_state import StoreStatistics
from . import operations
from .base import (
    Lease,
    LeaseLost,
    LogPage,
    QueuedJob,
    Record,
    Store,
    StoreUnavailable,
)
from .operations import FrameReader, Operation, StoreCall
from .subscription import Inbox

log = logging.getLogger("mcp_trio")

# How many bytes are read at once.
CHUNK = 65536
# Seconds between attempts to connect to the parent. They double up to the maximum.
MIN_BACKOFF = 0.05
MAX_BACKOFF = 1.0

LOST = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ValueError)


class _FrameWriter:
    """Writes frames to a stream. Queued frames are written together."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._unsent = bytearray()
        self._changed = trio.lowlevel.ParkingLot()

    def put(self, frame: bytes) -> None:
        """Queue a frame."""
        self._unsent += frame
        self._changed.unpark_all()

    async def run(self) -> None:
        """Write frames until the stream is closed."""
        while True:
            while not self._unsent:
                await self._changed.park()
            data = bytes(self._unsent)
            self._unsent.clear()
            await self._stream.send_all(data)


# In the parent


async def serve_store(
    store: Store,
    path: str,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a store to the processes that connect to a Unix socket at a path.

    Any process that can open the socket can use the store, so it must be in a private
    folder.
    """
    if sys.platform == "win32":
        raise RuntimeError("a store cannot be served to workers on Windows")
    listening = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await listening.bind(path)
    listening.listen()
    listeners = [trio.SocketListener(listening)]
    task_status.started()
    await trio.serve_listeners(partial(_serve_worker, store), listeners)


async def _serve_worker(store: Store, stream: trio.SocketStream) -> None:
    try:
        async with stream, trio.open_nursery() as nursery:
            writer = _FrameWriter(stream)
            nursery.start_soon(writer.run)
            await _Worker(store, writer, nursery).receive(stream)
            nursery.cancel_scope.cancel()
    except* LOST as problems:
        log.debug("a worker was lost: %r", problems)


class _Worker:
    """The parent's side of the connection to one worker."""

    def __init__(
        self, store: Store, writer: _FrameWriter, nursery: trio.Nursery
    ) -> None:
        self._store = store
        self._writer = writer
        self._nursery = nursery
        # Number of a call that can be cancelled -> its cancel scope.
        self._scopes: dict[int, trio.CancelScope] = {}

    async def receive(self, stream: trio.SocketStream) -> None:
        """Handle the worker's calls until it closes the connection."""
        reader = FrameReader()
        while True:
            data = await stream.receive_some(CHUNK)
            if not data:
                return
            for frame in reader.feed(data):
                await self._handle(operations.decode_call(frame))

    async def _handle(self, call: StoreCall) -> None:
        operation = call.operation
        if isinstance(operation, operations.Cancel):
            scope = self._scopes.get(operation.call)
            if scope is not None:
                scope.cancel()
        elif isinstance(operation, operations.Subscribe):
            await self._nursery.start(self._subscribe, call.number, operation.channels)
        elif isinstance(operation, operations.Pull):
            self._nursery.start_soon(self._wait, call.number, operation)
        else:
            await self._run(call.number, operation)

    async def _run(self, number: int, operation: Operation) -> None:
        try:
            result = await operation.run(self._store)
        except LeaseLost as lost:
            self._reply(number, operations.LEASE_LOST, lost.args[0])
        else:
            self._reply(number, operations.DONE, result)

    async def _wait(self, number: int, operation: Operation) -> None:
        """Run an operation that can be cancelled."""
        with trio.CancelScope() as scope:
            self._scopes[number] = scope
            await self._run(number, operation)
        del self._scopes[number]
        if scope.cancelled_caught:
            self._reply(number, operations.DONE, None)

    async def _subscribe(
        self, number: int, channels: list[str], *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Forward the messages of channels until the worker cancels this."""
        with trio.CancelScope() as scope:
            self._scopes[number] = scope
            async with self._store.subscribe(*channels) as subscription:
                self._reply(number, operations.DONE, None)
                task_status.started()
                while True:
                    messages = await subscription.receive()
                    self._reply(number, operations.MESSAGES, messages)
        del self._scopes[number]

    def _reply(self, number: int, kind: int, value: object) -> None:
        self._writer.put(operations.encode_reply(number, kind, value))


# In a worker


class _Pending(Struct, eq=False):
    """A call whose reply has not arrived."""

    operation: Operation
    settled: trio.Event
    value: Any = None
    problem: Exception | None = None
    # Whether the call was cancelled, so that nobody waits for the reply.
    is_abandoned: bool = False


class _Subscribed(Struct, eq=False):
    """A subscription, and the number of its call on this connection."""

    channels: list[str]
    inbox: Inbox
    number: int = 0


class ParentStore:
    """A worker's connection to the store of its parent.

    While it is disconnected, operations fail immediately, and it tries to reconnect.
    """

    is_shared = True

    def __init__(self, path: str) -> None:
        self.statistics = StoreStatistics()
        self._path = path
        self._writer: _FrameWriter | None = None
        self._numbers = 0
        self._pending: dict[int, _Pending] = {}
        self._subscribed: set[_Subscribed] = set()
        self._by_number: dict[int, _Subscribed] = {}
        self._has_tried = trio.Event()

    @property
    def is_available(self) -> bool:
        """Whether there is a connection."""
        return self._writer is not None

    # The connection

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stay connected inside this block."""
        self._has_tried = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_connected)
            await self._has_tried.wait()
            yield
            nursery.cancel_scope.cancel()

    async def _keep_connected(self) -> None:
        backoff = MIN_BACKOFF
        was_connected = False
        while True:
            try:
                async with await trio.open_unix_socket(self._path) as stream:
                    self.statistics.reconnections += was_connected
                    was_connected = True
                    backoff = MIN_BACKOFF
                    await self._use(stream)
            except* LOST as problems:
                log.debug("the parent's store: %r", problems)
            self._disconnect()
            self._has_tried.set()
            await trio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF)

    async def _use(self, stream: trio.SocketStream) -> None:
        """Receive replies until the connection is lost."""
        async with trio.open_nursery() as nursery:
            writer = _FrameWriter(stream)
            nursery.start_soon(writer.run)
            self._writer = writer
            for subscribed in self._subscribed:
                self._begin(subscribed)
                subscribed.inbox.note_gap()
            self._has_tried.set()
            reader = FrameReader()
            while True:
                data = await stream.receive_some(CHUNK)
                if not data:
                    break
                for frame in reader.feed(data):
                    self._handle(operations.decode_reply(frame))
            nursery.cancel_scope.cancel()

    def _disconnect(self) -> None:
        """Let all pending calls fail."""
        self._writer = None
        self._by_number.clear()
        for pending in self._pending.values():
            pending.problem = StoreUnavailable(
                "the connection to the parent process was lost"
            )
            pending.settled.set()
        self._pending.clear()

    def _handle(self, reply: operations.StoreReply) -> None:
        if reply.kind == operations.MESSAGES:
            self._deliver(reply)
            return
        pending = self._pending.pop(reply.number, None)
        if pending is None:
            return
        if reply.kind == operations.LEASE_LOST:
            pending.problem = LeaseLost(msgspec.msgpack.decode(reply.value))
        else:
            kind = pending.operation.result
            pending.value = msgspec.msgpack.decode(reply.value, type=kind)
        pending.settled.set()
        if pending.is_abandoned and isinstance(pending.value, QueuedJob):
            self._send(operations.GiveBack(pending.value))

    def _deliver(self, reply: operations.StoreReply) -> None:
        subscribed = self._by_number.get(reply.number)
        if subscribed is None:
            return
        messages = msgspec.msgpack.decode(reply.value, type=list[bytes])
        if not messages:
            subscribed.inbox.note_gap()
        for message in messages:
            subscribed.inbox.deliver(message)

    def _send(self, operation: operations.AnyOperation) -> int:
        """Send a call, and return its number. Raises StoreUnavailable."""
        if self._writer is None:
            raise StoreUnavailable("not connected to the parent process")
        self._numbers += 1
        self._writer.put(operations.encode_frame(StoreCall(self._numbers, operation)))
        return self._numbers

    async def _call(self, operation: operations.AnyOperation) -> Any:
        """Send a call, and wait for its result."""
        return await self._result(self._send(operation), operation)

    async def _result(self, number: int, operation: operations.AnyOperation) -> Any:
        began = perf_counter()
        pending = self._pending[number] = _Pending(operation, trio.Event())
        try:
            await pending.settled.wait()
        except trio.Cancelled:
            pending.is_abandoned = True
            if isinstance(operation, operations.Pull):
                self._cancel(number)
            raise
        self.statistics.operations += 1
        if not isinstance(operation, operations.Pull):
            self.statistics.seconds += perf_counter() - began
        if pending.problem is not None:
            self.statistics.errors += isinstance(pending.problem, StoreUnavailable)
            raise pending.problem
        return pending.value

    def _cancel(self, number: int) -> None:
        """Cancel a call, if the worker is still connected."""
        if self._writer is not None:
            self._send(operations.Cancel(number))

    # Records

    async def read(self, key: str) -> Record | None:
        """Return the record under a key, unless it has expired."""
        record: Record | None = await self._call(operations.Read(key))
        return record

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
        operation = operations.Write(key, value, ttl, expected, lease)
        version: int | None = await self._call(operation)
        return version

    async def touch(self, key: str, ttl: float) -> bool:
        """Set a record's time to live. Returns False if the record does not exist."""
        exists: bool = await self._call(operations.Touch(key, ttl))
        return exists

    async def delete(self, key: str) -> None:
        """Delete a record, if it exists."""
        await self._call(operations.Delete(key))

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
        last: int = await self._call(
            operations.Append(log, data, entries, size, ttl, position, lease)
        )
        return last

    async def delete_log(self, log: str) -> None:
        """Delete a log, if it exists."""
        await self._call(operations.DeleteLog(log))

    async def read_log(self, log: str, after: int = 0) -> LogPage:
        """Return the entries of a log after a position."""
        page: LogPage = await self._call(operations.ReadLog(log, after))
        return page

    # Channels

    async def publish(self, channel: str, message: bytes) -> None:
        """Send a message to the current subscribers of a channel."""
        await self._call(operations.Publish(channel, message))

    @asynccontextmanager
    async def subscribe(self, *channels: str) -> AsyncIterator[Inbox]:
        """Subscribe to channels inside this block."""
        subscribed = _Subscribed(list(channels), Inbox())
        self._subscribed.add(subscribed)
        try:
            try:
                operation, number = self._begin(subscribed)
                await self._result(number, operation)
            except StoreUnavailable:
                subscribed.inbox.note_gap()
            yield subscribed.inbox
        finally:
            self._subscribed.discard(subscribed)
            if self._by_number.pop(subscribed.number, None) is not None:
                self._cancel(subscribed.number)

    def _begin(self, subscribed: _Subscribed) -> tuple[operations.Subscribe, int]:
        """Subscribe on this connection. Raises StoreUnavailable."""
        operation = operations.Subscribe(subscribed.channels)
        subscribed.number = self._send(operation)
        self._by_number[subscribed.number] = subscribed
        return operation, subscribed.number

    # Rates

    async def take(self, bucket: str, rate: Rate, weight: float = 1.0) -> float:
        """Take from a bucket. See `Store.take`."""
        wait: float = await self._call(operations.Take(bucket, rate, weight))
        return wait

    # Leases

    async def acquire(self, key: str, seconds: float) -> Lease | None:
        """Lease a key. Returns None if it is already leased."""
        lease: Lease | None = await self._call(operations.Acquire(key, seconds))
        return lease

    async def renew(self, lease: Lease, seconds: float) -> None:
        """Extend a lease to so many seconds from now. Raises LeaseLost."""
        await self._call(operations.Renew(lease, seconds))

    async def release(self, lease: Lease) -> None:
        """Release a lease. Does nothing if it was already released or lost."""
        await self._call(operations.Release(lease))

    # Queues

    async def push(
        self, queue: str, data: bytes, *, hold: float | None = None
    ) -> QueuedJob | None:
        """Add an item to a queue. See `Store.push`."""
        job: QueuedJob | None = await self._call(operations.Push(queue, data, hold))
        return job

    async def pull(self, queue: str, seconds: float) -> QueuedJob:
        """Wait for an item, and lease it for so many seconds. See `Store.pull`."""
        job: QueuedJob = await self._call(operations.Pull(queue, seconds))
        return job

    async def begin(self, job: QueuedJob) -> None:
        """Note that an item is begun. Raises LeaseLost."""
        await self._call(operations.BeginJob(job))

    async def done(self, job: QueuedJob) -> None:
        """Remove an item from its queue."""
        await self._call(operations.Done(job))

    async def give_back(self, job: QueuedJob) -> None:
        """Return an item to its queue, as if it had not been pulled."""
        await self._call(operations.GiveBack(job))
