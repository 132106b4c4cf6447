"""The load: requests that are sent as fast as the server answers.

One plain loop sends them, without trio and without threads, so that the load takes
little of the machine. An iteration of the loop costs one or two system calls, and of a
reply only the id and the kind of outcome are decoded.
"""

from __future__ import annotations

import heapq
import selectors
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from typing import NamedTuple

import msgspec

from ..load_spec import UsageError
from .transports import (
    RESPONSE_TIMEOUT,
    LoadConnection,
    LoadReply,
    LoadRequest,
    read_reply,
)

# A load that takes more than this share of a core may itself limit the figures.
BUSY = 0.9
# Seconds between reports of the progress.
_REPORT_INTERVAL = 0.1
# The longest description of an error, in characters.
_LONGEST_ERROR = 120

# Ids are never used twice, so a conversation can have several loads.
_ids = count(1)


class MethodRun(msgspec.Struct):
    """The figures of the requests with one method, times in seconds."""

    calls: int  # with the expected response
    p50: float
    p90: float
    p99: float
    longest: float
    errors: int


class Run(msgspec.Struct):
    """The figures of one run: times in seconds, CPU use in cores."""

    at_once: int
    seconds: float
    calls: int  # with the expected response
    rate: float  # calls per second
    p50: float
    p90: float
    p99: float
    longest: float
    errors: dict[str, int]
    load_took: float
    server_took: float | None  # None if unknown
    methods: dict[str, MethodRun] = {}

    @property
    def is_limited(self) -> bool:
        """Whether the load, rather than the server, may limit the figures."""
        if self.load_took <= BUSY:
            return False
        return self.server_took is None or self.server_took < BUSY


class _Meter:
    """Measures the time of a run, and the CPU time of both sides."""

    def __init__(self, server_time: Callable[[], float | None]) -> None:
        self._server_time = server_time
        self.started = time.perf_counter()
        self._load_before = time.process_time()
        self._server_before = server_time()
        self.seconds = 0.0
        self.load_took = 0.0
        self.server_took: float | None = None

    def stop(self) -> None:
        """Stop measuring, and set the figures."""
        self.seconds = time.perf_counter() - self.started
        load_time = time.process_time() - self._load_before
        self.load_took = load_time / self.seconds
        server_after = self._server_time()
        if self._server_before is not None and server_after is not None:
            server_time = server_after - self._server_before
            self.server_took = server_time / self.seconds


