"""A trio loop with a task for each message, which waits once: `tasks.py stdio`.

All replies of one pass of the loop are sent in one write.
"""

import trio
from answers import answer


class Writer:
    """Combines the replies of one pass of the loop."""

    def __init__(self, stdout: trio.lowlevel.FdStream) -> None:
        self._stdout = stdout
        self._replies: list[bytes] = []
        self._has_some = trio.Event()

    def put(self, replies: list[bytes]) -> None:
        """Queue the answers to one message."""
        self._replies += replies
        self._has_some.set()

    async def run(self) -> None:
        """Write replies until it is cancelled."""
        while True:
            await self._has_some.wait()
            self._has_some = trio.Event()
            lines = [reply + b"\n" for reply in self._replies]
            self._replies.clear()
            await self._stdout.send_all(b"".join(lines))


async def respond(line: bytes, writer: Writer) -> None:
    """Answer a message after one pass of the loop."""
    await trio.lowlevel.checkpoint()
    writer.put(answer(line))


async def main() -> None:
    """Start a task for each message, until the input ends."""
    rest = b""
    stdin = trio.lowlevel.FdStream(0)
    writer = Writer(trio.lowlevel.FdStream(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        async for chunk in stdin:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                nursery.start_soon(respond, line, writer)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
