"""One client on standard input and output, read and written in the loop, without threads where the system allows it."""

import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from functools import partial
from time import perf_counter

import trio

from ..protocol.framing import LineDecoder
from ..server.runner import AWAKE
from .send_queue import SendQueue

_CHUNK = 256 * 1024
_READS_AT_ONCE = (
    8  # without waiting, which costs more than a read; then other tasks get their turn
)
_GLANCE = 0.05  # seconds between two looks whether anybody still reads; only from the end of the input on
_WITH_THREADS = sys.platform == "win32"  # where the loop cannot wait for pipes


@contextmanager
def claim() -> Iterator[tuple[int, int]]:
    """Takes standard input and output for the wire alone; gives its private descriptors, for reading and for writing.

    Until it is left, fd 0 is empty and fd 1 is stderr, so that no print, `os.write(1, ...)` or child process gets at
    the wire.
    """
    if (
        sys.__stdin__ is None or sys.__stdout__ is None
    ):  # closed at the start: anything may have these numbers now
        raise OSError("standard input and output must be open to be served on")
    stdout = sys.stdout
    null = os.open(os.devnull, os.O_RDWR)
    reading, writing = os.dup(0), os.dup(1)  # not inherited by child processes
    try:
        os.dup2(null, 0)
        os.dup2(2 if sys.__stderr__ else null, 1)
        with suppress(OSError, ValueError):  # stderr may be broken, the stream closed
            stdout.flush()  # what was printed before goes to stderr too
        with redirect_stdout(sys.stderr):
            yield reading, writing
    finally:
        with suppress(OSError, ValueError):
            stdout.flush()
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        for descriptor in (reading, writing, null):
            os.close(descriptor)


class Pipe:
    """A pipe, a socket or a terminal: the loop waits for it. On a file, which epoll refuses, nothing waits.

    Non-blocking is a property of the open file, which others share: it is put back in the end. A terminal, shared with
    the shell and with stderr, is left as it is: once it is ready, it does not keep its only reader waiting.
    """

    def __init__(self, fd: int) -> None:
        mode, terminal = os.fstat(fd).st_mode, os.isatty(fd)
        self.fd = fd
        self._waits = terminal or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self._readable = (
            partial(trio.lowlevel.wait_readable, fd)
            if self._waits
            else trio.lowlevel.checkpoint
        )
        self._blocking = os.get_blocking(fd)
        self._most_at_once = 0 if terminal else _READS_AT_ONCE
        self._at_once = 0  # reads still allowed before the next wait
        self._is_quick = False  # whether what was last read came within a moment
        os.set_blocking(fd, self._blocking and terminal)

    async def read(self, *, answered: bool) -> bytes:
        """Waits for what can be read; nothing at the end.

        For a client that has its answers, and was quick to go on when it last had, it waits awake for a moment.
        """
        awake_until = perf_counter() + AWAKE
        while True:
            self._at_once -= 1
            if self._at_once < 0:
                if answered and self._is_quick and perf_counter() < awake_until:
                    await trio.lowlevel.checkpoint()
                else:
                    self._at_once = self._most_at_once
                    await self._readable()
            try:
                chunk = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                self._at_once = 0
            else:
                self._is_quick = self._most_at_once > 0 and perf_counter() < awake_until
                return chunk

    def try_write(self, block: memoryview) -> int:
        """Writes what can be written at once and says how much that was."""
        try:
            return os.write(self.fd, block)
        except BlockingIOError:
            return 0

    async def write(self, block: memoryview) -> int:
        """Waits until more can be written at once; says how much of the block was written by this alone."""
        if self._waits:
            await trio.lowlevel.wait_writable(self.fd)
        return 0

    def is_hung_up(self) -> bool:
        """Whether it is certain that nobody reads what is written here."""
        poll = select.poll()
        poll.register(self.fd, 0)  # an error and a hang-up are told unasked
        return bool(poll.poll(0))

    def stop(self) -> None:
        """Makes a `read` that waits return or raise."""
        trio.lowlevel.notify_closing(self.fd)

    def restore(self) -> None:
        """Leaves the descriptor as it was."""
        os.set_blocking(self.fd, self._blocking)


