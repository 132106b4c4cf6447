"""TODO"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import TYPE_CHECKING

import trio
from msgspec import Struct

from ..protocol.errors import TooManyCalls
from .limits import MOST_AT_ONCE, MOST_OF_ONE, Limits, Rate, busy, read_rate
from .request import Request

if TYPE_CHECKING:
    from .features.tools import ServerTool

# These stay open by their nature. They are counted apart, so that who listens takes no place from who calls.
LISTENS = "subscriptions/listen"
# Requests over HTTP that an address may make for each call that the rate allows. A client opens a session by two, lists
# what there is by some more, reads streams, comes back to them, answers questions, and tries again what was refused;
# several principals may come from one address. So this is no limit to those who mean well, and ends a flood before it
# costs more than the reading of its heads.
REQUESTS_OF_A_CALL = 20
# Senders of whom it is remembered what they have used up.
MOST_SENDERS = 10_000


# Who sends


def sender(request: Request) -> Hashable:
    """On whose account a request goes: the principal's, else the address's, else the conversation's own.

    The address is that of who has connected. What a header says of others behind it is not believed, as anybody can
    say it: behind a proxy senders are told apart by principals, or limited there.
    """
    if request.principal is not None:
        return request.principal.name
    return request.conversation.address or request.conversation


@lru_cache(1024)
def network(address: str) -> str:
    """What one sender has of addresses: in IPv6 a network of 64 bits, in which it can take as many as it likes."""
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(known, IPv6Address) or known.is_loopback:
        return address
    return str(known.ipv4_mapped or f"{IPv6Address(int(known) >> 64 << 64)}/64")


# Buckets


class Bucket(Struct):
    """What one sender has left. It fills up by and by, which is reckoned when somebody looks."""

    rate: Rate
    tokens: float
    seen: float

    def look(self, now: float) -> float:
        """How many calls are left now."""
        self.tokens = min(
            self.rate.burst, self.tokens + (now - self.seen) * self.rate.each_second
        )
        self.seen = now
        return self.tokens

    def wait(self, now: float) -> float:
        """Seconds until a call is allowed, up to the next tenth; 0 where one is."""
        missing = 1 - self.look(now)
        return (
            max(ceil(missing / self.rate.each_second * 10 - 1e-6) / 10, 0.1)
            if missing > 1e-6
            else 0.0
        )


class Buckets(dict[Hashable, Bucket]):
    """The buckets that are not full: those that are need not be remembered."""

    _enough = MOST_SENDERS // 10

    def of(self, key: Hashable, rate: Rate) -> Bucket:
        """A sender's bucket."""
        if (bucket := self.get(key)) is None or bucket.rate != rate:
            if len(self) >= self._enough:
                self._forget(trio.current_time())
            bucket = self[key] = Bucket(rate, rate.burst, trio.current_time())
        return bucket

    def _forget(self, now: float) -> None:
        """Drop the full ones, and of too many the fullest. It is done seldom, so that it costs little each time."""
        left = [
            (key, bucket)
            for key, bucket in self.items()
            if bucket.look(now) < bucket.rate.burst
        ]
        left.sort(key=lambda item: item[1].tokens / item[1].rate.burst)
        self.clear()
        self.update(left[:MOST_SENDERS])
        self._enough = max(2 * len(self), MOST_SENDERS // 10)


# At the door


class Limiter:
    """Holds one server to its limits."""

    def __init__(self, limits: Limits) -> None:
        self.rate = read_rate(limits.rate) if limits.rate else None
        self.total = 0  # of requests that wait
        self._apart: dict[
            Hashable, int
        ] = {}  # of those the ones that are counted elsewhere besides
        self._limits = limits
        self._buckets, self._floods = Buckets(), Buckets()

    def check(self, request: Request) -> None:
        """Refuse a request while too many are under way. Raises TooManyCalls."""
        if request.call.method == LISTENS:
            most, most_of_one = MOST_AT_ONCE, MOST_OF_ONE
            total, own = [self._apart.get(place, 0) for place in _places(request)]
        else:
            most, most_of_one = (
                self._limits.max_in_flight,
                self._limits.max_in_flight_per_connection,
            )
            total, own = self.total, request.conversation.waiting
            if not request.conversation.is_lasting:
                own = self._apart.get(("sender", sender(request)), 0)
        if total >= most or own >= most_of_one:
            raise busy(most if total >= most else most_of_one, "requests")

    def admit(self, request: Request, tool: "ServerTool") -> None:
        """Let a call of a tool in, and take a token: its sender's, and one for this tool. Raises TooManyCalls."""
        self.check(request)
        if tool.max_in_flight is not None:
            request.limited_tool = tool.name
            if self._apart.get(("tool", tool.name), 0) >= tool.max_in_flight:
                raise busy(tool.max_in_flight, f"calls of {tool.name}")
        if self.rate or tool.rate:
            self._take(request, tool)

    def _take(self, request: Request, tool: "ServerTool") -> None:
        who, now = sender(request), trio.current_time()
        wanted = [
            ("calls", (who, None), self.rate),
            (f"calls of {tool.name}", (who, tool.name), tool.rate),
        ]
        buckets = [
            (what, self._buckets.of(key, rate))
            for what, key, rate in wanted
            if rate is not None
        ]
        for what, bucket in buckets:
            if wait := bucket.wait(now):
                told = f"Too many {what}: {bucket.rate} are allowed; try again in {wait:g} s"
                raise TooManyCalls(told, retry_after=wait)
        for _, bucket in buckets:
            bucket.tokens -= 1

    def count(self, request: Request, change: int) -> None:
        """A request waits, and is one more that is under way; or it is done, and there is one less."""
        if request.call.method != LISTENS:
            self.total += change
            request.conversation.waiting += change
            if (
                request.limited_tool is None and request.conversation.is_lasting
            ):  # as most are
                return
        for place in _places(request):
            self._apart[place] = self._apart.get(place, 0) + change
            if not self._apart[place]:
                del self._apart[place]

    def flood(self, address: str) -> float:
        """Count a request over HTTP, of any kind: seconds until the next is allowed, 0 where this one is.

        An address may make REQUESTS_OF_A_CALL times as many as its calls.
        """
        if self.rate is None:
            return 0.0
        number, unit, burst = self.rate
        rate = Rate(number * REQUESTS_OF_A_CALL, unit, burst * REQUESTS_OF_A_CALL)
        bucket = self._floods.of(address, rate)
        if not (wait := bucket.wait(trio.current_time())):
            bucket.tokens -= 1
        return wait


def _places(request: Request) -> Sequence[Hashable]:
    """Where a request is counted, besides in all and by its conversation."""
    if request.call.method == LISTENS:
        return LISTENS, (
            LISTENS,
            request.conversation
            if request.conversation.is_lasting
            else sender(request),
        )
    places: list[Hashable] = (
        [] if request.conversation.is_lasting else [("sender", sender(request))]
    )
    return (
        places
        if request.limited_tool is None
        else [*places, ("tool", request.limited_tool)]
    )
