"""One client on standard input and output.

The event loop reads and writes them, without threads where the system allows it.
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
from .busy_wait import BusyWait
from .send_queue import SendQueue

_CHUNK = 256 * 1024
# Reads without a wait in between, which costs more than a read. After that, other tasks
# get their turn. While polling, that many reads may find nothing: with one client that
# sends its next call as soon as it has a reply, a round trip takes 20 % less time than
# with a turn of the others before each read.
_READS_AT_ONCE = 8
# After the end of the input: seconds between checks whether the output is still read.
_HANG_UP_INTERVAL = 0.05
# Seconds before another attempt to read when there was not enough memory.
_RETRY_DELAY = 0.05
# The event loop cannot wait for pipes on Windows.
_NEEDS_THREADS = sys.platform == "win32"


@contextmanager
def claim() -> Iterator[tuple[int, int]]:
    """Reserve standard input and output for messages.

    Yields private descriptors for reading and for writing. Inside the block, fd 0 is
    empty and fd 1 is stderr, so no print, `os.write(1, ...)` or child process can write
    between the messages.
    """
    if sys.__stdin__ is None or sys.__stdout__ is None:
        # They were closed at the start, so other files may have these numbers now.
        raise OSError(
            "stdio: expected standard input and output to be open, got closed ones; "
            "start the process with both, or serve HTTP"
        )
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
    """A pipe, a socket or a terminal that the event loop waits for; or a file.

    epoll does not support files, but reading a file does not block for long.

    Whether a descriptor blocks is a property of the open file, which other processes
    may share, so `restore` sets it back. A terminal, which is shared with the shell and
    with stderr, is not changed: a read from it does not block once it is readable.
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
        self._busy_wait = BusyWait()
        self._is_stopped = False
        _set_blocking(fd, self._was_blocking and is_terminal)

    async def read(self, *, answered: bool) -> bytes:
        """Wait for input and return it, or empty bytes at the end.

        If the client has been answered, this may poll for a moment before it sleeps.
        """
        self._busy_wait.begin()
        is_polling = False
        while not self._is_stopped:
            self._at_once -= 1
            if self._at_once < 0:
                self._at_once = self._most_at_once
                is_polling = answered and self._busy_wait.should_poll()
                if is_polling:
                    await trio.lowlevel.checkpoint()
                else:
                    await self._wait()
            try:
                chunk = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                if not is_polling:
                    self._at_once = 0
            else:
                if self._most_at_once:
                    self._busy_wait.end()
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
        """Write what can be written without waiting. Returns the number of bytes."""
        try:
            written = os.write(self.fd, block)
        except BlockingIOError:
            return 0
        if self._may_be_too_small and written < len(block):
            self._enlarge()
        return written

    async def write(self, block: memoryview) -> int:
        """Wait until more can be written. Returns 0, because nothing was written."""
        if self._can_wait:
            await trio.lowlevel.wait_writable(self.fd)
        return 0

    def _enlarge(self) -> None:
        """Make a pipe larger, the first time that it is full."""
        self._may_be_too_small = False
        pipe_size.enlarge(self.fd)

    def is_hung_up(self) -> bool:
        """Return whether it is certain that this output has no reader any more."""
        if sys.platform == "win32":
            return False
        poll = select.poll()
        # Errors and hang-ups are always reported.
        poll.register(self.fd, 0)
        return bool(poll.poll(0))

    def stop(self) -> None:
        """Make a waiting `read` return or raise."""
        self._is_stopped = True
        trio.lowlevel.notify_closing(self.fd)

    def restore(self) -> None:
        """Reset the descriptor to its original mode."""
        _set_blocking(self.fd, self._was_blocking)


