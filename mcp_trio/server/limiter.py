"""Enforces a server's limits.

The memory for senders is bounded, however many senders there are.
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from math import ceil, inf
from typing import Protocol

import trio
from msgspec import Struct

from ..protocol.errors import TooManyCalls
from .limits import MOST_AT_ONCE, MOST_OF_ONE, Limits, Rate, busy, read_rate
from .request import Request

# Subscriptions are long-lived. They are counted separately, so that they do not block
# calls.
LISTENS = "subscriptions/listen"
# Requests that count as one call. `tools/call` also has rates of its own.
CALLS = "tools/call"
WHOLE = frozenset({CALLS, "resources/read", "prompts/get"})
# Requests that do not count. Without these, a limited client could not even connect.
FREE = frozenset({"initialize"})
# Polling a task does not count if the client keeps to the poll interval.
POLLS = "tasks/get"
# The fraction of its interval by which a poll may be early, because clocks and networks
# vary.
TOLERANCE = 0.1
# HTTP requests of any kind that an address may make for each call that the rate allows.
# A client opens a session with two, lists features with some more, reads and resumes
# streams, answers questions and repeats refused requests, and several principals may
# share an address. So no well-behaved client is limited, but a flood is rejected after
# reading the heads of its requests.
REQUESTS_OF_A_CALL = 20
# The weight of any other request, where a call has the weight 1.
SMALL = 1 / REQUESTS_OF_A_CALL
# The maximum number of senders whose buckets are kept.
MOST_SENDERS = 10_000


class LimitedTool(Protocol):
    """The attributes of a tool that the limiter uses."""

    name: str
    rate: Rate | None
    max_in_flight: int | None


# Senders


def sender(request: Request) -> Hashable:
    """Return the sender whose limits a request counts against.

    That is its principal, else its address, else its conversation. Unless a trusted
    proxy is configured, headers do not affect the address, because any client can send
    them.
    """
    if request.principal is not None:
        return request.principal.name
    return request.conversation.address or request.conversation


@lru_cache(1024)
def network(address: str) -> str:
    """Return the network that is treated as one sender.

    For IPv6 that is the 64-bit network, because a client can use any address in it.
    """
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(known, IPv6Address) or known.is_loopback:
        return address
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    prefix = IPv6Address(int(known) >> 64 << 64)
    return f"{prefix}/64"


# Token buckets


class Bucket(Struct):
    """The calls that one sender has left. It is refilled when it is read."""

    rate: Rate
    tokens: float
    seen: float

    def refill(self, now: float) -> float:
        """Return how many calls are left now."""
        refilled = self.tokens + (now - self.seen) * self.rate.each_second
        self.tokens = min(self.rate.burst, refilled)
        self.seen = now
        return self.tokens

    def wait(self, now: float, weight: float = 1.0) -> float:
        """Return the seconds until a request is allowed, rounded up to a tenth."""
        missing = weight - self.refill(now)
        if missing <= 1e-6:
            return 0.0
        tenths = ceil(missing / self.rate.each_second * 10 - 1e-6)
        return max(tenths / 10, 0.1)


class Buckets(dict[Hashable, Bucket]):
    """The buckets that are not full. Full buckets need not be kept."""

    _enough = MOST_SENDERS // 10

    def get_or_create(self, key: Hashable, rate: Rate) -> Bucket:
        """Return a sender's bucket."""
        bucket = self.get(key)
        if bucket is None or bucket.rate != rate:
            if len(self) >= self._enough:
                self._forget(trio.current_time())
            bucket = self[key] = Bucket(rate, rate.burst, trio.current_time())
        return bucket

    def _forget(self, now: float) -> None:
        """Drop full buckets and, if there are still too many, the fullest ones.

        This runs again when the number of buckets has doubled, so it runs rarely.
        """
        left = [
            (key, bucket)
            for key, bucket in self.items()
            if bucket.refill(now) < bucket.rate.burst
        ]
        left.sort(key=lambda item: item[1].tokens / item[1].rate.burst)
        self.clear()
        self.update(left[:MOST_SENDERS])
        self._enough = max(2 * len(self), MOST_SENDERS // 10)


# The limiter


class Limiter:
    """Enforces the limits of one server. `total` counts the requests that wait."""

    def __init__(self, limits: Limits) -> None:
        self.rate = read_rate(limits.rate) if limits.rate else None
        self.total = 0
        self._limits = limits
        # The requests that wait, by other keys: the sender of a single HTTP request, a
        # tool with its own limit, a subscription.
        self._counts: dict[Hashable, int] = {}
        self._buckets = Buckets()
        self._flood_buckets = Buckets()
        # When the next poll of each task is due.
        self._polls: dict[str, float] = {}

    def check(self, request: Request) -> None:
        """Refuse a request while too many are in progress. Raises TooManyCalls."""
        if request.call.method == LISTENS:
            most = MOST_AT_ONCE
            most_of_one = MOST_OF_ONE
            total_key, own_key = _extra_keys(request)
            total = self._counts.get(total_key, 0)
            own = self._counts.get(own_key, 0)
        else:
            most = self._limits.max_in_flight
            most_of_one = self._limits.max_in_flight_per_connection
            total = self.total
            own = request.conversation.waiting
            if not request.conversation.is_persistent:
                own = self._counts.get(("sender", sender(request)), 0)
        if total >= most:
            raise busy(most, "requests")
        if own >= most_of_one:
            raise busy(most_of_one, "requests")

    def admit(self, request: Request, tool: LimitedTool) -> None:
        """Count a tool call against the tool's own limits.

        It has already been counted against the server's rate. Raises TooManyCalls.
        """
        try:
            self._admit(request, tool)
        except TooManyCalls:
            if self.rate is not None:
                # A refused call does not count.
                self._overall(request, self.rate).tokens += 1
            raise

    def _admit(self, request: Request, tool: LimitedTool) -> None:
        self.check_tool(request, tool)
        if tool.rate is not None:
            self.take_from(request, tool.name, tool.rate, 1.0)

    def check_tool(self, request: Request, tool: LimitedTool) -> None:
        """Refuse a tool call while too many are in progress. Raises TooManyCalls."""
        self.check(request)
        if tool.max_in_flight is not None:
            if self._counts.get(("tool", tool.name), 0) >= tool.max_in_flight:
                raise busy(tool.max_in_flight, f"calls of {tool.name}")
            request.limited_tool = tool.name

    def take(self, request: Request, rate: Rate) -> None:
        """Count a request of any method against its sender's rate.

        Raises TooManyCalls.
        """
        weight = self.weight(request)
        if weight:
            self.take_from(request, None, rate, weight)

    def weight(self, request: Request) -> float:
        """Return the weight of a request: 1 for a call, 0 if it does not count."""
        method = request.call.method
        if method in WHOLE:
            return 1.0
        if method in FREE or self._is_timely_poll(request):
            return 0.0
        return SMALL

    def take_from(
        self, request: Request, tool: str | None, rate: Rate, weight: float
    ) -> None:
        """Take from the sender's bucket, for one tool or for all requests.

        Raises TooManyCalls.
        """
        bucket = self._buckets.get_or_create((sender(request), tool), rate)
        wait = bucket.wait(trio.current_time(), weight)
        if wait:
            raise too_many(tool, rate, weight, wait)
        bucket.tokens -= weight

    def _overall(self, request: Request, rate: Rate) -> Bucket:
        """Return the bucket for all requests of a sender."""
        return self._buckets.get_or_create((sender(request), None), rate)

    def expect_poll(self, id: str, seconds: float) -> None:
        """Let a client poll a task after so many seconds.

        A poll after that time does not count against the rate.
        """
        if self.rate is None:
            return
        if len(self._polls) >= MOST_SENDERS:
            # Forget the oldest one. That poll will count as any other request.
            del self._polls[next(iter(self._polls))]
        due = trio.current_time() + seconds * (1 - TOLERANCE)
        self._polls[id] = due

    def _is_timely_poll(self, request: Request) -> bool:
        if request.call.method != POLLS:
            return False
        id = request.call.params.task_id
        if self._polls.get(id, inf) > trio.current_time():
            return False
        del self._polls[id]
        return True

    def count(self, request: Request, change: int) -> None:
        """Count a request that begins to wait (1) or has finished (-1)."""
        if request.call.method != LISTENS:
            self.total += change
            request.conversation.waiting += change
            if request.limited_tool is None and request.conversation.is_persistent:
                return
        for key in _extra_keys(request):
            self._change_count(key, change)

    def count_tool(self, request: Request) -> None:
        """Count a request for its tool, if it was counted before its tool was known."""
        if request.limited_tool is not None:
            self._change_count(("tool", request.limited_tool), 1)

    def _change_count(self, key: Hashable, change: int) -> None:
        self._counts[key] = self._counts.get(key, 0) + change
        if not self._counts[key]:
            del self._counts[key]

    def flood(self, address: str) -> float:
        """Count an HTTP request of any kind.

        Returns the seconds until the next one is allowed; 0 if this one is.
        """
        if self.rate is None:
            return 0.0
        number, unit, burst = self.rate
        rate = Rate(number * REQUESTS_OF_A_CALL, unit, burst * REQUESTS_OF_A_CALL)
        bucket = self._flood_buckets.get_or_create(address, rate)
        wait = bucket.wait(trio.current_time())
        if not wait:
            bucket.tokens -= 1
        return wait


def too_many(tool: str | None, rate: Rate, weight: float, wait: float) -> TooManyCalls:
    """Return the error for a request that exceeds a rate."""
    what = "calls" if weight == 1 else "requests"
    if tool is not None:
        what = f"calls of {tool}"
    message = f"Too many {what}: {rate} are allowed; try again in {wait:g} s"
    return TooManyCalls(message, retry_after=wait)


def _extra_keys(request: Request) -> Sequence[Hashable]:
    """Return the keys to count a request by, in addition to the total."""
    is_persistent = request.conversation.is_persistent
    if request.call.method == LISTENS:
        own = request.conversation if is_persistent else sender(request)
        return LISTENS, (LISTENS, own)
    keys: list[Hashable] = []
    if not is_persistent:
        keys.append(("sender", sender(request)))
    if request.limited_tool is not None:
        keys.append(("tool", request.limited_tool))
    return keys