class Load:
    """Keeps a number of requests in flight on each connection."""

    def __init__(
        self,
        connections: Sequence[LoadConnection],
        requests: Sequence[LoadRequest],
        window: int,
    ) -> None:
        self._connections = connections
        self._requests = cycle(requests)
        self._window = window
        # When each request was sent, and the request, by its id.
        self._in_flight: dict[int, tuple[float, LoadRequest]] = {}
        # By method: the seconds to each expected response, and the number of others.
        self._latencies: dict[str, list[float]] = defaultdict(list)
        self._failures: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        # The number of requests that may still be sent, and the time when this ends.
        self._left = 0.0
        self._until = 0.0
        self._selector = selectors.DefaultSelector()

    def drive(
        self,
        seconds: float,
        calls: float,
        report_progress: Callable[[float], None],
        server_time: Callable[[], float | None],
    ) -> Run:
        """Send requests for so many seconds or calls, then wait for the responses.

        `report_progress` is called with the seconds since its last call, and
        `server_time` returns the CPU time of the server. Raises UsageError.
        """
        meter = _Meter(server_time)
        self._left = calls
        self._until = meter.started + seconds
        with self._selector:
            for connection in self._connections:
                self._watch(connection)
                self._start(connection)
            self._run_until_answered(meter.started, report_progress)
        meter.stop()
        return self._figures(meter)

    def _run_until_answered(
        self, started: float, report_progress: Callable[[float], None]
    ) -> None:
        reported = started
        while self._is_busy():
            self._run_once()
            now = time.perf_counter()
            if now > reported + _REPORT_INTERVAL:
                report_progress(now - reported)
                reported = now

    def _figures(self, meter: _Meter) -> Run:
        latencies: list[float] = []
        for some in self._latencies.values():
            latencies += some
        calls = len(latencies)
        p50, p90, p99, longest = _percentiles(latencies)
        return Run(
            at_once=len(self._connections) * self._window,
            seconds=meter.seconds,
            calls=calls,
            rate=calls / meter.seconds,
            p50=p50,
            p90=p90,
            p99=p99,
            longest=longest,
            errors=dict(self._errors),
            load_took=meter.load_took,
            server_took=meter.server_took,
            methods=self._method_figures(),
        )

    def _method_figures(self) -> dict[str, MethodRun]:
        figures = {}
        for method in sorted({*self._latencies, *self._failures}):
            latencies = self._latencies[method]
            p50, p90, p99, longest = _percentiles(latencies)
            figures[method] = MethodRun(
                calls=len(latencies),
                p50=p50,
                p90=p90,
                p99=p99,
                longest=longest,
                errors=self._failures[method],
            )
        return figures

    def _is_busy(self) -> bool:
        """Return whether the load is not finished yet."""
        return len(self._in_flight) > 0

    def _timeout(self) -> float:
        """Return the number of seconds to wait for the next event."""
        return RESPONSE_TIMEOUT

    def _run_once(self) -> None:
        """Wait until connections can be read or written, and do that."""
        ready = self._selector.select(self._timeout())
        if not ready:
            self._on_timeout()
        for key, events in ready:
            connection: LoadConnection = key.data
            if events & selectors.EVENT_READ:
                answered = self._receive(connection.read())
                if connection.read_fd != key.fd:
                    self._rewatch(connection)
                self._continue(connection, answered)
            elif connection.flush():
                self._stop_writing(key.fd)

    def _on_timeout(self) -> None:
        """Handle a timeout. Raises UsageError."""
        raise UsageError(
            f"expected {len(self._in_flight)} more responses, but nothing has arrived "
            f"for {RESPONSE_TIMEOUT:g} s"
        )

    def _start(self, connection: LoadConnection) -> None:
        """Send the first requests on a connection."""
        self._fill(connection, self._window)

    def _continue(self, connection: LoadConnection, answered: list[int]) -> None:
        """Send more requests in place of those with the ids in `answered`."""
        self._fill(connection, len(answered))

    def _watch(self, connection: LoadConnection) -> None:
        self._selector.register(connection.read_fd, selectors.EVENT_READ, connection)

    def _rewatch(self, connection: LoadConnection) -> None:
        """Watch the new descriptor of a connection that was reopened."""
        for key in list(self._selector.get_map().values()):
            if key.data is connection:
                self._selector.unregister(key.fd)
        self._watch(connection)

    def _stop_writing(self, write_fd: int) -> None:
        # The connection may just have been reopened.
        if write_fd in self._selector.get_map():
            self._selector.unregister(write_fd)

    def _fill(self, connection: LoadConnection, room: int) -> None:
        """Send `room` requests, or fewer at the end of the load."""
        now = time.perf_counter()
        if now >= self._until:
            return
        number = int(min(room, self._left))
        if number <= 0:
            return
        self._left -= number
        requests = [(next(self._requests), next(_ids)) for _ in range(number)]
        self._send(connection, requests, now)

    def _send(
        self,
        connection: LoadConnection,
        requests: list[tuple[LoadRequest, int]],
        now: float,
    ) -> None:
        """Send requests with their ids."""
        for request, id in requests:
            self._in_flight[id] = now, request
        is_sent = connection.write(requests)
        if not is_sent and connection.write_fd not in self._selector.get_map():
            self._selector.register(
                connection.write_fd, selectors.EVENT_WRITE, connection
            )

    def _receive(self, messages: list[bytes]) -> list[int]:
        """Record the server's replies. Returns the ids of the answered requests."""
        now = time.perf_counter()
        answered = []
        for message in messages:
            reply = read_reply(message)
            if reply.id not in self._in_flight:
                _refuse_request(reply)
                continue
            sent, request = self._in_flight.pop(reply.id)
            answered.append(reply.id)
            failed = bool(reply.error) or reply.result is None or reply.result.failed
            if failed == request.fails:
                self._latencies[request.method].append(now - sent)
            else:
                self._failures[request.method] += 1
                self._errors[_describe_failure(message, reply)] += 1
        return answered


