"""One client on standard input and output, read and written in the loop, without threads where the system allows it."""

import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from typing import TextIO

import trio

from mcp_trio.transports.lines import Lines
from mcp_trio.transports.outbox import Outbox

_CHUNK = 256 * 1024
_READS_AT_ONCE = 8  # without waiting, which costs more than a read; then other tasks get their turn
_NOTHING = memoryview(b"")
_GLANCE = 0.05  # seconds between two looks whether anybody still reads; only from the end of the input on
_WITH_THREADS = sys.platform == "win32"  # where the loop cannot wait for pipes


@contextmanager
def claim() -> Iterator[tuple[int, int]]:
    """Takes standard input and output for the wire alone; gives its private descriptors, for reading and for writing.

    Until it is left, fd 0 is empty and fd 1 is stderr, so that no print, `os.write(1, ...)` or child process gets at
    the wire.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:  # closed at the start: anything may have these numbers now
        raise OSError("standard input and output must be open to be served on")
    stdout = sys.stdout
    null = os.open(os.devnull, os.O_RDWR)
    reading, writing = os.dup(0), os.dup(1)  # not inherited by child processes
    try:
        os.dup2(null, 0)
        os.dup2(2 if sys.__stderr__ else null, 1)
        _flush(stdout)  # what was printed before goes to stderr too
        with redirect_stdout(sys.stderr):
            yield reading, writing
    finally:
        _flush(stdout)
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        for descriptor in (reading, writing, null):
            os.close(descriptor)


def _flush(stream: TextIO) -> None:
    with suppress(OSError, ValueError):  # stderr may be broken, the stream closed
        stream.flush()


class _File:
    """A descriptor on which nothing waits, such as a regular file or the null device: epoll refuses it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    async def read(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return os.read(self.descriptor, _CHUNK)

    def try_write(self, block: memoryview) -> int:
        """Writes what can be written at once and says how much that was."""
        return os.write(self.descriptor, block)

    async def write(self, block: memoryview) -> int:
        """Waits until something can be written, and writes it."""
        await trio.lowlevel.checkpoint()
        return self.try_write(block)

    def is_hung_up(self) -> bool:
        """Whether it is certain that nobody reads what is written here."""
        return False

    def stop(self) -> None:
        """Makes a `read` that waits return or raise."""

    def restore(self) -> None:
        """Leaves the descriptor as it was."""


class _Pipe(_File):
    """A pipe, a socket or a terminal: the loop waits for it.

    Non-blocking is a property of the open file, which others share: it is put back in the end. A terminal, shared with
    the shell and with stderr, is left as it is: once it is ready, it does not keep its only reader waiting.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._blocking = os.get_blocking(descriptor)
        self._most_at_once = 0 if os.isatty(descriptor) else _READS_AT_ONCE
        self._at_once = 0  # reads still allowed before the next wait
        if not os.isatty(descriptor):
            os.set_blocking(descriptor, False)

    async def read(self) -> bytes:
        while True:
            if self._at_once == 0:
                await trio.lowlevel.wait_readable(self.descriptor)
                self._at_once = self._most_at_once
            else:
                self._at_once -= 1
            try:
                return os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                self._at_once = 0

    def try_write(self, block: memoryview) -> int:
        try:
            return os.write(self.descriptor, block)
        except BlockingIOError:
            return 0

    async def write(self, block: memoryview) -> int:
        await trio.lowlevel.wait_writable(self.descriptor)
        return self.try_write(block)

    def is_hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self.descriptor, 0)  # an error and a hang-up are told unasked
        return bool(poll.poll(0))

    def stop(self) -> None:
        trio.lowlevel.notify_closing(self.descriptor)

    def restore(self) -> None:
        os.set_blocking(self.descriptor, self._blocking)


class _Threaded(_File):
    """A descriptor that the loop cannot wait for: a thread of its own does, and is left behind if need be."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._thread = trio.CapacityLimiter(1)
        self._reading = trio.CancelScope()

    async def read(self) -> bytes:
        with trio.CancelScope() as self._reading:
            return await trio.to_thread.run_sync(
                os.read, self.descriptor, _CHUNK, abandon_on_cancel=True, limiter=self._thread
            )
        return b""

    def try_write(self, block: memoryview) -> int:
        return 0

    async def write(self, block: memoryview) -> int:
        return await trio.to_thread.run_sync(
            os.write, self.descriptor, block, abandon_on_cancel=True, limiter=self._thread
        )

    def stop(self) -> None:
        self._reading.cancel()


def _open(descriptor: int, threads: bool) -> _File:
    if threads:
        return _Threaded(descriptor)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        return _Pipe(descriptor)
    return _File(descriptor)


class StdioWire:
    """Messages by line over two descriptors; `run` must be running in a nursery, as `open_wire` sees to.

    When the client is gone, for reading or for writing, the input ends, and what is still sent is dropped.
    """

    def __init__(self, source: _File, sink: _File) -> None:
        self._source = source
        self._sink = sink
        self._lines = Lines()
        self._outbox = Outbox()
        self._block = _NOTHING  # joined messages, begun to be written
        self.input_over = trio.Event()
        self._in_turn = False  # from when `receive` returns to the next flush: the writer need not be woken
        self._writer_at_work = False
        self._all_written = trio.Event()

    async def receive(self) -> list[bytes | None]:
        """Every message that is complete with what has come, at least one; empty at the end of the input.

        What is queued is flushed first. Not every call is a checkpoint: where input is there already, one in a few is.
        """
        self.flush()
        while not self.input_over.is_set():
            chunk = await self._read()
            messages = self._lines.feed(chunk) if chunk else self._end()
            if messages:
                self._in_turn = True
                return messages
        return []

    def send(self, message: bytes) -> None:
        """Queues one message."""
        self._outbox.put(message)
        if not self._in_turn:
            self._outbox.wake()

    def flush(self) -> None:
        """Ends the reader's turn: tries to write what is queued in one write, and leaves the rest to the writer."""
        self._in_turn = False
        if self._outbox.size == 0 or self._writer_at_work:
            return
        try:
            self._written(self._sink.try_write(self._load()))
        except OSError:
            self._lose_client()
        if self._outbox.size:
            self._outbox.wake()

    async def drained(self) -> None:
        """Returns when the queue is below the high-water mark: at once, without a checkpoint, if it is already."""
        if self._outbox.is_full:
            self.flush()
            await self._outbox.drained()

    async def run(self) -> None:
        """The writer: sends on what was queued outside the reader's turn, and what did not go out at once."""
        while not self._outbox.closed or self._outbox.size:
            await self._outbox.wait()
            self.flush()
            self._writer_at_work = True
            while self._outbox.size:
                try:
                    self._written(await self._sink.write(self._load()))
                except OSError:
                    self._lose_client()
            self._writer_at_work = False
        self._all_written.set()

    def end_input(self) -> None:
        """Takes in no more: a `receive` that waits returns the end. Replies still go out."""
        self.input_over.set()
        self._source.stop()

    async def unheard(self) -> None:
        """Returns when the input is over and nobody can read the replies any more either."""
        await self.input_over.wait()
        while not self._sink.is_hung_up():  # noqa: ASYNC110 - the system tells nobody who does not look
            await trio.sleep(_GLANCE)

    async def aclose(self) -> None:
        """Writes out what is queued, then ends the input. Whoever cannot wait for a slow client cancels it."""
        self.flush()
        self._outbox.close()
        try:
            if self._outbox.size:
                await self._all_written.wait()
        finally:
            self._lose_client()

    async def _read(self) -> bytes:
        try:
            return await self._source.read()
        except (OSError, trio.ClosedResourceError):  # reset, hung up, or stopped from this side
            return b""

    def _end(self) -> list[bytes | None]:
        if self.input_over.is_set():
            return []
        self.input_over.set()
        return self._lines.end()

    def _load(self) -> memoryview:
        """What is to be written next: the rest of what was begun, or everything queued."""
        if not self._block:
            self._block = memoryview(b"\n".join([*self._outbox.take(), b""]))
        return self._block

    def _written(self, size: int) -> None:
        if self._block:  # not given up meanwhile
            self._block = self._block[size:] or _NOTHING  # so that what is written is not kept
            self._outbox.gone(size)

    def _lose_client(self) -> None:
        """Nobody reads any more: nothing is written, and a `receive` that waits returns the end."""
        self._block = _NOTHING
        self._outbox.close(discard=True)
        self.end_input()


@asynccontextmanager
async def open_wire(reading: int, writing: int, *, threads: bool = _WITH_THREADS) -> AsyncIterator[StdioWire]:
    """A wire over two descriptors, which stay open. Leaving it writes out what is queued.

    Its reader must end each turn: what is sent between a `receive` and the next `flush` or `receive` stays queued.
    Where a client that does not read must not hold up the leaving, cancel it.
    """
    source, sink = _open(reading, threads), _open(writing, threads)
    wire = StdioWire(source, sink)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.run)
            try:
                yield wire
            finally:
                await wire.aclose()
                nursery.cancel_scope.cancel()
    finally:
        sink.restore()  # before the source, which may be the same open file
        source.restore()


@asynccontextmanager
async def open_stdio(*, threads: bool = _WITH_THREADS) -> AsyncIterator[StdioWire]:
    """The wire on standard input and output, which it has for itself until it is left."""
    with claim() as (reading, writing):
        async with open_wire(reading, writing, threads=threads) as wire:
            yield wire
