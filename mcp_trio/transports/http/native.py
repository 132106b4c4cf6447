"""HTTP/1.1 straight on trio."""

import errno
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from math import inf
from socket import socket
from typing import Any

import trio
from msgspec import Struct

from ...server.app import Server
from ...server.limits import network
from ..outbox import GONE, let_go
from .endpoint import MCP, METADATA, TOO_SLOW, Fields, Head, Reply, refusal
from .parsing import BODY, HEAD, IDLE, Parsed, RequestParser
from .service import Exchange, Feed, Service, service_of

log = logging.getLogger("mcp_trio")

# Seconds between two requests, for a head, for a body.
PATIENCE = {IDLE: 75.0, HEAD: 10.0, BODY: 60.0}
# Seconds between two looks at the clock, for a piece of a response, and for an end to be read.
TICK, WRITE_TIME, LINGER_TIME = 1.0, 30.0, 1.0
# Bytes that are read, and written, at once.
CHUNK, PIECE = 64 * 1024, 256 * 1024
# Bytes kept of what a client sends behind a request that still runs. What is more is read and dropped, so that the
# connection's end is seen all the same, and the connection is closed after the response.
MAX_BACKLOG = 256 * 1024
# What sending raises when the client is gone, or the connection was closed on our side.
LOST = (*GONE, OSError, trio.BusyResourceError)

# Connections at once, and how many end to make room: those that have waited longest for their clients.
MOST_CONNECTIONS, ROOM = 10_000, 100
# What the system says where it can hold no more.
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

WEBSOCKET_WANTED = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"))

Upgrade = Callable[..., Awaitable[None]]  # of a stream, the head that was read, whose it is, by which token, from where


