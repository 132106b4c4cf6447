"""Limits: the rate of requests, their number at once, their size and duration.

A request that exceeds a limit is refused immediately, with the time to try again.
Requests are not queued.
"""

import re
from typing import NamedTuple

from msgspec import Struct

from ..protocol.errors import TooManyCalls

# The maximum number of requests in progress, of all clients and of one connection.
MOST_AT_ONCE = 100_000
MOST_OF_ONE = 20_000
# The maximum number of HTTP sessions.
MOST_SESSIONS = 10_000
# The maximum number of worker threads.
WORKER_THREADS = 64
# The maximum number of bytes that the server holds for all clients together.
MEMORY = 256 * 2**20
# Seconds after which a client may try again if the server was busy.
BUSY = 1.0

_RATE = r"([1-9][0-9]{0,8})/([smh])(?::([1-9][0-9]{0,8}))?"
_UNITS = {"s": ("a second", 1), "m": ("a minute", 60), "h": ("an hour", 3600)}


class Rate(NamedTuple):
    """A number of requests per unit of time. Up to `burst` may arrive at once."""

    number: int
    unit: str
    burst: int

    @property
    def each_second(self) -> float:
        """Return how many calls are allowed per second."""
        _, seconds = _UNITS[self.unit]
        return self.number / seconds

    def __str__(self) -> str:
        name, _ = _UNITS[self.unit]
        return f"{self.number:,} {name}"


def read_rate(text: object, where: str = "") -> Rate:
    """Parse a rate such as "10/s:50".

    Raises ValueError. Its message begins with `where`.
    """
    found = re.fullmatch(_RATE, text) if isinstance(text, str) else None
    if found is None:
        forms = "'10/s', '100/m' or '1000/h', or '10/s:50' with a burst"
        prefix = f"{where}: " if where else ""
        raise ValueError(f"{prefix}expected {forms}, got {text!r}")
    number, unit, burst = found.groups()
    return Rate(int(number), unit, int(burst or number))


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a server.

    A tool's own `rate` and `max_in_flight` apply in addition. Its `timeout` and
    `max_result` replace those given here.

    Attributes:
        rate: The requests of one client: "10/s", "100/m", "1000/h", or with a burst
            "10/s:50". A tool call, a read or a prompt counts as one, any other request
            as a twentieth; `initialize`, and polls of a task at its interval, do not
            count. A client is a principal; without authentication an address, or on
            stdio the connection.
        max_in_flight: The number of requests in progress, of all clients.
        max_in_flight_per_connection: The number of requests in progress on one
            connection.
        max_sessions: The number of HTTP sessions. When there are more, the client with
            the most loses one.
        max_result: The size of a result in bytes.
        timeout: The number of seconds that a function may take.
        threads: The number of worker threads for functions that are not async. Except
            on stdio, one client can use at most three quarters of them.
        memory: The number of bytes that the server holds for all clients together:
            requests in progress, unread replies, sessions and their history. When it is
            exceeded, the client that uses the most loses something.
    """

    rate: str | None = None
    max_in_flight: int = MOST_AT_ONCE
    max_in_flight_per_connection: int = MOST_OF_ONE
    max_result: int = 8 * 2**20
    timeout: float | None = None
    threads: int = WORKER_THREADS
    memory: int = MEMORY
    max_sessions: int = MOST_SESSIONS

    def __post_init__(self) -> None:
        check_limits(
            "Limits",
            rate=self.rate,
            timeout=self.timeout,
            max_in_flight=self.max_in_flight,
            max_in_flight_per_connection=self.max_in_flight_per_connection,
            max_result=self.max_result,
            threads=self.threads,
            memory=self.memory,
            max_sessions=self.max_sessions,
        )


def check_limits(
    where: str,
    *,
    rate: str | None = None,
    timeout: float | None = None,
    **counts: int | None,
) -> None:
    """Raise ValueError for a limit that is neither None nor valid."""
    check_seconds(timeout, f"{where}(timeout)")
    if rate is not None:
        read_rate(rate, f"{where}(rate)")
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise ValueError(
                f"{where}({name}): expected a whole number of at least 1, got {count!r}"
            )


def check_seconds(given: object, what: str, *, also: float | None = None) -> None:
    """Raise ValueError unless a duration is a positive number, or equals `also`."""
    if not isinstance(given, bool):
        if given == also:
            return
        if isinstance(given, int | float) and given > 0:
            return
    raise ValueError(f"{what}: expected a positive number of seconds, got {given!r}")


def busy(most: int, what: str) -> TooManyCalls:
    """Return the error for a request when too many are already in progress."""
    reason = f"Busy: too many {what} in progress (limit: {most:,})"
    return TooManyCalls(f"{reason}; try again in {BUSY:g} s", retry_after=BUSY)


def out_of_memory() -> TooManyCalls:
    """Return the error for a request whose memory is needed for other clients."""
    why = "the server's memory is needed for other clients"
    return TooManyCalls(f"Busy: {why}; try again in {BUSY:g} s", retry_after=BUSY)
