"""One client on standard input and output.

They are read and written in the loop, without threads where the system allows it.
"""

import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress

import trio

from ..protocol.framing import LineDecoder
from . import pipe_size
from .awake import AwakeWait
from .send_queue import SendQueue

_CHUNK = 256 * 1024
# Reads without waiting, which costs more than a read. Then other tasks get their turn.
_READS_AT_ONCE = 8
# Seconds between two looks at whether anybody still reads, after the end of the input.
_GLANCE = 0.05
# Seconds until another attempt to read, if there was no memory for it.
_PAUSE = 0.05
# The loop cannot wait for pipes there.
_WITH_THREADS = sys.platform == "win32"


@contextmanager
def claim() -> Iterator[tuple[int, int]]:
    """Reserve standard input and output for messages.

    Yields private descriptors for reading and for writing. Until this is left, fd 0 is
    empty and fd 1 is stderr, so no print, `os.write(1, ...)` or child process can write
    between the messages.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:
        # Closed at the start, so other files may have these numbers now.
        raise OSError("standard input and output must be open to be served on")
    stdout = sys.stdout
    null = os.open(os.devnull, os.O_RDWR)
    # Unlike fd 0 and 1, the copies are not inherited by child processes.
    reading = os.dup(0)
    writing = os.dup(1)
    try:
        os.dup2(null, 0)
        os.dup2(2 if sys.__stderr__ else null, 1)
        # Earlier output is redirected to stderr too, which may be broken.
        with suppress(OSError, ValueError):
            stdout.flush()
        with redirect_stdout(sys.stderr):
            yield reading, writing
    finally:
        with suppress(OSError, ValueError):
            stdout.flush()
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        for descriptor in (reading, writing, null):
            os.close(descriptor)


def _get_blocking(fd: int) -> bool:
    return sys.platform == "win32" or os.get_blocking(fd)


def _set_blocking(fd: int, blocking: bool) -> None:
    if sys.platform != "win32":
        os.set_blocking(fd, blocking)


class Pipe:
    """A pipe, a socket or a terminal that the loop waits for; or a file.

    epoll refuses files, but reading one does not block for long.

    Whether a descriptor blocks is a property of the open file, which other processes
    may share, so it is restored in the end. A terminal, which is shared with the shell
    and with stderr, is left as it is: once it is ready, its only reader need not wait.
    """

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        is_terminal = os.isatty(fd)
        self.fd = fd
        is_pipe = stat.S_ISFIFO(mode)
        self._can_wait = is_terminal or is_pipe or stat.S_ISSOCK(mode)
        self._may_be_too_small = is_pipe
        self._was_blocking = _get_blocking(fd)
        self._most_at_once = 0 if is_terminal else _READS_AT_ONCE
        self._at_once = 0  # reads that are still allowed before the next wait
        self._awake = AwakeWait()
        self._is_stopped = False
        _set_blocking(fd, self._was_blocking and is_terminal)

    async def read(self, *, answered: bool) -> bytes:
        """Wait for input and return it; nothing at the end.

        A client that has its answers may be waited for awake, for a moment.
        """
        self._awake.begin()
        while not self._is_stopped:
            self._at_once -= 1
            if self._at_once < 0:
                if answered and self._awake.goes_on():
                    await trio.lowlevel.checkpoint()
                else:
                    self._at_once = self._most_at_once
                    await self._wait()
            try:
                chunk = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                self._at_once = 0
            else:
                if self._most_at_once:
                    self._awake.end()
                if self._may_be_too_small and len(chunk) >= pipe_size.DEFAULT:
                    self._enlarge()
                return chunk
        return b""

    async def _wait(self) -> None:
        if self._can_wait:
            await trio.lowlevel.wait_readable(self.fd)
        else:
            await trio.lowlevel.checkpoint()

    def try_write(self, block: memoryview) -> int:
        """Write what can be written at once. Returns how much that was."""
        try:
            written = os.write(self.fd, block)
        except BlockingIOError:
            return 0
        if self._may_be_too_small and written < len(block):
            self._enlarge()
        return written

    async def write(self, block: memoryview) -> int:
        """Wait until more can be written at once. Returns 0: nothing was written."""
        if self._can_wait:
            await trio.lowlevel.wait_writable(self.fd)
        return 0

    def _enlarge(self) -> None:
        """Make a pipe larger that was full. Once is enough."""
        self._may_be_too_small = False
        pipe_size.enlarge(self.fd)

    def is_hung_up(self) -> bool:
        """Return whether it is certain that nobody reads this output."""
        if sys.platform == "win32":
            return False
        poll = select.poll()
        # Errors and hang-ups are reported without being asked for.
        poll.register(self.fd, 0)
        return bool(poll.poll(0))

    def stop(self) -> None:
        """Make a `read` that waits return or raise, asleep or awake."""
        self._is_stopped = True
        trio.lowlevel.notify_closing(self.fd)

    def restore(self) -> None:
        """Leave the descriptor as it was."""
        _set_blocking(self.fd, self._was_blocking)


class ThreadedPipe:
    """A descriptor that the loop cannot wait for.

    A thread waits instead, and is abandoned if need be.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._limiter = trio.CapacityLimiter(1)
        self._reading = trio.CancelScope()

    async def read(self, *, answered: bool) -> bytes:
        """Wait for input and return it; nothing at the end."""
        with trio.CancelScope() as self._reading:
            return await trio.to_thread.run_sync(
                os.read, self.fd, _CHUNK, abandon_on_cancel=True, limiter=self._limiter
            )
        return b""

    def try_write(self, block: memoryview) -> int:
        """Write nothing, as it might block."""
        return 0

    async def write(self, block: memoryview) -> int:
        """Write, and return how much was written."""
        return await trio.to_thread.run_sync(
            os.write, self.fd, block, abandon_on_cancel=True, limiter=self._limiter
        )

    def is_hung_up(self) -> bool:
        """Return False: this cannot be seen here."""
        return False

    def stop(self) -> None:
        """Make a `read` that waits return."""
        self._reading.cancel()

    def restore(self) -> None:
        """Do nothing, because nothing was changed."""


