"""HTTP/1.1 straight on trio."""

import errno
import logging
import ssl
from collections import Counter
from contextlib import closing
from email.utils import formatdate
from math import inf
from socket import socket

import trio

from ...server.app import Server
from ...server.runner import Runner
from .connection import Connection, Host, Reader, Upgrade
from .messages import Head, Reply, refusal
from .rules import METADATA
from .service import Service
from .settings import DEFAULT_SETTINGS, HttpSettings

log = logging.getLogger("mcp_trio")

# Seconds between two looks at the clock.
TICK = 1.0
# Connections at once, and how many end to make room: those that have waited longest for their clients.
MOST_CONNECTIONS, ROOM = 10_000, 100
# What the system says where it can hold no more.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

WEBSOCKET_WANTED = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))


async def accept(host: Host, listener: socket, tls: ssl.SSLContext | None) -> None:
    """Take connections, until it is cancelled."""
    with listener:
        while True:
            await trio.lowlevel.wait_readable(listener)
            while len(host.connections) >= MOST_CONNECTIONS:
                await make_room(host, ROOM)
            try:
                accepted, peer = listener.accept()
                connection = Connection(host, accepted, peer[0], tls)
            except (
                OSError
            ) as problem:  # the client is gone already, or descriptors have run out
                log.debug("a connection could not be accepted: %s", problem)
                await make_room(host, ROOM if problem.errno in NO_ROOM else 0)
            else:
                host.connections.add(connection)
                host.nursery.start_soon(connection.run)


async def make_room(host: Host, most: int) -> None:
    """End so many connections on which nothing is done but to wait for the client, and give them a moment.

    Where there is none, those end that listen, of the address that has the most of them.
    """
    ending = [one for one in host.connections if one.due != inf]
    if not ending and (listening := [one for one in host.connections if one.listens]):
        ((most_have, _),) = Counter(one.peer for one in listening).most_common(1)
        ending = [one for one in listening if one.peer == most_have]
    for connection in sorted(ending, key=lambda one: one.since)[:most]:
        connection.wake()
    await trio.sleep(0.01)


async def keep_time(host: Host) -> None:
    """Once a second: end what has taken too long."""
    while True:
        now = host.now = trio.current_time()
        host.date = formatdate(usegmt=True).encode()
        host.service.sessions.expire(now)
        for connection in list(host.connections):
            if connection.due < now:
                connection.wake()
        await trio.sleep(TICK)


class UpgradesOnly(Service):
    """A port where nothing but a WebSocket is to be had."""

    def answer(self, head: Head, body: bytes) -> Reply:
        """Say so, but of where tokens for it are to be had."""
        if head.route == METADATA:
            return self.bearers.metadata(head)
        return refusal(426, "WebSocket alone is served on this port", WEBSOCKET_WANTED)


async def serve_http(
    server: Server,
    host: str,
    port: int,
    *,
    stopping: trio.Event,
    settings: HttpSettings = DEFAULT_SETTINGS,
    upgrade: Upgrade | None = None,
    upgrades_only: bool = False,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stopping` is set and what runs has finished. Tells the addresses that it listens on.

    `upgrade` takes a connection over whose client asks for a WebSocket.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if settings.tls is not None:
        context.load_cert_chain(*settings.tls)
    listeners = [
        socket(fileno=one.socket.detach())
        for one in await trio.open_tcp_listeners(port, host=host)
    ]
    service = (UpgradesOnly if upgrades_only else Service)(server, settings)
    with closing(service), closing(Reader()) as reader:
        async with trio.open_nursery() as nursery:
            native = Host(service, nursery, reader, upgrade)
            if reader.is_available:
                nursery.start_soon(Runner(reader, nursery).run)
            nursery.start_soon(keep_time, native)
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(
                        accept, native, listener, context if settings.tls else None
                    )
                task_status.started(
                    [listener.getsockname()[:2] for listener in listeners]
                )
                await stopping.wait()
                accepting.cancel_scope.cancel()
            for connection in native.connections:
                connection.drain()
            await service.wind_up(native.connections)
            nursery.cancel_scope.cancel()
