"""Serving HTTP/1.1 directly on trio: accepting connections, and ending slow ones."""

import errno
import logging
import os
import ssl
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from email.utils import formatdate
from heapq import heapify, heappop, heapreplace
from socket import socket
from typing import Any

import trio

from ...server.app import Server
from ...server.limiter import network
from ...server.runner import Runner
from ..address import bind
from .connection import Connection, Host, Upgrade
from .keep_alive import watch_clients
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
# The order in which the connections of one client give way: those that wait for it,
# those that only it ends, and those with a request.
WAITING_RANK, STREAM_RANK, REQUEST_RANK = range(3)
# Errors of a system that has no room for another connection.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

WEBSOCKET_WANTED = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))


class SpareDescriptor:
    """A descriptor that is closed when the system has no other for a new connection.

    So it can be seen who wants to be let in, and who has to make room.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self.restore()

    def restore(self) -> bool:
        """Open the descriptor again. Returns False if the system has no room."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Let the system have the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def accept(self, listener: socket) -> tuple[socket, Any]:
        """Accept a connection, if need be in place of the descriptor."""
        try:
            return listener.accept()
        except OSError as problem:
            if problem.errno not in NO_ROOM or self._descriptor is None:
                raise
        self.close()
        return listener.accept()


async def accept(
    host: Host,
    listener: socket,
    spare: SpareDescriptor,
    tls: ssl.SSLContext | None,
) -> None:
    """Accept connections until cancelled."""
    with listener:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                accepted, peer = spare.accept(listener)
            except BlockingIOError:
                continue  # another process that listens on it was faster
            except MemoryError:
                host.service.server.ledger.relieve()
                await trio.sleep(ROOM_WITHIN)
                continue
            except OSError as problem:
                # The client is gone already, or the system has no room.
                log.debug("a connection could not be accepted: %s", problem)
                await make_room(host, ROOM if problem.errno in NO_ROOM else 0)
                continue
            with ExitStack() as closes:
                closes.callback(accepted.close)
                if await _find_room(host, listener, spare, network(peer[0])):
                    closes.pop_all()
                    _serve(host, accepted, peer[0], tls)


def _serve(host: Host, accepted: socket, peer: str, tls: ssl.SSLContext | None) -> None:
    """Serve a connection that there is room for."""
    try:
        connection = Connection(host, accepted, peer, tls)
    except OSError as problem:  # the client is gone already
        log.debug("a connection could not be served: %s", problem)
        accepted.close()
        return
    host.connections.add(connection)
    host.nursery.start_soon(connection.run)


async def _find_room(
    host: Host, listener: socket, spare: SpareDescriptor, newcomer: str
) -> bool:
    """Wait until there is room for a newcomer.

    Returns False if there is none, and somebody else waits to be accepted.
    """
    while len(host.connections) >= MOST_CONNECTIONS or not spare.restore():
        if not await make_room(host, ROOM, newcomer):
            with trio.move_on_after(ROOM_WITHIN):
                await trio.lowlevel.wait_readable(listener)
                return False
    return True


async def make_room(host: Host, most: int, newcomer: str = "") -> bool:
    """End connections of the busiest clients, and give them a moment for that.

    Returns whether there were any.
    """
    # Few connections are shared by few clients, who should keep most of theirs.
    most = min(most, 1 + len(host.connections) // 16)
    ending = giving_way(host.connections, most, newcomer)
    for connection in ending:
        connection.give_way()
    if ending or not newcomer:
        await trio.sleep(ROOM_WITHIN)
    return bool(ending)


def giving_way(
    connections: Iterable[Connection], most: int, newcomer: str = ""
) -> list[Connection]:
    """Return the connections that have to make room for new ones.

    They are those of the client with the most, until another one has more. Of one
    client, those that wait for it go first, the longest wait first; then its streams,
    and then its requests, the newest first. Among clients with equally many, those
    with connections that wait go first.

    At most so many connections go that wait, and no more than one that does not. Other
    clients give way only if they have more connections than the newcomer, whose own
    requests are not ended for it.
    """
    of_clients: dict[str, list[Connection]] = {}
    for connection in connections:
        of_clients.setdefault(connection.client, []).append(connection)
    queue = []
    for client, own in of_clients.items():
        own.sort(key=_giving_order, reverse=True)
        queue.append((-len(own), _giving_order(own[-1]), client))
    heapify(queue)
    share = len(of_clients.get(newcomer, ()))
    ending: list[Connection] = []
    while queue and len(ending) < most:
        _, (rank, _), client = queue[0]
        own = of_clients[client]
        is_own = client == newcomer
        if (is_own and rank == REQUEST_RANK) or (not is_own and len(own) <= share):
            heappop(queue)
            continue
        if ending and rank > WAITING_RANK:
            break
        ending.append(own.pop())
        if rank > WAITING_RANK:
            break
        if own:
            heapreplace(queue, (-len(own), _giving_order(own[-1]), client))
        else:
            heappop(queue)
    return ending


def _giving_order(connection: Connection) -> tuple[int, float]:
    """Return a key: the lowest one of a client's connections gives way first."""
    if connection.state in WAITS_FOR_CLIENT:
        return WAITING_RANK, connection.waits_since
    if connection.state is LISTENING:
        return STREAM_RANK, connection.waits_since
    return REQUEST_RANK, -connection.waits_since


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
    listeners: Sequence[socket] = (),
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stopping` is set and running requests have finished.

    The task status is started with the addresses that it listens on. `upgrade` takes
    connections over whose clients ask for a WebSocket. `listeners` are sockets that
    listen already, in place of the host and the port.
    """
    context = _load_certificate(settings)
    listeners = listeners or await bind(host, port)
    for listener in listeners:
        watch_clients(listener)
    kind = UpgradesOnly if upgrades_only else Service
    with (
        closing(kind(server, settings)) as service,
        closing(Reader()) as reader,
        closing(SpareDescriptor()) as spare,
    ):
        async with trio.open_nursery() as nursery:
            native = Host(service, nursery, reader, upgrade)
            nursery.start_soon(keep_time, native)
            if reader.is_available:
                nursery.start_soon(Runner(reader, nursery).run)
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(accept, native, listener, spare, context)
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
