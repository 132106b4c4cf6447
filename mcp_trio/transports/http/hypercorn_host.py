"""Serve ASGI applications with hypercorn, using only its public functions.

hypercorn stops the whole server when one of its connections fails, for example on bytes
that follow a client's last request. So this module keeps the listening sockets, starts
hypercorn with a copy of each, and restarts it with new copies.
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
from .keep_alive import enable_keep_alive
from .service import FINAL_WRITE_TIME
from .settings import DEFAULT_SETTINGS, HttpSettings

log = logging.getLogger("mcp_trio")

# Seconds before hypercorn is restarted after a failure. The pause doubles, up to the
# longest one, as long as hypercorn fails within a second.
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
SETTLED = 1.0
# Seconds for a client to read what was sent, before the system closes its connection.
# hypercorn itself would wait for the client forever, even when it is cancelled.
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
    """Serve like `serve_http`, but with hypercorn, which also supports HTTP/2.

    If a client has sent more bytes after a request that is still running (pipelining),
    hypercorn does not notice that it disconnects.
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
                # hypercorn itself would only close idle connections.
                shut_down=partial(service.shut_down, application.requests),
                tls=settings.tls,
            )
            await nursery.start(serving)
            # A host name may have several addresses.
            task_status.started(list(dict.fromkeys((host, port) for port in ports)))
    finally:
        service.close()


def limit_unread_time(listeners: Sequence[socket.socket]) -> Sequence[socket.socket]:
    """Close connections whose clients do not read, or have disappeared.

    Sets socket options, which the accepted sockets inherit.
    """
    for listener in listeners:
        enable_keep_alive(listener)
        # Only Linux has this option.
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
    shut_down: Callable[[], Awaitable[None]],
    tls: tuple[str, str] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until `stopping` is set and `shut_down` has returned.

    `listeners` are bound sockets, which this closes at the end. If a connection makes
    hypercorn fail, it is restarted, and the requests in progress are lost. Exceptions
    from before it listens are raised.
    """

    async def stopped() -> None:
        await stopping.wait()
        await shut_down()

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
                log.error("hypercorn failed while stopping: %r", cause)
                return
            log.error("hypercorn failed and is restarted: %r", cause)
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
    """The task status of hypercorn. It reports only the first start to the caller."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self.since: float | None = None  # when it began to listen
        self._task_status = task_status
        self._was_reported = False

    def started(self, value: list[str] | None = None) -> None:
        self.since = trio.current_time()
        if not self._was_reported:
            self._was_reported = True
            self._task_status.started()


def _config(listeners: Sequence[socket.socket], tls: tuple[str, str] | None) -> Config:
    """Return hypercorn's settings, with a copy of each listener for it to close."""
    config = Config()
    config.bind = [f"fd://{os.dup(listener.fileno())}" for listener in listeners]
    config.graceful_timeout = FINAL_WRITE_TIME
    config.errorlog = logging.getLogger("hypercorn.error")
    if tls is not None:
        config.certfile, config.keyfile = tls
    return config