class StdioWire(SendQueue):
    """Messages, one per line, over two descriptors.

    `run` must be running in a nursery, which `open_wire` takes care of. If the client
    is gone, for reading or for writing, the input ends and messages are dropped.
    """

    def __init__(self, source: Pipe | ThreadedPipe, sink: Pipe | ThreadedPipe) -> None:
        super().__init__()
        self._source = source
        self._sink = sink
        self._lines = LineDecoder()
        self.input_over = trio.Event()
        self._answered = False  # whether the last turn had replies
        # From when `receive` returns to the next flush, the writer need not be woken.
        self._in_turn = False

    async def receive(self) -> list[bytes | None]:
        """Wait for messages and return every complete one; nothing at the end.

        Queued messages are flushed first. If there is input already, only one call in a
        few is a checkpoint.
        """
        self.flush()
        while not self.input_over.is_set():
            try:
                chunk = await self._source.read(answered=self._answered)
            except MemoryError:
                # Requests end, and clients of other transports give up what they hold.
                await trio.sleep(_PAUSE)
                continue
            except (OSError, trio.ClosedResourceError):
                # Reset, hung up, or stopped from this side.
                chunk = b""
            if not chunk and not self.input_over.is_set():
                self.input_over.set()
                return self._lines.end()
            messages = self._lines.feed(chunk)
            if messages:
                self._in_turn = True
                return messages
        return []

    def send(self, message: bytes) -> None:
        """Queue one message."""
        self.put(message)
        if not self._in_turn:
            self.wake()

    def flush(self) -> None:
        """End the reader's turn: try to write the queue in one write.

        The writer does the rest.
        """
        if self._in_turn:
            self._in_turn = False
            self._answered = self.size > 0
        if self.size:
            try:
                self.gone(self._sink.try_write(self.block()))
            except OSError:
                self._lose_client()
            if self.size:
                self.wake()

    async def run(self) -> None:
        """Write messages that were queued outside of turns, or left by a flush."""
        while not self.closed or self.size:
            await self.wait()
            self.flush()
            if self.size:
                try:
                    self.gone(await self._sink.write(self.block()))
                except OSError:
                    self._lose_client()

    def end_input(self) -> None:
        """Read no more: a `receive` that waits returns the end. Replies still leave."""
        self.input_over.set()
        self._source.stop()

    async def wind_up(self, everything: trio.CancelScope, grace: float) -> None:
        """After the end of the input, give running requests the grace; then cancel all.

        Without a reader of the replies there is no grace period.
        """
        await self.input_over.wait()
        everything.deadline = trio.current_time() + grace
        while not self._sink.is_hung_up():  # noqa: ASYNC110 - nothing reports it
            await trio.sleep(_GLANCE)
        everything.cancel()

    async def aclose(self) -> None:
        """Write out what is queued, and leave the descriptors as they were, open.

        Cancel this if a client that reads slowly must not hold it up.
        """
        try:
            self.flush()
            self.close()
            self.high_water = 0  # so that `drained` waits until everything has left
            await self.drained()
        finally:
            self._lose_client()
            # Before the source, which may be the same open file.
            self._sink.restore()
            self._source.restore()

    def _lose_client(self) -> None:
        """Write and read no more, because nobody is there."""
        self.close(discard=True)
        self.end_input()


@asynccontextmanager
async def open_wire(
    reading: int, writing: int, *, threads: bool = _WITH_THREADS
) -> AsyncIterator[StdioWire]:
    """Open a wire over two descriptors, which stay open.

    Its reader must end each turn: what is sent between a `receive` and the next `flush`
    or `receive` stays queued. Leaving it writes out what is queued; cancel it if a
    client that does not read must not hold that up.
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