class MixLoad(Load):
    """Simulates users who repeat recorded conversations on each connection.

    A user sends the requests of one conversation in order. Before each one, the user
    waits for the previous reply, and then for the think time. After that follows the
    next conversation.
    """

    def __init__(
        self,
        connections: Sequence[LoadConnection],
        conversations: Sequence[Sequence[LoadRequest]],
        window: int,
    ) -> None:
        super().__init__(connections, conversations[0], window)
        self._conversations = conversations
        self._users = count()
        # By the id of a request in flight, the next requests of its user.
        self._next_of: dict[int, Iterator[LoadRequest]] = {}
        # A heap of planned requests: the time, a number that keeps the order, the plan.
        self._thinking: list[tuple[float, int, _Planned]] = []
        self._order = count()

    def _is_busy(self) -> bool:
        return super()._is_busy() or len(self._thinking) > 0

    def _timeout(self) -> float:
        if not self._thinking:
            return super()._timeout()
        return max(0.0, self._thinking[0][0] - time.perf_counter())

    def _on_timeout(self) -> None:
        if not self._thinking:
            super()._on_timeout()

    def _run_once(self) -> None:
        super()._run_once()
        self._send_due()

    def _start(self, connection: LoadConnection) -> None:
        for _ in range(self._window):
            self._plan(connection, self._requests_of(next(self._users)))
        self._send_due()

    def _requests_of(self, user: int) -> Iterator[LoadRequest]:
        """Yield the requests of a user. Each user begins with another conversation."""
        for number in count(user):
            yield from self._conversations[number % len(self._conversations)]

    def _continue(self, connection: LoadConnection, answered: list[int]) -> None:
        for id in answered:
            self._plan(connection, self._next_of.pop(id))

    def _plan(
        self, connection: LoadConnection, requests: Iterator[LoadRequest]
    ) -> None:
        """Plan the next request of a user, unless the load ends before it."""
        request = next(requests)
        due = time.perf_counter() + request.think
        if due < self._until and self._left > 0:
            self._left -= 1
            planned = _Planned(connection, request, requests)
            heapq.heappush(self._thinking, (due, next(self._order), planned))

    def _send_due(self) -> None:
        now = time.perf_counter()
        while self._thinking and self._thinking[0][0] <= now:
            connection, request, requests = heapq.heappop(self._thinking)[2]
            id = next(_ids)
            self._next_of[id] = requests
            self._send(connection, [(request, id)], now)


class _Planned(NamedTuple):
    """The next request of a user, and the requests after it."""

    connection: LoadConnection
    request: LoadRequest
    requests: Iterator[LoadRequest]


def _percentiles(latencies: list[float]) -> tuple[float, float, float, float]:
    """Return the percentiles 50, 90, 99 and 100 of some times, or NaN."""
    ordered = sorted(latencies) or [float("nan")]
    last = len(ordered) - 1
    return (
        ordered[int(last * 0.5)],
        ordered[int(last * 0.9)],
        ordered[int(last * 0.99)],
        ordered[last],
    )


def _refuse_request(reply: LoadReply) -> None:
    """Raise UsageError for a request of the server. Ignore its notifications."""
    if reply.method and reply.id is not None:
        raise UsageError(
            f"the server sends {reply.method} requests, which a load cannot answer; "
            "use another tool"
        )


def _describe_failure(message: bytes, reply: LoadReply) -> str:
    """Describe a failure in one line, which is the same for all similar failures."""
    if reply.error is not None:
        text = f"{reply.error.get('message')} ({reply.error.get('code')})"
        return text[:_LONGEST_ERROR]
    if reply.result is None:
        return "a response with neither result nor error"
    content = msgspec.json.decode(message)["result"].get("content")
    text = content[0].get("text", "") if content else ""
    return f"isError: {text}"[:_LONGEST_ERROR]
