"""The load: requests sent as fast as they are answered, by one plain loop that leaves the machine to the server.

Neither trio nor threads: a turn of the loop costs a system call or two, and each reply is decoded just so far as to
know which request it answers and whether that has failed.
"""

from __future__ import annotations

import selectors
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count, cycle

import msgspec

from ..load_spec import UsageError
from .transports import PATIENCE, Reply, Request, Wire, read_reply

# The share of a core from which on the load's own work may be what bounds a figure.
BUSY = 0.9


class Run(msgspec.Struct):
    """What one run of a load has shown. Times are in seconds, what was taken of the processor in cores."""

    at_once: int
    seconds: float
    calls: int  # that were answered as they should be
    rate: float  # of those, a second
    p50: float
    p90: float
    p99: float
    longest: float
    errors: dict[str, int]
    load_took: float
    server_took: float | None  # None where that cannot be known

    @property
    def is_limited(self) -> bool:
        """Whether the load itself, rather than the server, may be what bounds the figures."""
        return self.load_took > BUSY and (
            self.server_took is None or self.server_took < BUSY
        )


ids = count(1)  # of a conversation no id comes twice


class Load:
    """Keeps so many requests under way on each wire until the time is up, and takes in what they are answered with."""

    def __init__(
        self, wires: Sequence[Wire], requests: Sequence[Request], window: int
    ) -> None:
        self._wires = wires
        self._next = cycle(requests)
        self._window = window
        self._sent: dict[int, tuple[float, bool]] = {}
        self._latencies: list[float] = []
        self._errors: Counter[str] = Counter()

    def drive(
        self,
        seconds: float,
        calls: float,
        tell: Callable[[float], None],
        server_time: Callable[[], float | None],
    ) -> Run:
        """Load for so long, or so many calls, and wait for what is owed. Raises UsageError."""
        started, before, served = (
            time.perf_counter(),
            time.process_time(),
            server_time(),
        )
        told, self._left, self._until = started, calls, started + seconds
        with selectors.DefaultSelector() as self._selector:
            for wire in self._wires:
                self._selector.register(wire.reads, selectors.EVENT_READ, wire)
                self._fill(wire, self._window)
            while self._sent:
                self._turn()
                if (now := time.perf_counter()) > told + 0.1:
                    tell(now - told)
                    told = now
        taken, worked, after = (
            time.perf_counter() - started,
            time.process_time() - before,
            server_time(),
        )
        server_took = (
            None if after is None or served is None else (after - served) / taken
        )
        times = sorted(self._latencies) or [float("nan")]
        p50, p90, p99, longest = [
            times[int((len(times) - 1) * share)] for share in (0.5, 0.9, 0.99, 1)
        ]
        return Run(
            at_once=len(self._wires) * self._window,
            seconds=taken,
            calls=len(self._latencies),
            rate=len(self._latencies) / taken,
            p50=p50,
            p90=p90,
            p99=p99,
            longest=longest,
            errors=dict(self._errors),
            load_took=worked / taken,
            server_took=server_took,
        )

    def _turn(self) -> None:
        ready = self._selector.select(PATIENCE)
        if not ready:
            raise UsageError(
                f"the server owes {len(self._sent)} answers, and nothing has come for {PATIENCE:g} s"
            )
        for key, events in ready:
            wire: Wire = key.data
            if events & selectors.EVENT_READ:
                answered = self._take(wire.read())
                if wire.reads != key.fd:
                    self._replace(wire)
                self._fill(wire, answered)
            elif (
                wire.flush() and key.fd in self._selector.get_map()
            ):  # it may have been replaced in this turn
                self._selector.unregister(key.fd)

    def _replace(self, wire: Wire) -> None:
        """Another connection has taken the place of one that ended."""
        for key in [*self._selector.get_map().values()]:
            if key.data is wire:
                self._selector.unregister(key.fd)
        self._selector.register(wire.reads, selectors.EVENT_READ, wire)

    def _fill(self, wire: Wire, room: int) -> None:
        now = time.perf_counter()
        number = int(min(room, self._left)) if now < self._until else 0
        if number <= 0:
            return
        self._left -= number
        requests = [(next(self._next), next(ids)) for _ in range(number)]
        for request, id in requests:
            self._sent[id] = now, request.fails
        if not wire.write(requests) and wire.writes not in self._selector.get_map():
            self._selector.register(wire.writes, selectors.EVENT_WRITE, wire)

    def _take(self, messages: list[bytes]) -> int:
        """Note what has come; how many requests are answered with it."""
        now, answered = time.perf_counter(), 0
        for message in messages:
            reply = read_reply(message)
            if reply.id not in self._sent:
                if reply.method and reply.id is not None:
                    raise UsageError(
                        f"the server asks for {reply.method} before it answers, which a load cannot do"
                    )
                continue
            sent, fails = self._sent.pop(reply.id)
            answered += 1
            failed = bool(reply.error) or reply.result is None or reply.result.failed
            if failed == fails:
                self._latencies.append(now - sent)
            else:
                self._errors[what_failed(message, reply)] += 1
        return answered


def what_failed(message: bytes, reply: Reply) -> str:
    """An error in a line, without what differs from call to call."""
    if reply.error is not None:
        return f"{reply.error.get('message')} ({reply.error.get('code')})"[:120]
    if reply.result is None:
        return "an answer with neither result nor error"
    content = msgspec.json.decode(message)["result"].get("content")
    return f"isError: {content[0].get('text', '') if content else ''}"[:120]
