"""What happens to running tools when the client on stdio leaves.

The clients of the official SDKs close the server's input, send SIGTERM two seconds
later and SIGKILL after two more.
"""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio

from mcp_trio import Server
from mcp_trio.transports.stdio import Pipe

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no SIGTERM that a process can handle"
)


class Office:
    """A server with a slow tool, and a record of what has ended."""

    def __init__(self, *, grace: float, seconds: float) -> None:
        self.server = Server("office", grace=grace)
        self.noted: list[str] = []
        self.begun = trio.Event()
        self._seconds = seconds
        self.server.lifespan(self._lifespan)
        self.server.add_tool(self.work)

    async def _lifespan(self) -> AsyncIterator[None]:
        yield
        await trio.sleep(0.1)
        self.noted.append("the lifespan has ended")

    async def work(self) -> str:
        self.begun.set()
        try:
            await trio.sleep(self._seconds)
        finally:
            self.noted.append("the tool has ended")
        return "done"


class Ends:
    """The descriptors of two pipes: the server's ends and the client's."""

    def __init__(self) -> None:
        self.to_read, self.client_writes = os.pipe()
        self.client_reads, self.to_write = os.pipe()

    def leave(self) -> None:
        """Close the server's input, as a client does first."""
        os.close(self.client_writes)
        self.client_writes = -1


@contextmanager
def pipes() -> Iterator[Ends]:
    ends = Ends()
    try:
        yield ends
    finally:
        for descriptor in vars(ends).values():
            if descriptor >= 0:
                os.close(descriptor)


async def call_work(office: Office, ends: Ends) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "work",
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    }
    os.write(ends.client_writes, json.dumps(message).encode() + b"\n")
    await office.begun.wait()


async def test_a_signal_after_the_end_of_input_cancels_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    office = Office(grace=60, seconds=3600)
    with pipes() as ends:
        async with trio.open_nursery() as nursery:
            stdio = (ends.to_read, ends.to_write)
            await nursery.start(partial(office.server.serve, stdio=stdio))
            await call_work(office, ends)
            ends.leave()
            await trio.sleep(2)
            assert office.noted == []
            signalled = trio.current_time()
            signal.raise_signal(signal.SIGTERM)
        assert trio.current_time() - signalled < 0.5
    assert office.noted == ["the tool has ended", "the lifespan has ended"]


async def test_without_a_signal_the_tool_has_the_grace_after_the_end_of_input(
    autojump_clock: trio.testing.MockClock,
) -> None:
    office = Office(grace=5, seconds=3)
    with pipes() as ends:
        async with trio.open_nursery() as nursery:
            stdio = (ends.to_read, ends.to_write)
            await nursery.start(partial(office.server.serve, stdio=stdio))
            await call_work(office, ends)
            ends.leave()
        reply = await Pipe(ends.client_reads).read(answered=False)
    assert json.loads(reply)["result"]["content"][0]["text"] == "done"
    assert office.noted == ["the tool has ended", "the lifespan has ended"]


async def test_a_signal_before_the_end_of_input_leaves_the_tool_its_grace(
    autojump_clock: trio.testing.MockClock,
) -> None:
    office = Office(grace=5, seconds=3)
    with pipes() as ends:
        async with trio.open_nursery() as nursery:
            stdio = (ends.to_read, ends.to_write)
            await nursery.start(partial(office.server.serve, stdio=stdio))
            await call_work(office, ends)
            signal.raise_signal(signal.SIGTERM)
            await trio.sleep(1)
            ends.leave()
        reply = await Pipe(ends.client_reads).read(answered=False)
    assert json.loads(reply)["result"]["content"][0]["text"] == "done"