class Connection:
    """One client's connection: requests in order, each answered before the next is looked at.

    It is served by one task at a time, and by one more while a request waits.
    """

    def __init__(self, host: "Host", accepted: socket, peer: str, tls: ssl.SSLContext | None) -> None:
        self.since = trio.current_time()  # what it waits for, it has waited for since then
        self.due = self.since + PATIENCE[HEAD]  # when it has taken too long
        self.peer = network(peer)
        self.listens = False  # to a stream that no request ends, or by a WebSocket
        self._host = host
        self._socket = accepted
        self._tcp = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        self._tls = trio.SSLStream(self._tcp, tls, server_side=True, https_compatible=True) if tls else None
        local, scheme = accepted.getsockname()[0], "https" if tls else "http"
        self._parser = RequestParser(host.service.admit, local, self.peer, scheme)
        self._out: list[bytes] = []
        self._open = True  # whether there will be another request
        self._backlog = bytearray()

    async def run(self, under_way: tuple[Exchange, Parsed] | None = None) -> None:
        """Give the response that is under way, then read and answer, until a request waits.

        From then on this task is that request's, and a fresh one gives the response, and reads.
        """
        waits = None
        try:
            with trio.CancelScope() as scope:
                if under_way is not None:
                    await self._attend(*under_way)
                if (waits := await self._serve()) is not None:
                    self._host.nursery.start_soon(self.run, waits)
                    await waits[0].rest(scope)
        except LOST as problem:
            log.debug("a connection was lost: %r", problem)
        except Exception:
            log.exception("a connection failed")
        finally:
            if waits is None:
                self.wake()
                self._socket.close()
                self._host.connections.discard(self)
                self._host.latest = None

    def drain(self) -> None:
        """The server stops: nothing more is wanted of a connection on which nothing goes on."""
        if self.due != inf and self._parser.stage is IDLE and not self._out:
            self.wake()

    def wake(self) -> None:
        """End what waits for the client."""
        trio.lowlevel.notify_closing(self._socket)

    async def _serve(self) -> tuple[Exchange, Parsed] | None:
        """Answer what comes, up to a request that waits, or to the end."""
        parser = self._parser
        while True:
            while parser.requests and self._open:
                parsed = parser.requests.popleft()
                if self._host.service.server.access is not None and parsed.refused is None:
                    await self._flush()  # what was answered before need not wait for the verifier
                    parsed.refused = await self._host.service.bearers.identify(parsed)
                if parsed.upgrade and parsed.refused is None:
                    await self._upgrade(parsed)
                    continue
                if parsed.refused is not None:
                    self._host.service.note_refusal(parsed, parsed.refused)
                answer = parsed.refused or self._host.service.answer(parsed, bytes(parsed.body))
                if isinstance(answer, Reply):
                    self._put(answer, parsed)
                    if len(answer.body) > PIECE:  # many small requests may have many large replies
                        await self._flush()
                    continue
                self.due = inf
                if isinstance(answer, Exchange):
                    # At once: this task must wait for nothing before what the request waits for.
                    return answer, parsed
                self.listens = True
                await self._attend(answer, parsed)
                self.listens = False
            if parser.expects and parser.stage is BODY:
                parser.expects = False
                self._out.append(b"HTTP/1.1 100 Continue\r\n\r\n")
            if self._host.latest is not self:
                # Others are being answered too. Replies that leave together find their readers awake; to wake one,
                # which is what a write to a reader that sleeps has to do, costs several times as much.
                self._host.latest = self
                await trio.lowlevel.checkpoint()
            await self._flush()
            if not self._open:
                break
            await self._receive()
        if parser.failed:
            await let_go(self._tcp, LINGER_TIME)
        return None

    async def _receive(self) -> None:
        """Read on."""
        parser = self._parser
        if self._backlog:
            data, self._backlog = bytes(self._backlog), bytearray()
        else:
            if parser.stage_began or self.due == inf:
                self.since = self._host.now
                self.due = self.since + PATIENCE[parser.stage]
                parser.stage_began = False
            data = await self._read()
        if data:
            parser.feed(data)
        elif parser.stage is not IDLE and self.due < trio.current_time():
            parser.fail(TOO_SLOW)
        else:
            self._open = False

    # A response that takes its time

    async def _attend(self, answer: Exchange | Feed, parsed: Parsed) -> None:
        """Give a response, and watch meanwhile for the client's going away."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            try:
                await self._respond(answer, parsed, nursery)
            except LOST:
                self._open = False
            nursery.cancel_scope.cancel()
        if not self._open and isinstance(answer, Exchange):
            answer.client_gone()
        if self._host.service.stopping or len(self._backlog) > MAX_BACKLOG:
            self._open = False

    async def _watch(self, response: trio.CancelScope) -> None:
        while data := await self._read():
            if len(self._backlog) <= MAX_BACKLOG:
                self._backlog += data
        self._open = False
        response.cancel()

    async def _respond(self, answer: Exchange | Feed, parsed: Parsed, nursery: trio.Nursery) -> None:
        await self._flush()  # the replies before
        feed = await answer.response() if isinstance(answer, Exchange) else answer
        self._put(feed, parsed)
        if isinstance(feed, Reply):
            return
        async with feed.open(nursery):
            await self._flush()
            while block := await feed.next():
                self._out.append(b"%x\r\n%b\r\n" % (len(block), block) if parsed.chunked else block)
                await self._flush()
        self._out.append(b"0\r\n\r\n" if parsed.chunked else b"")

    async def _upgrade(self, parsed: Parsed) -> None:
        """Hand the connection over to who speaks WebSocket. There is no other request on it."""
        take = self._host.upgrade
        if take is None or parsed.route != MCP:
            self._put(refusal(400, "Upgrade: no WebSocket is served here"), parsed)
            return
        await self._flush()
        self._open, self.due, self.listens = False, inf, True
        head = parsed.encoded() + self._parser.rest
        stream = self._tls or self._tcp
        await take(stream, head, principal=parsed.principal, token=parsed.token, address=parsed.peer)

    # Bytes

    async def _read(self) -> bytes:
        """What has come; nothing at the end, or when the connection is lost."""
        try:
            if self._tls is not None:
                return bytes(await self._tls.receive_some(CHUNK))
            await trio.lowlevel.wait_readable(self._socket)
            return self._socket.recv(CHUNK)
        except BlockingIOError:
            return await self._read()
        except LOST:
            return b""

    def _put(self, reply: Reply | Feed, parsed: Parsed) -> None:
        """Put a whole reply, or the head of a stream, into what is written next."""
        status, framing, body = 200, b"Transfer-Encoding: chunked\r\n" if parsed.chunked else b"", b""
        if isinstance(reply, Reply):
            status, body = reply.status, reply.body
            framing = b"Content-Length: %d\r\n" % len(body) if status != 204 else b""
        service = self._host.service
        if not parsed.keeps_alive or service.stopping or len(self._backlog) > MAX_BACKLOG:
            self._open = False
            framing += b"Connection: close\r\n"
        headers = reply.headers + service.guard.cors(parsed)
        self._out += (_first_lines(status, headers, self._host.date), framing, b"\r\n")
        if parsed.method != b"HEAD":
            self._out.append(body)

    async def _flush(self) -> None:
        """Write what is there: at once, if it goes out so."""
        if self._out:
            block, self._out = b"".join(self._out), []
            with suppress(BlockingIOError):
                block = block[self._socket.send(block) :] if self._tls is None else block
            for start in range(0, len(block), PIECE):
                self.due = self._host.now + WRITE_TIME
                await (self._tls or self._tcp).send_all(block[start : start + PIECE])
                self.due = inf


@lru_cache(8)
def _first_lines(status: int, headers: Fields, date: bytes) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    return b"HTTP/1.1 %d %b\r\nDate: %b\r\n%b" % (status, HTTPStatus(status).phrase.encode(), date, lines)


class Host(Struct, eq=False):
    """A service's connections."""

    service: Service
    nursery: trio.Nursery
    upgrade: Upgrade | None
    date: bytes = b""
    now: float = 0.0  # to the second
    latest: Connection | None = None  # the one that was answered last
    connections: set[Connection] = set()

    async def accept(self, listener: socket, tls: ssl.SSLContext | None) -> None:
        """Take connections, until it is cancelled."""
        with listener:
            while True:
                await trio.lowlevel.wait_readable(listener)
                while len(self.connections) >= MOST_CONNECTIONS:
                    await self.make_room(ROOM)
                try:
                    accepted, peer = listener.accept()
                    connection = Connection(self, accepted, peer[0], tls)
                except OSError as problem:  # the client is gone already, or descriptors have run out
                    log.debug("a connection could not be accepted: %s", problem)
                    await self.make_room(ROOM if problem.errno in NO_ROOM else 0)
                else:
                    self.connections.add(connection)
                    self.nursery.start_soon(connection.run)

    async def make_room(self, most: int) -> None:
        """End so many connections on which nothing is done but to wait for the client, and give them a moment.

        Where there is none, those end that listen, of the address that has the most of them.
        """
        ending = [one for one in self.connections if one.due != inf]
        if not ending and (listening := [one for one in self.connections if one.listens]):
            ((most_have, _),) = Counter(one.peer for one in listening).most_common(1)
            ending = [one for one in listening if one.peer == most_have]
        for connection in sorted(ending, key=lambda one: one.since)[:most]:
            connection.wake()
        await trio.sleep(0.01)

    async def keep_time(self) -> None:
        """Once a second: end what has taken too long."""
        while True:
            now = self.now = trio.current_time()
            self.date = formatdate(usegmt=True).encode()
            self.service.sessions.expire(now)
            for connection in list(self.connections):
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
    upgrade: Upgrade | None = None,
    upgrades_only: bool = False,
    tls: tuple[str, str] | None = None,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    """Serve until `stopping` is set and what runs has finished. Tells the addresses that it listens on.

    `upgrade` takes a connection over whose client asks for a WebSocket; `tls` is a certificate's file and its key's.
    The other options are the service's: `path`, and the guard's.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if tls is not None:
        context.load_cert_chain(*tls)
    listeners = [socket(fileno=one.socket.detach()) for one in await trio.open_tcp_listeners(port, host=host)]
    with closing((UpgradesOnly if upgrades_only else service_of)(server, **options)) as service:
        async with trio.open_nursery() as nursery:
            native = Host(service, nursery, upgrade)
            nursery.start_soon(native.keep_time)
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(native.accept, listener, context if tls else None)
                task_status.started([listener.getsockname()[:2] for listener in listeners])
                await stopping.wait()
                accepting.cancel_scope.cancel()
            for connection in native.connections:
                connection.drain()
            await service.wind_up(native.connections)
            nursery.cancel_scope.cancel()
