"""HTTP/1.1 connections, directly on trio."""

import ssl
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from socket import socket
from time import perf_counter
from typing import Protocol

import trio
from msgspec import Struct, field

from ...auth.principal import Principal
from ...server.accounts import Account, account_at
from ...server.ledger import STEP, Holding, Meter, Priority
from ...server.limiter import network
from ...server.runner import (
    LEAKED_SCOPE,
    TURN,
    Continuation,
    ScopeLeaked,
    log,
    start,
)
from ..send_queue import DISCONNECTED, close_gracefully
from .exchange import Exchange
from .feed import Feed
from .messages import (
    OUT_OF_MEMORY,
    REQUEST_TIMEOUT,
    Fields,
    Headers,
    Parsed,
    Reply,
    refusal,
)
from .parser import BODY, HEAD, IDLE, RequestParser
from .reader import Reader
from .rules import MCP
from .service import Answered, AnswerNow, Pending, Service
from .state import (
    ANSWERING,
    CLOSED,
    LAST_LOOK,
    LISTENING,
    MOVING,
    READING,
    RESPONDING,
    WAITS_FOR_CLIENT,
    WATCHED,
    WRITING,
    State,
    check_transition,
)

# Seconds that a client may take: between two requests, for a head, and for a body.
PATIENCE = {IDLE: 75.0, HEAD: 10.0, BODY: 60.0}
# Seconds that it may take to read one piece of a response.
WRITE_TIME = 30.0
# Seconds that it may take to read the last response before the connection is closed.
LINGER_TIME = 1.0
# The most bytes that are read at once.
CHUNK = 64 * 1024
# The most bytes that are written at once.
PIECE = 256 * 1024
# Bytes to keep of what a client sends while a request is still running. The rest is
# dropped, and the connection is closed after the response. It has to be read, because
# otherwise a disconnect would go unnoticed.
MAX_BACKLOG = 256 * 1024
# Bytes that are charged for every connection.
CONNECTION_SIZE = 4 * 1024
# More requests than this, parsed together, take a turn of the event loop.
MANY_REQUESTS = 250
# Bytes of a parsed request without its body, and of each of its headers. Thousands of
# short requests may arrive in one chunk.
PARSED_SIZE = 512
HEADER_SIZE = 80
# The header of a response whose length is not known when it begins.
CHUNKED: Fields = ((b"Transfer-Encoding", b"chunked"),)
# What sending raises if the client has disconnected, or if the connection was closed
# here.
CONNECTION_LOST = (*DISCONNECTED, OSError, trio.BusyResourceError)

# A request that waits, and its head.
Waiting = tuple[Exchange, Parsed]


class Upgrade(Protocol):
    """Takes over a connection whose client asks for a WebSocket."""

    def __call__(
        self,
        stream: trio.abc.Stream,
        head: bytes,
        *,
        principal: Principal | None,
        token: str,
        address: str,
        headers: Headers,
    ) -> Awaitable[None]:
        """Serve the client until it disconnects. `head` is all that was read so far."""


class Host(Struct, eq=False):
    """What the connections of a service share."""

    service: Service
    nursery: trio.Nursery
    reader: Reader
    upgrade: Upgrade | None
    # The current time, to the second: as an HTTP date, and on trio's clock.
    date: bytes = b""
    now: float = 0.0
    connections: set["Connection"] = set()
    # Tasks that wait here are woken whenever a connection is closed.
    closings: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)


