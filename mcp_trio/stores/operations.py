"""The operations of a store, as messages between a worker and its parent.

A frame is a length in four bytes, followed by a MessagePack message of that length: a
`StoreCall` from a worker, or a `StoreReply` from its parent.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ..server.limits import Rate
from .base import Lease, LogPage, QueuedJob, Record, Store

# The maximum size of a frame. Values in a store are much smaller.
MAX_FRAME = 256 * 2**20
_LENGTH_SIZE = 4

# The kinds of replies.
DONE = 0
LEASE_LOST = 1
MESSAGES = 2  # the messages of a subscription, any number of times


class Operation(Struct, array_like=True, tag=True):
    """A call of a store's method. The fields of subclasses are its arguments."""

    # The type of the method's result.
    result: ClassVar[Any] = None

    async def run(self, store: Store) -> object:
        """Call the method."""
        raise NotImplementedError


class Read(Operation):
    """`Store.read`."""

    result: ClassVar = Record | None
    key: str

    async def run(self, store: Store) -> Record | None:
        """Call the method."""
        return await store.read(self.key)


class Write(Operation):
    """`Store.write`."""

    result: ClassVar = int | None
    key: str
    value: bytes
    ttl: float | None
    expected: int | None
    lease: Lease | None

    async def run(self, store: Store) -> int | None:
        """Call the method."""
        return await store.write(
            self.key,
            self.value,
            ttl=self.ttl,
            expected=self.expected,
            lease=self.lease,
        )


class Touch(Operation):
    """`Store.touch`."""

    result: ClassVar = bool
    key: str
    ttl: float

    async def run(self, store: Store) -> bool:
        """Call the method."""
        return await store.touch(self.key, self.ttl)


class Delete(Operation):
    """`Store.delete`."""

    key: str

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.delete(self.key)


class Append(Operation):
    """`Store.append`."""

    result: ClassVar = int
    log: str
    data: tuple[bytes, ...]
    entries: int
    size: int
    ttl: float
    position: int | None
    lease: Lease | None

    async def run(self, store: Store) -> int:
        """Call the method."""
        return await store.append(
            self.log,
            *self.data,
            entries=self.entries,
            size=self.size,
            ttl=self.ttl,
            position=self.position,
            lease=self.lease,
        )


class DeleteLog(Operation):
    """`Store.delete_log`."""

    log: str

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.delete_log(self.log)


class ReadLog(Operation):
    """`Store.read_log`."""

    result: ClassVar = LogPage
    log: str
    after: int

    async def run(self, store: Store) -> LogPage:
        """Call the method."""
        return await store.read_log(self.log, self.after)


class Publish(Operation):
    """`Store.publish`."""

    channel: str
    message: bytes

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.publish(self.channel, self.message)


class Subscribe(Operation):
    """`Store.subscribe`, until it is cancelled."""

    channels: list[str]


class Take(Operation):
    """`Store.take`."""

    result: ClassVar = float
    bucket: str
    rate: Rate
    weight: float

    async def run(self, store: Store) -> float:
        """Call the method."""
        return await store.take(self.bucket, self.rate, self.weight)


class Acquire(Operation):
    """`Store.acquire`."""

    result: ClassVar = Lease | None
    key: str
    seconds: float

    async def run(self, store: Store) -> Lease | None:
        """Call the method."""
        return await store.acquire(self.key, self.seconds)


class Renew(Operation):
    """`Store.renew`."""

    lease: Lease
    seconds: float

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.renew(self.lease, self.seconds)


class Release(Operation):
    """`Store.release`."""

    lease: Lease

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.release(self.lease)


class Push(Operation):
    """`Store.push`."""

    result: ClassVar = QueuedJob | None
    queue: str
    data: bytes
    hold: float | None

    async def run(self, store: Store) -> QueuedJob | None:
        """Call the method."""
        return await store.push(self.queue, self.data, hold=self.hold)


class Pull(Operation):
    """`Store.pull`, which waits. The result is None if it was cancelled."""

    result: ClassVar = QueuedJob | None
    queue: str
    seconds: float

    async def run(self, store: Store) -> QueuedJob:
        """Call the method."""
        return await store.pull(self.queue, self.seconds)


class BeginJob(Operation):
    """`Store.begin`."""

    job: QueuedJob

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.begin(self.job)


class Done(Operation):
    """`Store.done`."""

    job: QueuedJob

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.done(self.job)


class GiveBack(Operation):
    """`Store.give_back`."""

    job: QueuedJob

    async def run(self, store: Store) -> None:
        """Call the method."""
        await store.give_back(self.job)


class Cancel(Operation):
    """Cancel the call with this number. This has no reply."""

    call: int


AnyOperation: TypeAlias = (
    Read
    | Write
    | Touch
    | Delete
    | Append
    | DeleteLog
    | ReadLog
    | Publish
    | Subscribe
    | Take
    | Acquire
    | Renew
    | Release
    | Push
    | Pull
    | BeginJob
    | Done
    | GiveBack
    | Cancel
)


class StoreCall(Struct, array_like=True):
    """An operation, with a number that its replies repeat."""

    number: int
    operation: AnyOperation


class StoreReply(Struct, array_like=True):
    """A reply to a call: the result, the key of a lost lease, or messages."""

    number: int
    kind: int
    value: Raw


_encode = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(StoreCall).decode
decode_reply = msgspec.msgpack.Decoder(StoreReply).decode


def encode_frame(message: object) -> bytes:
    """Encode a message as a frame."""
    data = _encode(message)
    return len(data).to_bytes(_LENGTH_SIZE, "big") + data


def encode_reply(number: int, kind: int, value: object) -> bytes:
    """Encode a reply as a frame."""
    return encode_frame(StoreReply(number, kind, Raw(_encode(value))))


class FrameReader:
    """Splits a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that these bytes complete. Raises ValueError."""
        buffer = self._buffer
        buffer += data
        frames = []
        while len(buffer) >= _LENGTH_SIZE:
            length = int.from_bytes(buffer[:_LENGTH_SIZE], "big")
            if length > MAX_FRAME:
                raise ValueError(
                    f"expected a frame of at most {MAX_FRAME:,} bytes, got {length:,}"
                )
            end = _LENGTH_SIZE + length
            if len(buffer) < end:
                break
            frames.append(bytes(buffer[_LENGTH_SIZE:end]))
            del buffer[:end]
        return frames