class ThreadedPipe:
    """A descriptor that the event loop cannot wait for.

    A thread waits for it instead, and is abandoned on cancellation.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._limiter = trio.CapacityLimiter(1)
        self._reading = trio.CancelScope()

    async def read(self, *, answered: bool) -> bytes:
        """Wait for input and return it, or empty bytes at the end."""
        with trio.CancelScope() as self._reading:
            return await trio.to_thread.run_sync(
                os.read, self.fd, _CHUNK, abandon_on_cancel=True, limiter=self._limiter
            )
        return b""

    def try_write(self, block: memoryview) -> int:
        """Write nothing, because a write might block."""
        return 0

    async def write(self, block: memoryview) -> int:
        """Write, and return the number of bytes written."""
        return await trio.to_thread.run_sync(
            os.write, self.fd, block, abandon_on_cancel=True, limiter=self._limiter
        )

    def is_hung_up(self) -> bool:
        """Return False, because this cannot be detected here."""
        return False

    def stop(self) -> None:
        """Make a waiting `read` return."""
        self._reading.cancel()

    def restore(self) -> None:
        """Do nothing, because nothing was changed."""


class StdioWire(SendQueue):
    """Messages, one per line, over two descriptors.

    `run` must be running in a nursery; `open_wire` does that. If the client closes
    either side, the input ends and messages are dropped.
    """

    def __init__(self, source: Pipe | ThreadedPipe, sink: Pipe | ThreadedPipe) -> None:
        super().__init__()
        self._source = source
        self._sink = sink
        self._lines = LineDecoder()
        self.input_ended = trio.Event()
        self._answered = False  # whether the last turn had replies
        # Set from when `receive` returns until the next flush. Until then, the writer
        # need not be woken.
        self._in_turn = False

    async def receive(self) -> list[bytes | None]:
        """Wait for messages and return all complete ones, or an empty list at the end.

        Queued messages are flushed first. While there is input, only one call in
        several is a checkpoint.
        """
        self.flush()
        while not self.input_ended.is_set():
            try:
                chunk = await self._source.read(answered=self._answered)
            except MemoryError:
                # Memory is freed as requests finish.
                await trio.sleep(_RETRY_DELAY)
                continue
            except (OSError, trio.ClosedResourceError):
                # Reset or hung up by the client, or stopped by `end_input`.
                chunk = b""
            if not chunk and not self.input_ended.is_set():
                self.input_ended.set()
                return self._lines.end()
            messages = self._lines.feed(chunk)
            if messages:
                self._in_turn = True
                return messages
        return []

    def send(self, message: bytes) -> None:
        """Queue a message."""
        self.put(message)
        if not self._in_turn:
            self.wake()

    def flush(self) -> None:
        """End the reader's turn: try to write the whole queue in one write.

        The writer writes what remains.
        """
        if self._in_turn:
            self._in_turn = False
            self._answered = self.size > 0
        if self.size:
            try:
                self.mark_written(self._sink.try_write(self.next_block()))
            except OSError:
                self._disconnect()
            if self.size:
                self.wake()

    async def run(self) -> None:
        """Write messages that were queued outside of turns, or left by a flush."""
        while not self.closed or self.size:
            await self.wait()
            self.flush()
            if self.size:
                try:
                    self.mark_written(await self._sink.write(self.next_block()))
                except OSError:
                    self._disconnect()

    def end_input(self) -> None:
        """Stop reading: a waiting `receive` returns. Replies are still written."""
        self.input_ended.set()
        self._source.stop()

    async def cancel_after_input(
        self, everything: trio.CancelScope, grace: float
    ) -> None:
        """Cancel everything when the grace period after the end of the input is over.

        There is no grace period if the replies have no reader.
        """
        await self.input_ended.wait()
        everything.deadline = trio.current_time() + grace
        while not self._sink.is_hung_up():  # noqa: ASYNC110 - nothing reports it
            await trio.sleep(_HANG_UP_INTERVAL)
        everything.cancel()

    async def aclose(self) -> None:
        """Write what is queued, and restore the descriptors without closing them.

        Cancel this if a client that reads slowly must not delay it.
        """
        try:
            self.flush()
            self.close()
            self.high_water = 0  # so that `drained` waits until all is written
            await self.drained()
        finally:
            self._disconnect()
            # Before the source, which may be the same open file.
            self._sink.restore()
            self._source.restore()

    def _disconnect(self) -> None:
        """Stop reading and writing, because the client has disconnected."""
        self.close(discard=True)
        self.end_input()


@asynccontextmanager
async def open_wire(
    reading: int, writing: int, *, threads: bool = _NEEDS_THREADS
) -> AsyncIterator[StdioWire]:
    """Open a wire over two descriptors, which are not closed at the end.

    Its reader must end each turn: what is sent between a `receive` and the next `flush`
    or `receive` stays queued. Leaving the block writes what is queued; cancel that if a
    client that does not read must not delay it.
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
