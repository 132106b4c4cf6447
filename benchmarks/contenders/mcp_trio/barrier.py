"""mcp_trio on stdio, with one tool that holds its calls: `barrier.py`."""

import trio

from mcp_trio import Server

server = Server("barrier", "1")


class Barrier:
    """Holds calls until there are enough of them."""

    def __init__(self) -> None:
        self._calls = 0
        self._complete = trio.Event()

    def join(self, number: int) -> trio.Event:
        """Return an event that is set when `number` calls have joined."""
        self._calls += 1
        complete = self._complete
        if self._calls == number:
            complete.set()
            # The next call starts a new group.
            self._calls = 0
            self._complete = trio.Event()
        return complete


barrier = Barrier()


@server.tool
async def meet(n: int) -> str:
    """Wait until n calls do."""
    await barrier.join(n).wait()
    return str(n)


if __name__ == "__main__":
    server.run()
