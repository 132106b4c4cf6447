"""The one nursery: transports start, signals, drain, stop."""

import gc
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from .auth.principal import owner
from .server import app
from .server.serve_conversation import serve_conversation
from .transports.address import parse_address

if TYPE_CHECKING:
    from .transports.http.asgi import Application
    from .transports.http.settings import HttpSettings

# How many objects are made before the collector looks for circles among them, and how often it looks at older ones.
# Ten thousand requests that wait are half a million objects, none of them to be freed: to look through them again and
# again, as is done by default, would be half of what such a request costs.
COLLECT = (3_000, 10, 50)


class Server(app.Server):
    """Tools, resources and prompts under one name, served to any number of clients."""

    async def serve(self, **where: Any) -> None:
        """Serve until the input ends or the process is told to stop.

        `console=8080` adds a page for people. With `http` go `path`, `allowed_hosts`,
        `allowed_origins`, `cors` and `tls=(certificate, key)`.
        """
        await serve(self, **where)

    def asgi(
        self,
        path: str = "/mcp",
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        cors: bool = False,
    ) -> "Application":
        """Return an ASGI 3 application that serves what `serve` serves over HTTP.

        `path` is the endpoint's path as clients see it. An application that mounts it
        must enter `server.running()` in its own lifespan.
        """
        from .transports.http.asgi import Application
        from .transports.http.settings import HttpSettings

        settings = HttpSettings(
            path=path,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            cors=cors,
        )
        return Application(self, settings)

    def run(self) -> None:
        """Serve on standard input and output, from a program that is not async."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if trio.lowlevel.in_trio_run() or not in_main_thread:
            raise RuntimeError(
                "Server.run() starts a loop in the main thread, as signals come there; "
                "where one runs already: await server.serve(stdio=True)"
            )
        trio.run(lambda: self.serve(stdio=True))


async def serve(
    server: app.Server,
    *,
    stdio: bool | tuple[int, int] = False,
    http: str | int | None = None,
    ws: str | int | None = None,
    console: str | int | None = None,
    http_engine: str = "native",
    path: str = "/mcp",
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    cors: bool = False,
    tls: tuple[str, str] | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until the input ends (where stdio is served: its owner is gone) or a signal comes; then stop in order.

    Whoever has claimed standard input and output already gives the descriptors as `stdio`. `http` is `[HOST:]PORT`,
    where WebSocket is served too; `ws` is a port for WebSocket alone. The options of `serve_http` go with both.
    `http_engine` is native or hypercorn. `console` is where a page for people is served, which sees all messages; its
    address goes to stderr. Started in a nursery, it gives the URLs that it serves.
    """
    if not stdio and http is None and ws is None and console is None:
        raise ValueError("nothing to serve on: say stdio=True or http='127.0.0.1:8000'")
    from .transports.http.settings import HttpSettings

    settings = HttpSettings(
        path=path,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        cors=cors,
        tls=tls,
    )
    serving, stopping = trio.Event(), trio.Event()
    gc.set_threshold(*COLLECT)  # the process is the server's, as are its signals

    async def stop_on_signal() -> None:
        """The first signal stops in order, a second one, or one that comes before anything is served, at once.

        The next one kills: a tool or a lifespan that does not let itself be cancelled.
        """
        async for number in signals:
            if stopping.is_set() or not serving.is_set():
                nursery.cancel_scope.cancel()
                signal.signal(number, signal.SIG_DFL)
            stopping.set()

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_signal)
            async with server.running():
                serving.set()
                async with trio.open_nursery() as transports:
                    urls: list[str] = []
                    if (
                        console is not None
                    ):  # before the others, as it sees those that begin after it
                        from .console.app import serve_console

                        await transports.start(
                            partial(
                                serve_console,
                                server,
                                *parse_address(console),
                                stopping=stopping,
                            )
                        )
                    for scheme, place, engine in (
                        ("http", http, http_engine),
                        ("ws", ws, "websocket"),
                    ):
                        if place is not None:
                            serves = _engine(engine, server, stopping)
                            start = partial(
                                serves,
                                server,
                                *parse_address(place),
                                stopping=stopping,
                                settings=settings,
                            )
                            urls += [
                                _url(scheme, host, port, settings)
                                for host, port in await transports.start(start)
                            ]
                    task_status.started(urls)
                    if stdio:
                        await _serve_stdio(server, stdio, stopping)
                        stopping.set()
                nursery.cancel_scope.deadline = (
                    trio.current_time() + server.grace
                )  # for the end of the lifespan
            nursery.cancel_scope.cancel()
        if (
            not serving.is_set()
        ):  # a signal came before: that is an end, no failure to start
            task_status.started([])


def _url(scheme: str, host: str, port: int, settings: "HttpSettings") -> str:
    name = f"[{host}]" if ":" in host else host
    suffix = "s" if settings.tls else ""
    return f"{scheme}{suffix}://{name}:{port}/{settings.path.strip('/')}"


def _engine(
    name: str, server: app.Server, stopping: trio.Event
) -> Callable[..., Awaitable[None]]:
    """What serves HTTP, or with the name `websocket` nothing but that."""
    if name == "hypercorn":
        from .transports.http.hypercorn_host import serve_hypercorn

        return serve_hypercorn
    from .transports.http.server import serve_http
    from .transports.websocket import serve_websocket

    upgrade = partial(serve_websocket, server, stopping=stopping)
    return partial(serve_http, upgrade=upgrade, upgrades_only=name == "websocket")


async def _serve_stdio(
    server: app.Server, stdio: bool | tuple[int, int], stopping: trio.Event
) -> None:
    from .transports.send_queue import after
    from .transports.stdio import claim, open_wire

    claimed = nullcontext(stdio) if isinstance(stdio, tuple) else claim()
    with claimed as descriptors, trio.CancelScope() as everything:
        async with open_wire(*descriptors) as wire, trio.open_nursery() as nursery:
            # To stop is to act as if the client had ended its input: what it was owed, it gets.
            nursery.start_soon(after, stopping, wire.end_input)
            nursery.start_soon(wire.wind_up, everything, server.grace)
            await serve_conversation(server, wire, owner(), transport="stdio")
            nursery.cancel_scope.cancel()
