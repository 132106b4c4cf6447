"""Serve HTTP/1.1 directly on trio: accept connections, and close slow ones."""

import errno
import logging
import os
import select
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
from .keep_alive import enable_keep_alive
from .messages import Head, Reply, refusal
from .reader import READABLE, Reader
from .rules import METADATA
from .service import Service
from .settings import DEFAULT_SETTINGS, HttpSettings
from .state import CLOSED, LISTENING, WAITS_FOR_CLIENT

log = logging.getLogger("mcp_trio")

# Seconds between checks for overdue connections.
TICK = 1.0
# The most open connections.
MOST_CONNECTIONS = 10_000
# How many of them are closed together to make room for new ones.
ROOM = 100
# Seconds for connections to close before this checks again whether there is room.
ROOM_WITHIN = 0.01
# Seconds to wait for each open connection before more of them are closed. The search
# for the ones to close takes its time, too, and must not take all of the loop's.
PAUSE_PER_CONNECTION = 1e-6
# The order in which the connections of one client are closed: those that wait for the
# client, event streams and WebSockets, and those with a running request.
WAITING_RANK, STREAM_RANK, REQUEST_RANK = range(3)
# Errors of a system that cannot accept another connection.
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

UPGRADE_REQUIRED = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))


class SpareDescriptor:
    """A descriptor that is closed when the system has no more for a new connection.

    Then the connection can be accepted, and its client's address decides which other
    connections have to be closed.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self.restore()

    def restore(self) -> bool:
        """Open the descriptor again. Returns False if the system has none left."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(os.devnull, os.O_RDONLY)
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Free the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def accept(self, listener: socket) -> tuple[socket, Any]:
        """Accept a connection. If necessary, it takes the place of the descriptor."""
        try:
            return listener.accept()
        except OSError as problem:
            if problem.errno not in OUT_OF_RESOURCES or self._descriptor is None:
                raise
        self.close()
        return listener.accept()


class OtherWork:
    """What tasks other than the reader's have to do.

    Without this, a busy reader would let them go on only once in a turn. A client that
    connects needs several passes of the loop, so it would wait for several turns.
    """

    def __init__(self, host: Host, listeners: Sequence[socket]) -> None:
        self._host = host
        self._listeners: Any = None
        # All systems with epoll, which the reader needs, have poll.
        if hasattr(select, "poll"):
            self._listeners = select.poll()
            for listener in listeners:
                self._listeners.register(listener, READABLE)

    def may_wait(self) -> bool:
        """Return whether a client connects, or something may wait in another task."""
        host = self._host
        return (
            len(host.connections) > host.reader.watched
            or host.service.server.limiter.total > 0
            or bool(self._listeners.poll(0))
        )


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
                continue  # another process has accepted it
            except MemoryError:
                host.service.server.ledger.relieve()
                await trio.sleep(ROOM_WITHIN)
                continue
            except OSError as problem:
                # The client has already disconnected, or the system has no room.
                log.debug("a connection could not be accepted: %s", problem)
                is_full = problem.errno in OUT_OF_RESOURCES
                await make_room(host, ROOM if is_full else 0)
                continue
            with ExitStack() as closes:
                closes.callback(accepted.close)
                if await _find_room(host, listener, spare, network(peer[0])):
                    closes.pop_all()
                    _serve(host, accepted, peer[0], tls)


def _serve(host: Host, accepted: socket, peer: str, tls: ssl.SSLContext | None) -> None:
    """Start to serve an accepted connection."""
    try:
        connection = Connection(host, accepted, peer, tls)
    except OSError as problem:  # the client has already disconnected
        log.debug("a connection could not be served: %s", problem)
        accepted.close()
        return
    host.connections.add(connection)
    host.nursery.start_soon(connection.run)


async def _find_room(
    host: Host, listener: socket, spare: SpareDescriptor, newcomer: str
) -> bool:
    """Wait until there is room for a connection of a new client.

    Returns False if there is none, and another connection waits to be accepted.
    """
    while len(host.connections) >= MOST_CONNECTIONS or not spare.restore():
        if not await make_room(host, ROOM, newcomer):
            with trio.move_on_after(ROOM_WITHIN):
                await trio.lowlevel.wait_readable(listener)
                return False
    return True


