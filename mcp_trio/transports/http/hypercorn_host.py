"""Serve ASGI applications by hypercorn, through its public functions only.

hypercorn ends the whole server when one of its connections fails, for example on bytes
that follow a client's last request. So the listening sockets are ours: hypercorn gets a
copy of each, and is started again on new copies.
"""

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import Framework

from ...server.app import Server
from ..address import bind
from .asgi import Application
from .keep_alive import watch_clients
from .service import LAST_WORDS
from .settings import DEFAULT_SETTINGS, HttpSettings

log = logging.getLogger("mcp_trio")

# Seconds before hypercorn is started again after a failure. They double, up to the
# longest pause, while each start fails within a second.
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
SETTLED = 1.0
# Seconds for a client to read what was sent, before the system closes its connection.
# hypercorn itself waits for the client without end, even when it is cancelled.
UNREAD_TIME = 30.0


async def serve_hypercorn(
    server: Server,
    host: str,
    port: int,
    *,
    stopping: trio.Event,
    settings: HttpSettings = DEFAULT_SETTINGS,
    listeners: Sequence[socket.socket] = (),
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve as `serve_http` does, but by hypercorn, which also speaks HTTP/2.

    If a client has sent more bytes behind a request that runs (pipelining), hypercorn
    does not notice when it goes away.
    """
    application = Application(server, settings)
    service = application.service
    listeners = listeners or await bind(host, port)
    ports = [listener.getsockname()[1] for listener in listeners]
    try:
        async with trio.open_nursery() as nursery:
            serving = partial(
                serve_app,
                application,
                limit_unread_time(listeners),
                stopping=stopping,
                # hypercorn itself would only cut off idle connections.
                wind_up=partial(service.wind_up, application.requests),
                tls=settings.tls,
            )
            await nursery.start(serving)
            # A name may have several addresses.
            task_status.started(list(dict.fromkeys((host, port) for port in ports)))
    finally:
        service.close()


def limit_unread_time(listeners: Sequence[socket.socket]) -> Sequence[socket.socket]:
    """Prepare bound sockets for `serve_app`."""
    for listener in listeners:
        watch_clients(listener)
        # Accepted sockets inherit it. Only Linux has this option.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            option = socket.TCP_USER_TIMEOUT
            milliseconds = round(UNREAD_TIME * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, option, milliseconds)
    return listeners


async def serve_app(
    app: Framework,
    listeners: Sequence[socket.socket],
    *,
    stopping: trio.Event,
    wind_up: Callable[[], Awaitable[None]],
    tls: tuple[str, str] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until `stopping` is set and `wind_up` has returned.

    `listeners` are bound sockets, which this closes at the end. When a connection's
    failure ends hypercorn, it is started again; requests that were running are lost. A
    failure before it has begun to listen is raised.
    """

    async def stopped() -> None:
        await stopping.wait()
        await wind_up()

    status = _ListeningStatus(task_status)
    pause = FIRST_PAUSE
    try:
        while True:
            status.since = None
            try:
                config = _config(listeners, tls)
                await serve(app, config, shutdown_trigger=stopped, task_status=status)
                return
            except Exception as problem:
                if status.since is None:
                    raise
                cause = _first_cause(problem)
            if stopping.is_set():
                log.error("hypercorn failed while it stopped: %r", cause)
                return
            log.error("hypercorn failed, and is started again: %r", cause)
            if trio.current_time() - status.since > SETTLED:
                pause = FIRST_PAUSE
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    finally:
        for listener in listeners:
            listener.close()


def _first_cause(problem: BaseException) -> BaseException:
    """Return the first exception in nested groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


class _ListeningStatus:
    """Takes from hypercorn the news that it listens, and passes on the first."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self.since: float | None = None  # when it began to listen
        self._task_status = task_status
        self._is_told = False

    def started(self, value: list[str] | None = None) -> None:
        self.since = trio.current_time()
        if not self._is_told:
            self._is_told = True
            self._task_status.started()


def _config(listeners: Sequence[socket.socket], tls: tuple[str, str] | None) -> Config:
    """Return hypercorn's settings, with a copy of each listener for it to close."""
    config = Config()
    config.bind = [f"fd://{os.dup(listener.fileno())}" for listener in listeners]
    config.graceful_timeout = LAST_WORDS
    config.errorlog = logging.getLogger("hypercorn.error")
    if tls is not None:
        config.certfile, config.keyfile = tls
    return config
