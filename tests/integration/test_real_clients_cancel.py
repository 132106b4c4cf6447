"""Clients of the official SDKs cancel calls over HTTP, and do not poll afterwards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.clients.install import Unavailable, node_modules, python_sdk
from tests.support.http_wire import make_server, site

pytestmark = pytest.mark.integration

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
# A polling client asks once a second.
SECONDS = 5
# What a client of these SDKs tries before it gives up a stream.
MOST_TRIES = 2


class Proxy:
    """Passes connections on to a server, and keeps the heads of GET requests."""

    def __init__(self, port: int) -> None:
        self.heads: list[bytes] = []
        self._port = port

    @property
    def resumptions(self) -> int:
        """How often a client came back for the rest of a stream."""
        return sum(b"\r\nlast-event-id:" in head.lower() for head in self.heads)

    async def serve(self, client: trio.SocketStream) -> None:
        async with (
            client,
            await trio.open_tcp_stream("127.0.0.1", self._port) as to,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._copy, to, client, nursery.cancel_scope)
            await self._copy_requests(client, to)
            nursery.cancel_scope.cancel()

    async def _copy_requests(
        self, client: trio.abc.Stream, to: trio.abc.Stream
    ) -> None:
        try:
            async for chunk in client:
                if chunk.startswith(b"GET "):
                    self.heads.append(bytes(chunk))
                await to.send_all(chunk)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _copy(
        self, to: trio.abc.Stream, client: trio.abc.Stream, scope: trio.CancelScope
    ) -> None:
        try:
            async for chunk in to:
                await client.send_all(chunk)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


@asynccontextmanager
async def proxied_site() -> AsyncIterator[tuple[str, Proxy]]:
    async with site(make_server()) as there, trio.open_nursery() as nursery:
        proxy = Proxy(there.port)
        listeners = await nursery.start(trio.serve_tcp, proxy.serve, 0)
        port = listeners[0].socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp", proxy
        nursery.cancel_scope.cancel()


def command_of(client: str) -> list[str]:
    try:
        if client == "python-v2":
            return [str(python_sdk(2)), str(CLIENTS / "cancelling_python.py")]
        script = node_modules().parent / "cancelling.mjs"
        return ["node", str(script), client[-1]]
    except Unavailable as reason:
        pytest.skip(f"cannot install the client {client}: {reason}")


async def cancel_calls(client: str, tool: str, how: str, count: int) -> int:
    """Have a client cancel calls, and return how often it came back for a stream."""
    command = await trio.to_thread.run_sync(command_of, client)
    async with proxied_site() as (url, proxy):
        with trio.fail_after(SECONDS + 60):
            done = await trio.run_process(
                [*command, url, tool, how, str(count), str(SECONDS)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        assert done.stdout.split() == [b"alive"], done.stderr
        return proxy.resumptions


ALL = ["typescript-v1", "typescript-v2", "python-v2"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize("how", ["abort", "timeout"])
@pytest.mark.parametrize("client", ALL)
async def test_a_client_does_not_resume_a_call_that_had_sent_nothing(
    client: str, how: str, count: int
) -> None:
    assert await cancel_calls(client, "wait", how, count) == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["abort", "timeout"])
@pytest.mark.parametrize("client", ALL)
async def test_a_client_gives_up_the_stream_of_a_cancelled_call(
    client: str, how: str
) -> None:
    assert await cancel_calls(client, "step_and_wait", how, 1) <= MOST_TRIES