async def make_room(host: Host, most: int, newcomer: str = "") -> bool:
    """Close connections of the busiest clients, and wait a moment for that.

    Returns whether there were any.
    """
    # If there are few connections, their clients should keep most of them.
    most = min(most, 1 + len(host.connections) // 16)
    count = len(host.connections)
    ending = giving_way(host.connections, most, newcomer)
    for connection in ending:
        connection.give_way()
    if ending:
        await trio.sleep(count * PAUSE_PER_CONNECTION)
        await _wait_until_one_is_closed(host, ending)
    elif not newcomer:
        await trio.sleep(ROOM_WITHIN)
    return bool(ending)


async def _wait_until_one_is_closed(host: Host, ending: list[Connection]) -> None:
    """Wait until one of the connections is closed, but not for long."""
    with trio.move_on_after(ROOM_WITHIN):
        while all(connection.state is not CLOSED for connection in ending):
            await host.closings.park()


def giving_way(
    connections: Iterable[Connection], most: int, newcomer: str = ""
) -> list[Connection]:
    """Return the connections to close to make room for new ones.

    The client with the most connections loses them first, until another one has more.
    Of one client, connections that wait for it are closed first, the longest wait
    first; then its streams, and then its requests, the newest first. Among clients with
    the same number, those with waiting connections come first.

    At most `most` waiting connections are closed, or one that is not waiting. Clients
    lose connections only if they have more than the newcomer, whose own requests are
    not stopped to make room for it.
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
    """Return a sort key: of one client, the connection with the lowest closes first."""
    if connection.state in WAITS_FOR_CLIENT:
        return WAITING_RANK, connection.waits_since
    if connection.state is LISTENING:
        return STREAM_RANK, connection.waits_since
    return REQUEST_RANK, -connection.waits_since


async def keep_time(host: Host) -> None:
    """Once a second, set the time, and close overdue connections and sessions.

    This also returns the memory of clients that have gone to the system.
    """
    while True:
        now = trio.current_time()
        host.now = now
        host.date = formatdate(usegmt=True).encode()
        host.service.sessions.expire(now)
        host.service.server.ledger.return_memory()
        _end_overdue(host, now)
        await trio.sleep(TICK)


def _end_overdue(host: Host, now: float) -> None:
    """Stop waiting for clients that have taken too long.

    In the loop above, a local variable would keep a closed connection in memory.
    """
    for connection in list(host.connections):
        if connection.is_overdue(now):
            connection.end_wait()


class UpgradesOnly(Service):
    """A port that serves WebSocket only."""

    def answer(self, head: Head, body: bytes) -> Reply:
        """Refuse everything but the request for the OAuth metadata."""
        if head.route == METADATA:
            return self.bearer_auth.metadata(head)
        return refusal(426, "This port serves WebSocket only", UPGRADE_REQUIRED)


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
    busy_wait: bool = True,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stopping` is set and running requests have finished.

    The task status reports the addresses that it listens on. `upgrade` takes over
    connections whose clients ask for a WebSocket. `listeners` are listening sockets to
    use instead of the host and the port. `busy_wait` is for `Reader`.
    """
    context = _load_certificate(settings)
    listeners = listeners or await bind(host, port)
    for listener in listeners:
        enable_keep_alive(listener)
    kind = UpgradesOnly if upgrades_only else Service
    with (
        closing(kind(server, settings)) as service,
        closing(Reader(busy_wait=busy_wait)) as reader,
        closing(SpareDescriptor()) as spare,
    ):
        async with trio.open_nursery() as nursery:
            native = Host(service, nursery, reader, upgrade)
            nursery.start_soon(keep_time, native)
            if reader.is_available:
                reader.others_wait = OtherWork(native, listeners).may_wait
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
            await service.shut_down(native.connections)
            nursery.cancel_scope.cancel()


def _load_certificate(settings: HttpSettings) -> ssl.SSLContext | None:
    """Return the TLS context, if the settings name a certificate."""
    if settings.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*settings.tls)
    return context
