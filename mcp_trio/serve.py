"""The one nursery: transports start, signals, drain, stop."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from .server.app import Server
from .server.dispatch import converse

if TYPE_CHECKING:
    from .transports.stdio import StdioWire


async def serve(
    server: Server,
    *,
    stdio: bool | tuple[int, int] = False,
    http: str | int | None = None,
    http_engine: str = "native",
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    """Serve until the input ends (where stdio is served: its owner is gone) or a signal comes; then stop in order.

    Whoever has claimed standard input and output already gives the descriptors as `stdio`. `http` is `[HOST:]PORT`;
    the options of `serve_http` go with it, and `http_engine`, which is native or hypercorn. Started in a nursery, it
    gives the URLs that it serves.
    """
    if not stdio and http is None:
        raise ValueError("nothing to serve on: say stdio=True or http='127.0.0.1:8000'")
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            serving, stopping = trio.Event(), trio.Event()
            nursery.start_soon(_stop_on_signal, signals, serving, stopping, nursery.cancel_scope)
            async with server.running():
                serving.set()
                async with trio.open_nursery() as transports:
                    bound: list[tuple[str, int]] = []
                    if http is not None:
                        start = partial(_engine(http_engine), server, *address(http), stopping=stopping, **options)
                        bound = await transports.start(start)
                    task_status.started([_url(*one, **options) for one in bound])
                    if stdio:
                        await _serve_stdio(server, stdio, stopping)
                        stopping.set()
                nursery.cancel_scope.deadline = trio.current_time() + server.grace  # for the end of the lifespan
            nursery.cancel_scope.cancel()
        if not serving.is_set():  # a signal came before: that is an end, no failure to start
            task_status.started([])


def address(text: str | int) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`; without a host it is this machine alone. Raises ValueError."""
    host, _, port = str(text).rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(f"[HOST:]PORT is wanted, such as 8000 or 127.0.0.1:8000, not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _url(host: str, port: int, path: str = "/mcp", tls: object = None, **options: Any) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{name}:{port}/{path.strip('/')}"


def _engine(name: str) -> Callable[..., Awaitable[None]]:
    if name == "hypercorn":
        from .transports.http.asgi import serve_hypercorn

        return serve_hypercorn
    from .transports.http.native import serve_http

    return serve_http


async def _stop_on_signal(
    signals: AsyncIterator[int], serving: trio.Event, stopping: trio.Event, everything: trio.CancelScope
) -> None:
    """The first signal stops in order, a second one, or one that comes before anything is served, at once.

    The next one kills: a tool or a lifespan that does not let itself be cancelled.
    """
    async for number in signals:
        if stopping.is_set() or not serving.is_set():
            everything.cancel()
            signal.signal(number, signal.SIG_DFL)
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
