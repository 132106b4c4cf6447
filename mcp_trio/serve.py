"""The one nursery: transports start, signals, drain, stop."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import trio

from .server.dispatch import converse

if TYPE_CHECKING:
    from .server.app import Server
    from .transports.stdio import StdioWire


async def serve(server: Server, *, stdio: bool | tuple[int, int] = False) -> None:
    """Serve until the input ends (where stdio is served: its owner is gone) or a signal comes; then stop in order.

    Whoever has claimed standard input and output already gives the descriptors as `stdio`.
    """
    if not stdio:
        raise ValueError("nothing to serve on: say stdio=True")
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            stopping = trio.Event()
            nursery.start_soon(_stop_on_signal, signals, stopping, nursery.cancel_scope)
            async with server.running():
                await _serve_stdio(server, stdio, stopping)
            nursery.cancel_scope.cancel()


async def _stop_on_signal(signals: AsyncIterator[int], stopping: trio.Event, everything: trio.CancelScope) -> None:
    """The first signal stops in order, a second one at once."""
    async for _ in signals:
        if stopping.is_set():
            everything.cancel()
        stopping.set()


async def _serve_stdio(server: Server, stdio: bool | tuple[int, int], stopping: trio.Event) -> None:
    from .transports.stdio import open_stdio, open_wire

    wiring = open_wire(*stdio) if isinstance(stdio, tuple) else open_stdio()
    with trio.CancelScope() as all_of_it:
        async with wiring as wire, trio.open_nursery() as nursery:
            nursery.start_soon(_end_input, wire, stopping)
            nursery.start_soon(_wind_up, wire, all_of_it, server.grace)
            await converse(server, wire)
            nursery.cancel_scope.cancel()


async def _end_input(wire: StdioWire, stopping: trio.Event) -> None:
    """To stop is to act as if the client had ended its input: what it was owed, it gets."""
    await stopping.wait()
    wire.end_input()


async def _wind_up(wire: StdioWire, all_of_it: trio.CancelScope, grace: float) -> None:
    """What runs, and a client that is slow to read, get the grace; there is none where nobody reads the replies."""
    await wire.input_over.wait()
    all_of_it.deadline = trio.current_time() + grace
    await wire.unheard()
    all_of_it.cancel()
