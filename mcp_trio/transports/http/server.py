"""Serving HTTP/1.1 directly on trio: accepting connections, and ending slow ones."""

import errno
import logging
import ssl
from collections import Counter
from contextlib import closing
from email.utils import formatdate
from socket import socket

import trio

from ...server.app import Server
from ...server.runner import Runner
from .connection import Connection, Host, Upgrade
from .messages import Head, Reply, refusal
from .reader import Reader
from .rules import METADATA
from .service import Service
from .settings import DEFAULT_SETTINGS, HttpSettings
from .state import LISTENING, WAITS_FOR_CLIENT

log = logging.getLogger("mcp_trio")

# Seconds between two looks at the clock.
TICK = 1.0
# Connections at once.
MOST_CONNECTIONS = 10_000
# How many are ended at once to make room for new ones.
ROOM = 100
# Seconds that connections have to end before there is another look for room.
ROOM_WITHIN = 0.01
# Errors of a system that has no room for another connection.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

WEBSOCKET_WANTED = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))


async def accept(host: Host, listener: socket, tls: ssl.SSLContext | None) -> None:
    """Accept connections until cancelled."""
    with listener:
        while True:
            await trio.lowlevel.wait_readable(listener)
            while len(host.connections) >= MOST_CONNECTIONS:
                await make_room(host, ROOM)
            try:
                accepted, peer = listener.accept()
                connection = Connection(host, accepted, peer[0], tls)
            except OSError as problem:
                # The client is gone already, or the system has no room.
                log.debug("a connection could not be accepted: %s", problem)
                await make_room(host, ROOM if problem.errno in NO_ROOM else 0)
            else:
                host.connections.add(connection)
                host.nursery.start_soon(connection.run)


async def make_room(host: Host, most: int) -> None:
    """End up to so many connections, and give them a moment for that.

    Those that wait for their clients are ended, the longest wait first. If there are
    none, connections of the address with the most streams are ended.
    """
    ending = [one for one in host.connections if one.state in WAITS_FOR_CLIENT]
    if not ending:
        ending = _streams_of_busiest_address(host)
    ending.sort(key=lambda connection: connection.waits_since)
    for connection in ending[:most]:
        connection.end_wait()
    await trio.sleep(ROOM_WITHIN)


def _streams_of_busiest_address(host: Host) -> list[Connection]:
    """Return the connections that listen, of the address with the most of them."""
    listening = [one for one in host.connections if one.state is LISTENING]
    counts = Counter(connection.peer for connection in listening)
    for address, _ in counts.most_common(1):
        return [connection for connection in listening if connection.peer == address]
    return []


async def keep_time(host: Host) -> None:
    """End whatever has taken too long, once a second."""
    while True:
        now = trio.current_time()
        host.now = now
        host.date = formatdate(usegmt=True).encode()
        host.service.sessions.expire(now)
        for connection in list(host.connections):
            if connection.is_overdue(now):
                connection.end_wait()
        await trio.sleep(TICK)


class UpgradesOnly(Service):
    """A port that serves WebSocket only."""

    def answer(self, head: Head, body: bytes) -> Reply:
        """Refuse everything but the request for the OAuth metadata."""
        if head.route == METADATA:
            return self.bearers.metadata(head)
        return refusal(426, "This port serves WebSocket only", WEBSOCKET_WANTED)


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
    """Serve until `stopping` is set and running requests have finished.

    The task status is started with the addresses that it listens on. `upgrade` takes
    connections over whose clients ask for a WebSocket.
    """
    context = _load_certificate(settings)
    listeners = [
        socket(fileno=listener.socket.detach())
        for listener in await trio.open_tcp_listeners(port, host=host)
    ]
    kind = UpgradesOnly if upgrades_only else Service
    with closing(kind(server, settings)) as service, closing(Reader()) as reader:
        async with trio.open_nursery() as nursery:
            native = Host(service, nursery, reader, upgrade)
            nursery.start_soon(keep_time, native)
            if reader.is_available:
                nursery.start_soon(Runner(reader, nursery).run)
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(accept, native, listener, context)
                task_status.started(
                    [listener.getsockname()[:2] for listener in listeners]
                )
                await stopping.wait()
                accepting.cancel_scope.cancel()
            for connection in list(native.connections):
                connection.drain()
            await service.wind_up(native.connections)
            nursery.cancel_scope.cancel()


def _load_certificate(settings: HttpSettings) -> ssl.SSLContext | None:
    """Return the TLS context, if the settings name a certificate."""
    if settings.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*settings.tls)
    return context
