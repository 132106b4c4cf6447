"""The stdio transport: one message per line, to and from the process of a server."""

from __future__ import annotations

import math
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from ..protocol.framing import LineDecoder, VerbatimLineDecoder

# The client accepts messages of any size, but the decoder requires a limit.
_NO_LIMIT = 2**62
_CHUNK = 2**16


class LineWire:
    """A wire to a server's standard input and output.

    `run` must be running in a nursery. `process` is the server's process, if the wire
    belongs to one. If the wire is `verbatim`, `receive` returns each line as it is, and
    blank lines too.
    """

    def __init__(
        self,
        stdin: trio.abc.SendStream,
        stdout: trio.abc.ReceiveStream,
        process: trio.Process | None = None,
        *,
        verbatim: bool = False,
    ) -> None:
        self.process = process
        self._stdin = stdin
        self._stdout = stdout
        self._outgoing, self._to_write = trio.open_memory_channel[bytes](math.inf)
        self._lines: LineDecoder | VerbatimLineDecoder = LineDecoder(limit=_NO_LIMIT)
        if verbatim:
            self._lines = VerbatimLineDecoder()

    async def receive(self) -> list[bytes | None]:
        """Wait for messages and return all complete ones."""
        while True:
            chunk = await self._stdout.receive_some(_CHUNK)
            if not chunk:
                return self._lines.end()
            messages = self._lines.feed(bytes(chunk))
            if messages:
                return messages

    def send(self, message: bytes) -> None:
        """Queue a message."""
        self.write(message + b"\n")

    def write(self, data: bytes) -> None:
        """Queue bytes that are written at once: part of a line, or several lines."""
        self._outgoing.send_nowait(data)

    def end_input(self) -> None:
        """Close the server's input when all queued bytes are written."""
        self._outgoing.close()

    async def run(self) -> None:
        """Write the queued bytes until `end_input` is called."""
        # If the server has exited, `receive` notices it: the output has ended.
        with suppress(trio.BrokenResourceError):
            async with self._stdin:
                async for data in self._to_write:
                    await self._stdin.send_all(data)


@asynccontextmanager
async def open_stdio(
    command: Sequence[str], *, patience: float = 2.0, verbatim: bool = False
) -> AsyncIterator[LineWire]:
    """Start a command and open a wire to it. Raises OSError.

    On exit, the server's input is closed. The process has `patience` seconds to exit
    before it is killed.
    """
    try:
        process = await trio.lowlevel.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as error:
        raise type(error)(f"{command[0]} cannot be started: {error.strerror}") from None
    assert process.stdio is not None
    stdio = process.stdio
    wire = LineWire(stdio.send_stream, stdio.receive_stream, process, verbatim=verbatim)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.run)
        try:
            yield wire
        finally:
            wire.end_input()
            with trio.CancelScope(shield=True):
                await _wait_or_kill(process, patience)
            nursery.cancel_scope.cancel()


async def _wait_or_kill(process: trio.Process, patience: float) -> None:
    with trio.move_on_after(patience):
        await process.wait()
    process.kill()
    await process.wait()
