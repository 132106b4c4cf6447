"""The messages between the parent and a worker, over a Unix socket."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, TypeAlias

import msgspec
import trio
from msgspec import Struct

from ..stores.operations import FrameReader, encode_frame

# How many bytes are read at once.
CHUNK = 65536
LOST = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


# From the parent to a worker


class Begin(Struct, tag=True, frozen=True):
    """The configuration of a worker. This is always the first message."""

    worker: int
    # The options of the command line, by name.
    options: dict[str, Any]
    import_path: list[str]
    # Transport -> the file descriptors of the sockets to listen on.
    listeners: dict[str, list[int]]
    # The file descriptor of a pipe that the parent never writes to, so that it is at
    # its end when the parent has ended.
    lifeline: int


class Stop(Struct, tag=True, frozen=True):
    """Stop: when running requests have finished, or immediately.

    `is_for_all` says whether all workers are stopping.
    """

    is_for_all: bool
    at_once: bool = False


class ReportMetrics(Struct, tag=True, frozen=True):
    """Send a `MetricsPage`."""


class CheckAlive(Struct, tag=True, frozen=True):
    """Send `Alive`, to show that the event loop is not blocked."""


class AllMetrics(Struct, tag=True, frozen=True):
    """The metrics of all workers, for the `CollectMetrics` with this number."""

    number: int
    page: bytes


# From a worker to the parent


class Ready(Struct, tag=True, frozen=True):
    """The worker is serving. `grace` is the grace period of its server in seconds."""

    server: str
    urls: list[str]
    grace: float


class Alive(Struct, tag=True, frozen=True):
    """The reply to `CheckAlive`."""


class MetricsPage(Struct, tag=True, frozen=True):
    """The metrics of this worker."""

    page: bytes


class CollectMetrics(Struct, tag=True, frozen=True):
    """Send `AllMetrics` with this number."""

    number: int


Message: TypeAlias = (
    Begin
    | Stop
    | ReportMetrics
    | CheckAlive
    | AllMetrics
    | Ready
    | Alive
    | MetricsPage
    | CollectMetrics
)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class WorkerChannel:
    """Sends and receives messages over one end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(end))
        self._reader = FrameReader()
        self._received: deque[bytes] = deque()
        self._sending = trio.StrictFIFOLock()

    async def send(self, message: Message) -> None:
        """Send a message. Does nothing if the other process has ended."""
        try:
            async with self._sending:
                await self._stream.send_all(encode_frame(message))
        except LOST:
            pass

    async def receive(self) -> Message | None:
        """Wait for a message. Returns None if the other process has ended."""
        while not self._received:
            try:
                data = await self._stream.receive_some(CHUNK)
            except LOST:
                return None
            if not data:
                return None
            self._received += self._reader.feed(bytes(data))
        return _decoder.decode(self._received.popleft())

    async def aclose(self) -> None:
        """Close this end."""
        await self._stream.aclose()


def receive_begin(end: socket.socket) -> Begin:
    """Wait for the first message, before the event loop starts. Raises EOFError.

    The parent sends nothing else before the worker is ready.
    """
    reader = FrameReader()
    while True:
        data = end.recv(CHUNK)
        if not data:
            raise EOFError("the parent process has ended")
        for frame in reader.feed(data):
            begin = _decoder.decode(frame)
            assert isinstance(begin, Begin)
            return begin
