"""TODO"""

from __future__ import annotations

import math
import subprocess
from collections.abc import (
    AsyncIterator,
    Sequence,
)
from contextlib import (
    asynccontextmanager,
    suppress,
)

import trio

from ..protocol.framing import LineDecoder


class LineWire:
    """Messages by line, to and from a server's standard input and output; `run` must be running in a nursery."""

    process: trio.Process | None = None

    def __init__(
        self, stdin: trio.abc.SendStream, stdout: trio.abc.ReceiveStream
    ) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._outgoing, self._to_write = trio.open_memory_channel[bytes](math.inf)
        self._lines = LineDecoder(
            limit=2**62
        )  # a server's answers are not ours to bound

    async def receive(self) -> list[bytes | None]:
        """Every message that is complete."""
        while chunk := await self._stdout.receive_some(2**16):
            if messages := self._lines.feed(bytes(chunk)):
                return messages
        return self._lines.end()

    def send(self, message: bytes) -> None:
        """Queue one message."""
        self.write(message + b"\n")

    def write(self, data: bytes) -> None:
        """Queue what is written in one go: a part of a line, or many lines."""
        self._outgoing.send_nowait(data)

    def end_input(self) -> None:
        """Let the server's input end, behind what is queued."""
        self._outgoing.close()

    async def run(self) -> None:
        """Write what is queued, until the input has ended."""
        # A server that is gone is told to whoever waits for its answers by the end of its output.
        with suppress(trio.BrokenResourceError):
            async with self._stdin:
                async for data in self._to_write:
                    await self._stdin.send_all(data)


@asynccontextmanager
async def start(
    command: Sequence[str], *, patience: float = 2.0
) -> AsyncIterator[LineWire]:
    """Start a server as a process of its own. Leaving ends its input, waits that long for it, and then ends it."""
    try:
        process = await trio.lowlevel.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except OSError as error:
        raise type(error)(f"{command[0]} cannot be started: {error.strerror}") from None
    assert process.stdio is not None
    wire = LineWire(process.stdio.send_stream, process.stdio.receive_stream)
    wire.process = process
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.run)
        try:
            yield wire
        finally:
            wire.end_input()
            with trio.CancelScope(shield=True):
                with trio.move_on_after(patience):
                    await process.wait()
                process.kill()
                await process.wait()
            nursery.cancel_scope.cancel()