class Connection:
    """One client's connection. It answers one request after the other.

    `state` says what it is doing, and only `_enter` changes it. A connection has one
    task, and a second one while a request waits. Between requests that do not wait, the
    reader watches it and it has no task.
    """

    def __init__(
        self, host: Host, accepted: socket, peer: str, tls: ssl.SSLContext | None
    ) -> None:
        self.state: State = READING
        self.descriptor = accepted.fileno()
        self.peer = network(peer)
        # The client that sent the last request that waited. Behind a proxy, it is not
        # the peer.
        self.client = self.peer
        self._principal: Principal | None = None
        # When the current wait for the client began, and when it must end.
        self.waits_since = trio.current_time()
        self.deadline = self.waits_since + PATIENCE[HEAD]
        self._host = host
        self._socket = accepted
        self._tcp = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        self._tls: trio.SSLStream[trio.SocketStream] | None = None
        scheme = "http"
        if tls is not None:
            self._tls = trio.SSLStream(
                self._tcp, tls, server_side=True, https_compatible=True
            )
            scheme = "https"
        local = accepted.getsockname()[0]
        self._parser = RequestParser(
            host.service.admission(peer),
            local,
            self.peer,
            scheme,
            self._make_body_meter,
        )
        self._out: list[bytes] = []  # to be written
        # How much of the first of them, or of what is unread, is written already.
        self._sent = 0
        # Data that the socket did not accept at once. It is kept here and not in a
        # local variable, so that `close` frees it.
        self._unread = b""
        self._backlog = bytearray()  # read while a request ran
        self._backlog_meter: Meter | None = None
        self._backlog_is_lost = False
        # The size of the requests that the last bytes from the client completed.
        self._parsed_size = 0
        # The time at which the turn of this client ends.
        self._turn_ends = 0.0
        # Whether other tasks should run before the next request is answered.
        self._turn_is_over = False
        # A request whose response is not ready, and the response.
        self._unready: tuple[AnswerNow, Parsed] | None = None
        # Cancels the wait for the next turn.
        self._turn_scope: trio.CancelScope | None = None
        # Whether another request may follow the current one.
        self._keeps_alive = True
        # A connection whose last request waited keeps a task for the next one, which is
        # likely to wait too.
        self._last_request_waited = True
        self._holding = host.service.server.ledger.hold(
            self.account, "connections", CONNECTION_SIZE, Priority.IDLE, self._give_up
        )

    # The state

    def _enter(self, state: State) -> None:
        """Change the state."""
        check_transition(self.state, state)
        if self.state is WATCHED:
            self._host.reader.unwatch(self)
        if state is WATCHED:
            # Before the change, because the system may refuse to watch more.
            self._host.reader.watch(self)
        self.state = state

    def is_overdue(self, now: float) -> bool:
        """Return whether the client has taken too long."""
        return self.state in WAITS_FOR_CLIENT and self.deadline < now

    def drain(self) -> None:
        """Close the connection if it is idle, because the server is stopping."""
        if not self._is_idle():
            return
        drain_time = self._host.service.drain_time
        if drain_time:
            # One more request is answered.
            self.deadline = trio.current_time() + drain_time
        else:
            self.end_wait()

    def end_wait(self) -> None:
        """Stop waiting for a client that took too long, or that has to make room."""
        if self.state is WATCHED:
            self._enter(LAST_LOOK)
            self._host.nursery.start_soon(self.run)
            return
        if self.state is READING:
            self._enter(LAST_LOOK)
        # Wake the task that waits for the socket, or for its turn to read.
        trio.lowlevel.notify_closing(self._socket)
        if self._turn_scope is not None:
            self._turn_scope.cancel()

    def give_way(self) -> None:
        """Close the connection, whatever it is doing, to make room for others."""
        if self.state in WAITS_FOR_CLIENT:
            self.end_wait()
        elif self.state is not CLOSED:
            # Wake the task that waits for the socket, as a disconnect does.
            trio.lowlevel.notify_closing(self._socket)
            if self._turn_scope is not None:
                self._turn_scope.cancel()

    def close(self) -> None:
        """Close the connection at once, whatever it is doing."""
        if self.state is not CLOSED:
            self._enter(CLOSED)
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._host.connections.discard(self)
            self._host.closings.unpark_all()
            self._parser.close()
            self._out.clear()
            self._unread = b""
            self._clear_backlog()
            self._holding.release()

    # What is charged to the client

    @property
    def account(self) -> Account:
        """The account of the client, or of its principal if it is authenticated."""
        return account_at(self.client, self._principal)

    def _is_idle(self) -> bool:
        """Return whether the connection waits for the next request.

        It is also true while the reader answers a request in its own turn. Other tasks
        do not run during that time.
        """
        return self.state in (WATCHED, READING) and self._parser.stage is IDLE

    def _give_up(self) -> bool:
        """Close the connection if it is idle, because its memory is needed."""
        if not self._is_idle():
            return False
        trio.lowlevel.current_trio_token().run_sync_soon(self._end_if_idle)
        return True

    def _end_if_idle(self) -> None:
        if self._is_idle() and not self._host.service.stopping:
            self.end_wait()

    def _make_body_meter(self, address: str) -> Meter:
        """Return a meter that charges an address for a body while it is being read."""
        ledger = self._host.service.server.ledger
        account = account_at(address, None)
        return Meter(ledger, account, "bodies", Priority.REQUEST, self._give_up_body)

    def _give_up_body(self) -> bool:
        """Refuse the request whose body is being read."""
        self._parser.give_up_body(OUT_OF_MEMORY)
        trio.lowlevel.current_trio_token().run_sync_soon(self._end_if_refused)
        return True

    def _end_if_refused(self) -> None:
        """Answer a request that was refused while this waited for the client."""
        is_waiting = self.state in (WATCHED, READING) and self._parser.failed
        if is_waiting and not self._host.service.stopping:
            self.end_wait()

    def _parse(self, data: bytes) -> None:
        """Parse what was read, and measure the requests in it if there are many."""
        parser = self._parser
        parser.feed(data)
        self._parsed_size = 0
        count = len(parser.requests)
        if count > 1:
            self._parsed_size = sum(map(_size_of, parser.requests))
        # The reader itself lets others go first.
        if count > MANY_REQUESTS and self.state is not WATCHED:
            self._host.service.server.turns.end(account_at(self.peer, None))

    def _queue_size(self) -> int:
        """Return at least the size of the requests that wait for the current one.

        Some of those that arrived together may be answered already. Counting again for
        each of them would take too long.
        """
        return self._parsed_size if self._parser.requests else 0

    def _charge_backlog(self) -> None:
        """Charge for what the client has sent while a request is running."""
        if self._backlog_meter is None:
            self._backlog_meter = Meter(
                self._host.service.server.ledger,
                self.account,
                "bodies",
                Priority.REQUEST,
                self._give_up_backlog,
            )
        self._backlog_meter.set(len(self._backlog))

    def _give_up_backlog(self) -> bool:
        """Drop what the client has sent while a request is running.

        The connection is closed after that request.
        """
        self._backlog_is_lost = True
        self._backlog.clear()
        return True

    def _clear_backlog(self) -> None:
        self._backlog.clear()
        if self._backlog_meter is not None:
            self._backlog_meter.set(0)

    def _hold_queue(self) -> Holding | None:
        """Charge the client for requests that wait until the current one is done."""
        size = self._queue_size()
        if size <= STEP:
            return None
        ledger = self._host.service.server.ledger
        return ledger.hold(
            self.account, "bodies", size, Priority.REQUEST, self._give_up_queue
        )

    def _give_up_queue(self) -> bool:
        """Drop the requests that wait, and close the connection after this one."""
        self._backlog_is_lost = True
        self._parser.requests.clear()
        return True

    def _hold_unread(self) -> Holding | None:
        """Charge the client for data that it does not read at once.

        Its next requests wait until it has read.
        """
        size = len(self._unread) + self._queue_size()
        if size <= STEP:
            return None
        ledger = self._host.service.server.ledger
        return ledger.hold(
            self.account, "replies", size, Priority.STREAM, self._give_up_unread
        )

    def _give_up_unread(self) -> bool:
        """Close the connection, because its client does not read."""
        self.close()
        return True

    # The reader's turn

    def take_turn(self, scope: trio.CancelScope) -> Continuation[None] | None:
        """Read and answer, until something has to wait.

        Returns what is left to run. It must be awaited in the current task, which then
        belongs to this connection.
        """
        continuation: Continuation[None] | None
        server = self._host.service.server
        if server.access is None and not server.turns.lines:
            continuation = self._serve_at_once(scope)
        else:
            # Identifying a client and waiting for a turn are asynchronous, but most of
            # the time neither has to wait.
            _, continuation = start(self.serve(scope))
        if continuation is not None and self.state is WATCHED:
            self._enter(ANSWERING)
        return continuation

    def _serve_at_once(self, scope: trio.CancelScope) -> Continuation[None] | None:
        """Read and answer without waiting. Returns what is left to run, if anything is.

        If it were a part of `serve`, a request would take 6 % more instructions.
        """
        parser = self._parser
        try:
            self._take_in(self._receive_now())
            is_finished = self._answer_at_once()
        except Exception as problem:
            self._log_failure(problem)
            self.close()
            return None
        if self.state is MOVING:
            # Another task takes over, because this one must do nothing more.
            self._host.nursery.start_soon(self.run)
            raise ScopeLeaked(None)
        if parser.expects_continue and parser.stage is BODY:
            self._ask_for_body()
        if is_finished and self._keeps_alive:
            self._begin_wait()
            return None
        if self._out or parser.failed or not is_finished:
            return self.serve(scope)
        self.close()  # the client has disconnected
        return None

    def _answer_at_once(self) -> bool:
        """Answer the requests that have arrived. Returns False if one has to wait."""
        requests = self._parser.requests
        self._turn_ends = perf_counter() + TURN
        while requests and self._keeps_alive and self.state is WATCHED:
            if requests[0].upgrade:
                return False
            if not self._begin_answer(requests.popleft()):
                return False
        return True

    # Tasks

    async def run(self, waiting: Waiting | None = None) -> None:
        """Run the connection's task. First send the response of a waiting request."""
        try:
            with trio.CancelScope() as scope:
                await self.serve(scope, waiting)
        except* RuntimeError:
            log.exception(LEAKED_SCOPE)

    async def serve(
        self, scope: trio.CancelScope, waiting: Waiting | None = None
    ) -> None:
        """Read and answer, until a request waits or the reader watches for more.

        If a request waits, this task stays with it. A new task sends the response and
        continues reading.
        """
        is_continued = False
        try:
            if waiting is not None:
                await self._respond(*waiting)
            waiting = await self._read_and_answer()
            is_continued = self.state is not CLOSED
            if waiting is not None:
                self._host.nursery.start_soon(self.run, waiting)
                await waiting[0].rest(scope)
        except Exception as problem:
            self._log_failure(problem)
        finally:
            if not is_continued:
                self.close()

    def _log_failure(self, problem: Exception) -> None:
        """Log why a connection ends."""
        if isinstance(problem, CONNECTION_LOST):
            log.debug("a connection was lost: %r", problem)
        elif isinstance(problem, MemoryError):
            log.debug("a connection was closed: out of memory")
            self._host.service.server.ledger.relieve()
        else:
            log.error("a connection failed", exc_info=problem)

    async def _read_and_answer(self) -> Waiting | None:
        """Read and answer until a request waits, and return that one.

        Returns None if the reader or a new task takes over, or it was closed.
        """
        if self.state is WATCHED:
            self._take_in(self._receive_now())
        elif self.state is LAST_LOOK:
            self._look_once_more()
        elif self.state is MOVING:
            self._enter(ANSWERING)
        while self.state is not CLOSED:
            waiting = await self._answer()
            if waiting is not None:
                self._enter(RESPONDING)
                return waiting
            if self.state is MOVING:
                self._host.nursery.start_soon(self.run)
                return None
            if self._parser.expects_continue and self._parser.stage is BODY:
                self._ask_for_body()
            if not self._keeps_alive:
                await self._end()
            elif self.state is WATCHED:
                # The reader writes the replies at the end of its turn.
                self._begin_wait()
                return None
            else:
                await self._flush()
                await self._read_more()
        return None

    async def _read_more(self) -> None:
        """Wait until the client sends more, unless the reader can do that."""
        if self._backlog:
            if not await self._wait_to_parse():
                self._keeps_alive = False
                return
            data = bytes(self._backlog)
            self._clear_backlog()
            self._parse(data)
            return
        self._begin_wait()
        if self.state is READING:
            self._take_in(await self._receive())
        if self.state is LAST_LOOK:
            self._look_once_more()

    def _begin_wait(self) -> None:
        """Choose how to wait for the client, and for how long.

        Sending a request in many small pieces does not extend its deadline.
        """
        parser = self._parser
        was_waiting = self.state is WATCHED or self.state is READING
        if parser.stage_began or not was_waiting:
            parser.stage_began = False
            self.waits_since = self._host.now
            self.deadline = self.waits_since + PATIENCE[parser.stage]
        if was_waiting:
            return
        if self._host.service.stopping and parser.stage is IDLE:
            self._enter(LAST_LOOK)
        elif self._can_be_watched():
            self._enter(WATCHED)
        else:
            self._enter(READING)

    def _can_be_watched(self) -> bool:
        """Return whether the reader can wait for the client."""
        if self._tls is not None or self._last_request_waited:
            return False
        return self._host.reader.is_available

    def _take_in(self, data: bytes | None) -> None:
        """Parse what was read: empty at the end, None if nothing has arrived yet."""
        if data:
            self._parse(data)
        elif data is not None and self.state is not LAST_LOOK:
            self._keeps_alive = False

    def _look_once_more(self) -> None:
        """Read what has arrived by now. Close the connection unless a request began."""
        parser = self._parser
        if self._tls is None:
            self._take_in(self._receive_now())
        if parser.stage_began or parser.requests:
            return
        if parser.stage is not IDLE and self.deadline < trio.current_time():
            parser.fail(REQUEST_TIMEOUT)
        else:
            self._keeps_alive = False

    async def _end(self) -> None:
        """Write what remains to be written, and close the connection."""
        await self._flush()
        if self._parser.failed:
            # The client may still be sending.
            await close_gracefully(self._tcp, LINGER_TIME)
        self.close()

    # Requests

    async def _answer(self) -> Waiting | None:
        """Answer the requests that have arrived, up to one that waits."""
        parser = self._parser
        if parser.requests and self.state in (READING, LAST_LOOK):
            self._enter(ANSWERING)
        server = self._host.service.server
        is_guarded = server.access is not None
        # The reader may have begun to answer a request.
        is_finished = self._unready is None and not self._turn_is_over
        if is_finished and server.turns.lines:
            await self._wait_for_turn()
        self._turn_ends = perf_counter() + TURN
        while True:
            if not is_finished:
                waiting = await self._finish_answer()
                if waiting is not None:
                    return waiting
            if not parser.requests or not self._keeps_alive or self.state is MOVING:
                return None
            parsed = parser.requests.popleft()
            if parsed.refused is None and is_guarded:
                await self._identify(parsed)
            if parsed.upgrade and parsed.refused is None:
                await self._upgrade(parsed)
                is_finished = True
            else:
                is_finished = self._begin_answer(parsed)

    def _begin_answer(self, parsed: Parsed) -> bool:
        """Start to answer a request, and queue the reply if it is ready.

        Returns False if `_finish_answer` has to be called next, because the response is
        not ready, or because other tasks should run.
        """
        service = self._host.service
        answer: AnswerNow
        if parsed.refused is not None:
            service.note_refusal(parsed, parsed.refused)
            answer = parsed.refused
        else:
            try:
                answer = service.answer(parsed, bytes(parsed.body))
            except ScopeLeaked as leaked:
                # The request has left a cancel scope open in this task, so the task
                # must do nothing more.
                self._enter(MOVING)
                answer = leaked.value
        self._turn_is_over = perf_counter() > self._turn_ends
        if self._turn_is_over and parsed.refused is None:
            service.server.turns.end(account_at(parsed.peer, parsed.principal))
        if isinstance(answer, Reply):
            self._queue_reply(answer, parsed)
            return not self._turn_is_over
        self._unready = answer, parsed
        return False

    async def _finish_answer(self) -> Waiting | None:
        """Respond to a request whose response is not ready, unless it waits.

        If the turn is over, let other tasks run.
        """
        if self._unready is not None:
            answer, parsed = self._unready
            self._unready = None
            if isinstance(answer, Pending):
                answer = await self._handle_pending(answer, parsed)
                self._turn_is_over = perf_counter() > self._turn_ends
            if isinstance(answer, Reply):
                self._queue_reply(answer, parsed)
            else:
                self._turn_is_over = False
                self._last_request_waited = True
                self.client = parsed.peer
                if isinstance(answer, Exchange):
                    # This task must wait for nothing before what the request waits for.
                    parsed.body = b""
                    return answer, parsed
                await self._respond(answer, parsed)
            # While the client reads, only what is not written yet is kept.
            del answer
        if self._turn_is_over and self.state is not MOVING:
            await self._give_way()
        return None

    def _queue_reply(self, answer: Reply, parsed: Parsed) -> None:
        """Queue a reply to a request that did not wait."""
        self._last_request_waited = False
        self._put(answer, parsed)
        if len(answer.body) > PIECE:
            # Many small requests may have many large replies.
            self._turn_is_over = True

    def _ask_for_body(self) -> None:
        """Tell a client that waits for "100 Continue" to send its body."""
        self._parser.expects_continue = False
        self._out.append(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _identify(self, parsed: Parsed) -> None:
        """Find the principal of a request, or refuse it, unless that is done."""
        if parsed.is_identified:
            return
        # Replies to earlier requests need not wait for the verifier.
        await self._flush()
        with self._charging_wait(parsed, account_at(parsed.peer, None)):
            refused = await self._host.service.bearer_auth.identify(parsed)
        parsed.refused = parsed.refused or refused
        parsed.is_identified = True
        self._principal = parsed.principal

    async def _handle_pending(self, pending: Pending, parsed: Parsed) -> Answered:
        """Wait for a response that depends on the store, and return it."""
        # The pending answer has a copy of its own, and charges for it.
        parsed.body = b""
        # Replies to earlier requests need not wait for the store.
        await self._flush()
        holding = self._hold_queue()
        try:
            return await pending.wait()
        except ScopeLeaked as leaked:
            self._enter(MOVING)
            answer: Reply | Exchange = leaked.value
            return answer
        finally:
            if holding is not None:
                holding.release()

    async def _give_way(self) -> None:
        """Write the replies so far, and let other tasks run."""
        await self._flush()
        await trio.lowlevel.checkpoint()
        if self._host.service.server.turns.lines:
            await self._wait_for_turn()
        self._turn_ends = perf_counter() + TURN
        self._turn_is_over = False

    async def _wait_for_turn(self) -> None:
        """Wait while others are served, if the next request's client has had its turn.

        Afterwards, another task may have to answer the request, or the connection may
        have to end.
        """
        if not self._parser.requests:
            return
        parsed = self._parser.requests[0]
        server = self._host.service.server
        if parsed.refused is None and server.access is not None:
            await self._identify(parsed)
        account = account_at(parsed.peer, parsed.principal)
        if not server.turns.must_wait(account):
            return
        if self.state is WATCHED:
            # The reader has other connections to serve.
            self._enter(MOVING)
            return
        if self._tls is None:
            self._write_at_once()  # the replies to earlier requests
        self.client = parsed.peer
        with trio.CancelScope() as scope:
            self._turn_scope = scope
            with self._charging_wait(parsed, account):
                await server.turns.wait(account)
        self._turn_scope = None
        if scope.cancelled_caught:
            self._keeps_alive = False

    @contextmanager
    def _charging_wait(self, parsed: Parsed, account: Account) -> Iterator[None]:
        """Charge for a request that waits, its successors, and unread replies."""

        def give_up() -> bool:
            if self._out:
                self.give_way()
                self.close()
            parsed.refused = OUT_OF_MEMORY
            parsed.body = b""
            self._drop_successors(parsed)
            return True

        size = len(parsed.body) + self._queue_size() + sum(map(len, self._out))
        if size <= STEP:
            yield
            return
        holding = self._host.service.server.ledger.hold(
            account, "bodies", size, Priority.REQUEST, give_up
        )
        try:
            yield
        finally:
            holding.release()

    def _drop_successors(self, parsed: Parsed) -> None:
        """Drop the requests after this one. The connection is closed after it."""
        queue = self._parser.requests
        is_queued = len(queue) > 0 and queue[0] is parsed
        if len(queue) == int(is_queued):
            return
        self._give_up_queue()
        if is_queued:
            queue.append(parsed)

    async def _upgrade(self, parsed: Parsed) -> None:
        """Hand the connection over as a WebSocket. No other request follows on it."""
        take_over = self._host.upgrade
        if take_over is None or parsed.route != MCP:
            self._put(
                refusal(400, "Upgrade: this endpoint does not serve WebSocket"), parsed
            )
            return
        await self._flush()
        self._enter(LISTENING)
        self._keeps_alive = False
        await take_over(
            self._tls or self._tcp,
            parsed.encoded() + self._parser.after_upgrade + self._backlog,
            principal=parsed.principal,
            token=parsed.token,
            address=parsed.peer,
            headers=parsed.headers,
        )

    # Responses that are not ready at once

    async def _respond(self, answer: Exchange | Feed, parsed: Parsed) -> None:
        """Send a response, and watch for a disconnect in the meantime."""
        if isinstance(answer, Feed):
            self._enter(LISTENING)
        holding = self._hold_queue()
        try:
            await self._write_and_watch(answer, parsed)
        finally:
            if holding is not None:
                holding.release()
        if isinstance(answer, Exchange) and not self._keeps_alive:
            answer.client_disconnected()
        if self._host.service.stopping or self._backlog_is_full():
            self._keeps_alive = False
        if self.state is not CLOSED:
            self._enter(ANSWERING)

    async def _write_and_watch(self, answer: Exchange | Feed, parsed: Parsed) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            try:
                await self._write_response(answer, parsed, nursery)
            except CONNECTION_LOST:
                self._keeps_alive = False
            nursery.cancel_scope.cancel()

    async def _watch(self, response: trio.CancelScope) -> None:
        """Read what the client sends. Cancel the response if it disconnects."""
        while True:
            data = await self._receive()
            if not data:
                break
            if not self._backlog_is_full():
                self._backlog += data
                self._charge_backlog()
        self._keeps_alive = False
        response.cancel()

    def _backlog_is_full(self) -> bool:
        """Return whether data from the client was dropped, or will be."""
        return self._backlog_is_lost or len(self._backlog) > MAX_BACKLOG

    async def _write_response(
        self, answer: Exchange | Feed, parsed: Parsed, nursery: trio.Nursery
    ) -> None:
        """Wait for a response, and write it as it is produced."""
        await self._flush()  # the replies to earlier requests
        response: Reply | Feed
        if isinstance(answer, Exchange):
            response = await answer.response()
        else:
            response = answer
        self._put(response, parsed)
        if isinstance(response, Feed):
            await self._write_stream(response, parsed.chunked, nursery)

    async def _write_stream(
        self, feed: Feed, chunked: bool, nursery: trio.Nursery
    ) -> None:
        """Write a stream of events to its end."""
        async with feed.open(nursery):
            await self._flush()
            while True:
                block = await feed.next()
                if not block:
                    break
                if chunked:
                    block = b"%x\r\n%b\r\n" % (len(block), block)
                self._out.append(block)
                await self._flush()
        if chunked:
            self._out.append(b"0\r\n\r\n")

    # Bytes

    def _receive_now(self) -> bytes | None:
        """Return what has arrived: empty at the end, None if there is nothing yet."""
        try:
            return self._socket.recv(CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        except MemoryError:
            # If `relieve` has freed memory, this is tried again.
            if not self._host.service.server.ledger.relieve():
                raise
            return None

    async def _receive(self) -> bytes:
        """Wait for bytes. Returns empty bytes at the end, or if the wait was ended."""
        try:
            if self._tls is not None:
                return bytes(await self._tls.receive_some(CHUNK))
            # trio must not be asked to wait for a socket that was closed here.
            while self.state is not CLOSED:
                await trio.lowlevel.wait_readable(self._socket)
                if not await self._wait_to_parse():
                    return b""
                data = self._receive_now()
                if data is not None:
                    return data
        except CONNECTION_LOST:
            pass
        return b""

    async def _wait_to_parse(self) -> bool:
        """Wait while others are served, if parsing took long for this address.

        Returns False if the connection has to end instead.
        """
        turns = self._host.service.server.turns
        if not turns.lines:
            return True
        with trio.CancelScope() as scope:
            self._turn_scope = scope
            await turns.wait(account_at(self.peer, None))
        self._turn_scope = None
        return not scope.cancelled_caught

    def _put(self, response: Reply | Feed, parsed: Parsed) -> None:
        """Queue a whole reply, or the head of a stream, to be written next."""
        service = self._host.service
        headers = response.headers
        if b"origin" in parsed.headers:
            headers += service.guard.cors(parsed)
        body = b""
        length = None
        if isinstance(response, Feed):
            if parsed.chunked:
                headers += CHUNKED
        else:
            body = response.body
            if response.status != 204:
                length = len(body)
        has_lost_data = self._backlog_is_full()
        closes = not parsed.keeps_alive or service.stopping or has_lost_data
        if closes:
            self._keeps_alive = False
        self._out.append(
            _encode_head(response.status, headers, length, closes, self._host.date)
        )
        if parsed.method != b"HEAD":
            self._out.append(body)

    def flush_at_once(self) -> bool:
        """Write the replies of the reader's turn. Returns whether there were any.

        If the socket does not accept all of it at once, a task writes the rest.
        """
        if self.state is not WATCHED or not self._out:
            return False
        try:
            self._write_at_once()
        except (OSError, MemoryError):
            self.close()
            return True
        if self._out:
            self._enter(MOVING)
            self._host.nursery.start_soon(self.run)
        return True

    async def _flush(self) -> None:
        """Write everything. Waits only if the socket does not accept it at once."""
        if self._tls is None:
            self._write_at_once()
        if not self._out:
            return
        self._unread = b"".join(self._out)
        self._out.clear()
        is_response = self.state in (RESPONDING, LISTENING)
        afterwards = self.state if is_response else ANSWERING
        self._enter(WRITING)
        holding = self._hold_unread()
        try:
            await self._write_unread()
        finally:
            self._unread = b""
            self._sent = 0
            if holding is not None:
                holding.release()
        if self.state is CLOSED:
            raise trio.ClosedResourceError("the connection was given up")
        self._enter(afterwards)

    async def _write_unread(self) -> None:
        """Write piece by piece what the socket did not accept at once.

        No piece is kept during the wait: it would keep all of it in memory.
        """
        while self._sent < len(self._unread):
            self.deadline = self._host.now + WRITE_TIME
            if self._tls is not None:
                piece = self._unread[self._sent : self._sent + CHUNK]
                await self._tls.send_all(piece)
                self._sent += len(piece)
            else:
                await trio.lowlevel.wait_writable(self._socket)
                unread = memoryview(self._unread)
                self._send_now(unread[self._sent : self._sent + PIECE])
                del unread

    def _write_at_once(self) -> None:
        """Write as much as the socket accepts at once."""
        out = self._out
        if not out:
            return
        body = b""
        if len(out[-1]) > PIECE and len(out) > 1:
            # A large body is not copied to join it with its head.
            body = out.pop()
        block = b"".join(out)
        out.clear()
        self._write_block(block)
        if body:
            self._write_block(body)

    def _write_block(self, block: bytes) -> None:
        """Write as much of a block as the socket accepts at once, and keep the rest."""
        if self._out:
            self._out.append(block)
            return
        unsent: bytes | memoryview = block
        if self._sent:
            unsent = memoryview(block)[self._sent :]
        self._send_now(unsent)
        if self._sent < len(block):
            self._out.append(block)
        else:
            self._sent = 0

    def _send_now(self, piece: bytes | memoryview) -> None:
        """Write as much as the socket accepts at once, if it accepts anything."""
        try:
            self._sent += self._socket.send(piece)
        except BlockingIOError:
            pass


def _size_of(parsed: Parsed) -> int:
    """Return the memory that a parsed request takes, in bytes."""
    return PARSED_SIZE + HEADER_SIZE * len(parsed.headers) + len(parsed.body)


@lru_cache(64)  # Most responses to a client have the same size, or one of a few.
def _encode_head(
    status: int, headers: Fields, length: int | None, closes: bool, date: bytes
) -> bytes:
    """Return the head of a response. `length` is None if no length is sent."""
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())]
    for name, value in ((b"Date", date), *headers):
        lines.append(b"%b: %b\r\n" % (name, value))
    if length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
    if closes:
        lines.append(b"Connection: close\r\n")
    return b"".join([*lines, b"\r\n"])
