"""A trio loop with a task for each message, which waits once: `tasks.py stdio`.

The replies of one turn of the loop leave in one write.
"""

import trio
from answers import answer


class Writer:
    """Joins the replies that are there when it runs."""

    def __init__(self, stdout: trio.lowlevel.FdStream) -> None:
        self._stdout = stdout
        self._replies: list[bytes] = []
        self._has_some = trio.Event()

    def put(self, replies: list[bytes]) -> None:
        """Queue what one message is answered with."""
        self._replies += replies
        self._has_some.set()

    async def run(self) -> None:
        """Write, as long as the process lives."""
        while True:
            await self._has_some.wait()
            self._has_some = trio.Event()
            lines = [reply + b"\n" for reply in self._replies]
            self._replies.clear()
            await self._stdout.send_all(b"".join(lines))


async def respond(line: bytes, writer: Writer) -> None:
    """Answer a message after a turn of the loop."""
    await trio.lowlevel.checkpoint()
    writer.put(answer(line))


async def main() -> None:
    """Read until the input ends."""
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
