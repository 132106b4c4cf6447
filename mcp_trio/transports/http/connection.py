"""Connections of HTTP/1.1, straight on trio, and the reader that serves them."""

import select
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from math import inf
from socket import socket
from time import perf_counter
from typing import Any

import trio
from msgspec import Struct

from ...server.limiter import network
from ...server.runner import AWAKE, SPOILED, TURN, Rest, Spoiled, log, start
from ..send_queue import GONE, let_go
from .exchange import Exchange
from .feed import Feed
from .messages import TOO_SLOW, Fields, Reply, refusal
from .parser import BODY, HEAD, IDLE, Parsed, RequestParser
from .rules import MCP
from .service import Service

# Seconds between two requests, for a head, for a body.
PATIENCE = {IDLE: 75.0, HEAD: 10.0, BODY: 60.0}
# Seconds for a piece of a response, and for an end to be read.
WRITE_TIME, LINGER_TIME = 30.0, 1.0
# Bytes that are read, and written, at once.
CHUNK, PIECE = 64 * 1024, 256 * 1024
# Bytes kept of what a client sends behind a request that still runs. What is more is read and dropped, so that the
# connection's end is seen all the same, and the connection is closed after the response.
MAX_BACKLOG = 256 * 1024
# What sending raises when the client is gone, or the connection was closed on our side.
LOST = (*GONE, OSError, trio.BusyResourceError)

Upgrade = Callable[
    ..., Awaitable[None]
]  # of a stream, the head that was read, whose it is, by which token, from where


class Reader:
    """Watches connections that wait for their clients, and have no task meanwhile.

    As a request runs in the turn of the task that read it until it first waits, so does here a connection: the reader's
    task becomes that connection's own, and a fresh one reads on. What does not wait costs no task, no wake-up and no
    change of what the system watches.
    """

    def __init__(self) -> None:
        self._watched: dict[int, Connection] = {}
        self._found: deque[int] = (
            deque()
        )  # those on which something has come, and whose turn has not
        self._is_quick = (
            False  # whether clients go on within a moment when they have their replies
        )
        # Where the system has none, nothing is watched.
        self._epoll: Any = select.epoll() if hasattr(select, "epoll") else None

    def close(self) -> None:
        """Close the connections that are watched. Nothing else may be going on."""
        for connection in list(self._watched.values()):
            connection.close()
        if self._epoll is not None:
            self._epoll.close()

    def watch(self, connection: "Connection") -> None:
        """From now on serve a connection when its client sends something, where the system has a way to know."""
        if self._epoll is not None:
            self._epoll.register(connection.descriptor, select.EPOLLIN)
            self._watched[connection.descriptor] = connection
            connection.is_watched = True

    def unwatch(self, connection: "Connection") -> None:
        """Leave a connection to itself."""
        if connection.is_watched:
            del self._watched[connection.descriptor]
            self._epoll.unregister(connection.descriptor)
            connection.is_watched = False

    @property
    def is_available(self) -> bool:
        """Whether this system has epoll."""
        return self._epoll is not None

    async def wait(self) -> bool:
        """Wait until a connection can be read."""
        await self._find()
        return True

    async def _find(self) -> None:
        """Find where something has come. Who goes on as soon as it has a reply is waited for awake, for a moment.

        All that was found has its turn before the next look, so that none that sends without end is found first always.
        """
        awake_until = perf_counter() + AWAKE
        while self._found or (self._is_quick and perf_counter() < awake_until):
            await trio.lowlevel.checkpoint()
            if self._found or self._look():
                return
        await trio.lowlevel.wait_readable(self._epoll)
        self._is_quick = perf_counter() < awake_until
        self._look()

    def _look(self) -> bool:
        self._found.extend([descriptor for descriptor, _ in self._epoll.poll(0)])
        return bool(self._found)

    def take_turn(self, scope: trio.CancelScope) -> Rest[None] | None:
        """Serve those on which something has come, up to one that waits: what goes on with it.

        Replies that leave together find their readers awake; to wake one, which is what a write to a reader that sleeps
        has to do, costs several times as much.
        """
        rest, turn_ends, served = None, perf_counter() + TURN, list[Connection]()
        try:
            while self._found and rest is None and perf_counter() < turn_ends:
                if connection := self._watched.get(self._found.popleft()):
                    served.append(connection)
                    rest = self._give_turn(connection, scope)
        finally:
            replies = [
                connection.flush_at_once()
                for connection in served
                if connection.is_watched
            ]
            self._is_quick = self._is_quick and any(replies)
        return rest

    def _give_turn(
        self, connection: "Connection", scope: trio.CancelScope
    ) -> Rest[None] | None:
        """Serve a connection until it waits for its client, or its request waits."""
        _, rest = start(connection.serve(scope))
        if rest is not None:
            self.unwatch(connection)
        return rest