class ThreadedPipe:
    """A descriptor that the loop cannot wait for: a thread of its own does, and is left behind if need be."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._thread = trio.CapacityLimiter(1)
        self._reading = trio.CancelScope()

    async def read(self, *, answered: bool) -> bytes:
        with trio.CancelScope() as self._reading:
            return await trio.to_thread.run_sync(
                os.read, self.fd, _CHUNK, abandon_on_cancel=True, limiter=self._thread
            )
        return b""

    def try_write(self, block: memoryview) -> int:
        return 0

    async def write(self, block: memoryview) -> int:
        return await trio.to_thread.run_sync(
            os.write, self.fd, block, abandon_on_cancel=True, limiter=self._thread
        )

    def is_hung_up(self) -> bool:
        return False

    def stop(self) -> None:
        self._reading.cancel()

    def restore(self) -> None:
        """Nothing was changed."""


class StdioWire(SendQueue):
    """Messages by line over two descriptors; `run` must be running in a nursery, as `open_wire` sees to.

    When the client is gone, for reading or for writing, the input ends, and what is still sent is dropped.
    """

    def __init__(self, source: Pipe | ThreadedPipe, sink: Pipe | ThreadedPipe) -> None:
        super().__init__()
        self._source = source
        self._sink = sink
        self._lines = LineDecoder()
        self.input_over = trio.Event()
        self._answered = False  # whether the last turn had replies
        self._in_turn = False  # from when `receive` returns to the next flush: the writer need not be woken

    async def receive(self) -> list[bytes | None]:
        """Every message that is complete with what has come, at least one; empty at the end of the input.

        What is queued is flushed first. Not every call is a checkpoint: where input is there already, one in a few is.
        """
        self.flush()
        while not self.input_over.is_set():
            try:
                chunk = await self._source.read(answered=self._answered)
            except (
                OSError,
                trio.ClosedResourceError,
            ):  # reset, hung up, or stopped from this side
                chunk = b""
            if not chunk and not self.input_over.is_set():
                self.input_over.set()
                return self._lines.end()
            if messages := self._lines.feed(chunk):
                self._in_turn = True
                return messages
        return []

    def send(self, message: bytes) -> None:
        """Queues one message."""
        self.put(message)
        if not self._in_turn:
            self.wake()

    def flush(self) -> None:
        """Ends the reader's turn: tries to write what is queued in one write, and leaves the rest to the writer."""
        if self._in_turn:
            self._in_turn, self._answered = False, self.size > 0
        if self.size:
            try:
                self.gone(self._sink.try_write(self.block()))
            except OSError:
                self._lose_client()
            if self.size:
                self.wake()

    async def run(self) -> None:
        """The writer: sends on what was queued outside the reader's turn, and what did not go out at once."""
        while not self.closed or self.size:
            await self.wait()
            self.flush()
            if self.size:
                try:
                    self.gone(await self._sink.write(self.block()))
                except OSError:
                    self._lose_client()

    def end_input(self) -> None:
        """Takes in no more: a `receive` that waits returns the end. Replies still go out."""
        self.input_over.set()
        self._source.stop()

    async def wind_up(self, everything: trio.CancelScope, grace: float) -> None:
        """Once the input is over, what runs, and a client that is slow to read, get the grace; then all is cancelled.

        There is none where nobody can read the replies any more either.
        """
        await self.input_over.wait()
        everything.deadline = trio.current_time() + grace
        while not self._sink.is_hung_up():  # noqa: ASYNC110 - the system tells nobody who does not look
            await trio.sleep(_GLANCE)
        everything.cancel()

    async def aclose(self) -> None:
        """Writes out what is queued, ends the input, and leaves the descriptors as they were, open.

        Whoever cannot wait for a slow client cancels it.
        """
        try:
            self.flush()
            self.close()
            self.high_water = 0  # everything is to go
            await self.drained()
        finally:
            self._lose_client()
            self._sink.restore()  # before the source, which may be the same open file
            self._source.restore()

    def _lose_client(self) -> None:
        """Nobody reads any more: nothing is written, and a `receive` that waits returns the end."""
        self.close(discard=True)
        self.end_input()


@asynccontextmanager
async def open_wire(
    reading: int, writing: int, *, threads: bool = _WITH_THREADS
) -> AsyncIterator[StdioWire]:
    """A wire over two descriptors, which stay open. Leaving it writes out what is queued.

    Its reader must end each turn: what is sent between a `receive` and the next `flush` or `receive` stays queued.
    Where a client that does not read must not hold up the leaving, cancel it.
    """
    kind = ThreadedPipe if threads else Pipe
    wire = StdioWire(kind(reading), kind(writing))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.run)
        try:
            yield wire
        finally:
            await wire.aclose()
            nursery.cancel_scope.cancel()
