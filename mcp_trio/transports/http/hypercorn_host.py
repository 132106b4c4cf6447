"""TODO"""

import gc
import logging
import socket
from collections.abc import Awaitable, Callable, Sized
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from ...server.app import Server
from .asgi import Application, log
from .service import LAST_WORDS
from .settings import DEFAULT_SETTINGS, HttpSettings


async def serve_hypercorn(
    server: Server,
    host: str,
    port: int,
    *,
    stopping: trio.Event,
    settings: HttpSettings = DEFAULT_SETTINGS,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve as `serve_http` does, with the same settings, by hypercorn: HTTP/2 too.

    Where a client has sent more behind a request that runs (pipelining), hypercorn does not see that it goes away; and
    one that does not read its response keeps its connection for as long as the server runs.
    """
    import hypercorn.trio.run
    from hypercorn.config import Config
    from hypercorn.trio import serve
    from hypercorn.trio.tcp_server import TCPServer

    async def contained(*arguments: Any) -> None:
        """One connection, whose failure, as of an answer to bytes behind the last request, would end the server."""
        try:
            await TCPServer(*arguments)
        except Exception as problem:
            log.debug("a connection failed: %r", problem)

    hypercorn.trio.run.TCPServer = contained  # type: ignore[assignment, attr-defined]
    config, ports = Config(), list[int]()
    config.bind, config.graceful_timeout = [f"{host}:{port}"], LAST_WORDS
    config.certfile, config.keyfile = settings.tls or (None, None)
    application = Application(server, settings)
    config.errorlog = logging.getLogger("hypercorn.error")
    wind_up = partial(
        application.service.wind_up, application.requests
    )  # hypercorn would cut off idle streams only
    trigger = partial(stopped, stopping, wind_up, application.requests, ports)
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(
            partial(serve, application, config, shutdown_trigger=trigger)
        )
        ports += [int(url.rpartition(":")[2]) for url in urls]
        task_status.started([(host, number) for number in ports])


async def stopped(
    stopping: trio.Event,
    wind_up: Callable[[], Awaitable[None]],
    guests: Sized,
    ports: list[int],
) -> None:
    """Wait for the end, and wind up; while guests are there still, end the connections that were accepted there.

    hypercorn's writes to a client that does not read cannot be cancelled, and nothing else leads to its sockets.
    """
    try:
        await stopping.wait()
        await wind_up()
    finally:
        for stream in gc.get_objects() if guests else ():
            with suppress(OSError):
                if (
                    type(stream) is trio.SocketStream
                    and stream.socket.getsockname()[1] in ports
                ):
                    stream.socket.shutdown(socket.SHUT_RDWR)