class Host(Struct, eq=False):
    """What the connections of a service share."""

    service: Service
    nursery: trio.Nursery
    reader: Reader
    upgrade: Upgrade | None
    date: bytes = b""
    now: float = 0.0  # to the second
    connections: set["Connection"] = set()


class Connection:
    """One client's connection: requests in order, each answered before the next is looked at.

    It is served by one task at a time, and by one more while a request waits. It has none while it waits for its client
    and the reader watches it: from the first request on that did not wait, to one that does.
    """

    def __init__(
        self, host: Host, accepted: socket, peer: str, tls: ssl.SSLContext | None
    ) -> None:
        self.since = (
            trio.current_time()
        )  # what it waits for, it has waited for since then
        self.due = self.since + PATIENCE[HEAD]  # when it has taken too long
        self.peer = network(peer)
        self.listens = False  # to a stream that no request ends, or by a WebSocket
        self.descriptor = accepted.fileno()
        self.is_watched = False  # by the reader, as it waits for its client
        self._host = host
        self._socket = accepted
        self._tcp = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        self._tls = (
            trio.SSLStream(self._tcp, tls, server_side=True, https_compatible=True)
            if tls
            else None
        )
        local, scheme = accepted.getsockname()[0], "https" if tls else "http"
        self._parser = RequestParser(host.service.admit, local, self.peer, scheme)
        self._out: list[bytes] = []
        self._open = True  # whether there will be another request
        self._looks = inf  # how often it may look for more of its client; but for the last time it waits
        self._may_wait = True  # whether the next request may, as the last did: then it has a task of its own
        self._backlog = bytearray()
        self._is_spoiled = False  # whether a request left a cancel scope open

    def drain(self) -> None:
        """The server stops: nothing more is wanted of a connection on which nothing goes on."""
        if self.due != inf and self._parser.stage is IDLE and not self._out:
            self.wake()

    def wake(self) -> None:
        """End what waits for the client, for good: what has come by now is the last that is answered."""
        self._looks = 1
        if self.is_watched:
            self._take_a_task()
        else:
            trio.lowlevel.notify_closing(self._socket)

    def close(self) -> None:
        """End the connection, whatever goes on."""
        self._host.reader.unwatch(self)
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        self._host.connections.discard(self)

    async def run(self, under_way: tuple[Exchange, Parsed] | None = None) -> None:
        """Be the task of this connection; first give the response that is under way."""
        try:
            with trio.CancelScope() as scope:
                await self.serve(scope, under_way)
        except* RuntimeError:
            log.exception(SPOILED)

    async def serve(
        self, scope: trio.CancelScope, under_way: tuple[Exchange, Parsed] | None = None
    ) -> None:
        """Read and answer, until a request waits, or the reader can watch for the next one.

        Where a request waits, this task is that request's, and a fresh one gives the response, and reads.
        """
        goes_on = False
        try:
            if under_way is not None:
                await self._attend(*under_way)
            waits = await self._serve()
            goes_on = self._open
            if self._is_spoiled and waits is None:
                # A request left a cancel scope open: this task does nothing more.
                self._is_spoiled = False
                goes_on = True
                self._take_a_task()
                return
            if waits is not None:
                self._host.nursery.start_soon(self.run, waits)
                await waits[0].rest(scope)
        except LOST as problem:
            log.debug("a connection was lost: %r", problem)
        except Exception:
            log.exception("a connection failed")
        finally:
            if not goes_on:
                self.close()

    def flush_at_once(self) -> bool:
        """Write what was answered in the reader's turn. What does not go out so, a task writes. False: nothing was."""
        if not self._out:
            return False
        try:
            self._write_at_once()
        except OSError:
            self.close()
        if self._out and self.is_watched:
            self._take_a_task()
        return True

    def _take_a_task(self) -> None:
        """Go on with what the reader has no time for."""
        self._host.reader.unwatch(self)
        self._host.nursery.start_soon(self.run)

    async def _serve(self) -> tuple[Exchange, Parsed] | None:
        """Answer what comes, up to a request that waits, or to the end, or until the reader watches for more."""
        if self.is_watched:  # and has seen that something has come
            await self._receive()
        while (waits := await self._answer()) is None:
            if self._is_spoiled:
                return None
            if not self._open or not self.is_watched:
                await self._flush()
            if not self._open:
                if self._parser.failed:
                    await let_go(self._tcp, LINGER_TIME)
                return None
            if self._parser.stage_began or self.due == inf:
                self.since = self._host.now
                self.due = self.since + PATIENCE[self._parser.stage]
                self._parser.stage_began = False
            if not (
                self.is_watched
                or self._tls
                or self._backlog
                or self._looks < inf
                or self._may_wait
            ):
                self._host.reader.watch(self)
            if self.is_watched:
                return None
            await self._receive()
        return waits

    async def _answer(self) -> tuple[Exchange, Parsed] | None:
        """Answer the requests that have come, up to one that waits."""
        parser, service, turn_ends = (
            self._parser,
            self._host.service,
            perf_counter() + TURN,
        )
        while parser.requests and self._open:
            parsed = parser.requests.popleft()
            if service.server.access is not None and parsed.refused is None:
                self.due = inf
                await (
                    self._flush()
                )  # what was answered before need not wait for the verifier
                parsed.refused = await service.bearers.identify(parsed)
            if parsed.upgrade and parsed.refused is None:
                await self._upgrade(parsed)
                continue
            if parsed.refused is not None:
                service.note_refusal(parsed, parsed.refused)
            try:
                answer = parsed.refused or service.answer(parsed, bytes(parsed.body))
            except Spoiled as spoiled:
                answer = spoiled.value
                self._is_spoiled = True
            if isinstance(answer, Reply):
                self._put(answer, parsed)
                self._may_wait = False
                if self._is_spoiled:
                    return None
                if (is_late := perf_counter() > turn_ends) or len(answer.body) > PIECE:
                    await (
                        self._flush()
                    )  # many small requests may have many large replies
                if is_late:
                    await trio.lowlevel.checkpoint()
                    turn_ends = perf_counter() + TURN
                continue
            self.due, self._may_wait = inf, True
            if isinstance(answer, Exchange):
                # At once: this task must wait for nothing before what the request waits for.
                return answer, parsed
            self.listens = True
            await self._attend(answer, parsed)
            self.listens = False
        if parser.expects and parser.stage is BODY:
            parser.expects = False
            self._out.append(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None

    async def _receive(self) -> None:
        """Read on."""
        parser = self._parser
        if self._backlog:
            data, self._backlog = bytes(self._backlog), bytearray()
        else:
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
        self._looks = inf  # whatever was to end before this request had come
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

    async def _respond(
        self, answer: Exchange | Feed, parsed: Parsed, nursery: trio.Nursery
    ) -> None:
        await self._flush()  # the replies before
        feed = await answer.response() if isinstance(answer, Exchange) else answer
        self._put(feed, parsed)
        if isinstance(feed, Reply):
            return
        async with feed.open(nursery):
            await self._flush()
            while block := await feed.next():
                self._out.append(
                    b"%x\r\n%b\r\n" % (len(block), block) if parsed.chunked else block
                )
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
        head = parsed.encoded() + self._parser.rest + self._backlog
        stream = self._tls or self._tcp
        await take(
            stream,
            head,
            principal=parsed.principal,
            token=parsed.token,
            address=parsed.peer,
        )

    # Bytes

    async def _read(self) -> bytes:
        """What has come; nothing at the end, or when the connection is lost, or is to wait no more."""
        try:
            self._looks -= 1
            if self._looks < 0 or (self._looks == 0 and self._tls):
                return b""
            if self._tls is not None:
                return bytes(await self._tls.receive_some(CHUNK))
            if self._looks and not self.is_watched:
                await trio.lowlevel.wait_readable(self._socket)
            return self._socket.recv(CHUNK)
        except BlockingIOError:  # nothing has come after all
            self._host.reader.unwatch(self)
            return await self._read()
        except LOST:
            return b""

    def _put(self, reply: Reply | Feed, parsed: Parsed) -> None:
        """Put a whole reply, or the head of a stream, into what is written next."""
        status, framing, body = (
            200,
            b"Transfer-Encoding: chunked\r\n" if parsed.chunked else b"",
            b"",
        )
        if isinstance(reply, Reply):
            status, body = reply.status, reply.body
            framing = b"Content-Length: %d\r\n" % len(body) if status != 204 else b""
        service = self._host.service
        if (
            not parsed.keeps_alive
            or service.stopping
            or len(self._backlog) > MAX_BACKLOG
        ):
            self._open = False
            framing += b"Connection: close\r\n"
        headers = reply.headers + service.guard.cors(parsed)
        self._out += (_first_lines(status, headers, self._host.date), framing, b"\r\n")
        if parsed.method != b"HEAD":
            self._out.append(body)

    async def _flush(self) -> None:
        """Write what is there: at once, if it goes out so."""
        if self._tls is None:
            self._write_at_once()
        block, self._out = b"".join(self._out), []
        for begin in range(0, len(block), PIECE):
            self.due = self._host.now + WRITE_TIME
            await (self._tls or self._tcp).send_all(block[begin : begin + PIECE])
            self.due = inf

    def _write_at_once(self) -> None:
        """Write as much as goes out without waiting."""
        if self._out:
            block, self._out = b"".join(self._out), []
            with suppress(BlockingIOError):
                block = block[self._socket.send(block) :]
            if block:
                self._out.append(block)


@lru_cache(8)
def _first_lines(status: int, headers: Fields, date: bytes) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    return b"HTTP/1.1 %d %b\r\nDate: %b\r\n%b" % (
        status,
        HTTPStatus(status).phrase.encode(),
        date,
        lines,
    )
