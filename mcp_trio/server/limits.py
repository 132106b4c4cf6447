"""What a server lets in: how many calls in a time, how many at once, how much in one result.

A call over a limit is refused at once, and told when to come again: nothing queues here. What is kept of senders is
bounded, so that many of them cost no more than a few.
"""

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from ..protocol.errors import TooManyCalls

if TYPE_CHECKING:
    pass
MOST_AT_ONCE, MOST_OF_ONE = 100_000, 20_000
# Seconds that who comes while too much is under way is told to wait.
BUSY = 1.0

_RATE = re.compile(r"([1-9][0-9]{0,8})/([smh])(?::([1-9][0-9]{0,8}))?")
_UNITS = {"s": ("a second", 1), "m": ("a minute", 60), "h": ("an hour", 3600)}


class Rate(NamedTuple):
    """So many calls in a unit of time; `burst` is how many of them may come together."""

    number: int
    unit: str
    burst: int

    @property
    def each_second(self) -> float:
        """Calls that are allowed in a second."""
        return self.number / _UNITS[self.unit][1]

    def __str__(self) -> str:
        return f"{self.number:,} {_UNITS[self.unit][0]}"


def read_rate(text: Any, where: str = "a rate") -> Rate:
    """The rate that a text says. Raises ValueError."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(
            f"{where} wants '10/s', '100/m' or '1000/h', with a burst '10/s:50', not {text!r}"
        )
    number, unit, burst = found.groups()
    return Rate(int(number), unit, int(burst or number))


class Limits(Struct, frozen=True, kw_only=True):
    """What a server lets in. A tool's own options of these names count besides; its timeout and size in their place.

    `rate` is for all calls of one sender together: "10/s", "100/m", "1000/h", with a burst "10/s:50". A sender is a
    principal, else an address, else a conversation. `max_in_flight` is how many requests run at once, of all and of one
    connection, `max_result` how many bytes a result may have, `timeout` how many seconds a function may take.
    """

    rate: str | None = None
    max_in_flight: int = MOST_AT_ONCE
    max_in_flight_per_connection: int = MOST_OF_ONE
    max_result: int = 32 * 2**20
    timeout: float | None = None

    def __post_init__(self) -> None:
        must_be_limits(
            "Limits", **{name: getattr(self, name) for name in self.__struct_fields__}
        )


def must_be_limits(where: str, **given: Any) -> None:
    """Options that limit are what they have to be, or None; ValueError says what else they were."""
    for name, value in given.items():
        what = f"{where}({name})"
        if name == "timeout":
            must_be_seconds(value, what)
        elif name == "rate":
            _ = value is None or read_rate(value, what)
        elif value is not None and (type(value) is not int or value < 1):
            raise ValueError(f"{what} wants a whole number, at least 1, not {value!r}")


def must_be_seconds(given: Any, what: str, *, besides: Any = None) -> None:
    """A duration is a positive number, or what it may be besides; ValueError says what else it was."""
    if isinstance(given, bool) or not (
        given == besides or (isinstance(given, int | float) and given > 0)
    ):
        raise ValueError(f"{what} wants a positive number of seconds, not {given!r}")


def busy(most: int, what: str) -> TooManyCalls:
    """The refusal while something else is under way."""
    message = f"Busy: {what} under way: {most:,}, as many as may be at once; try again in {BUSY:g} s"
    return TooManyCalls(message, retry_after=BUSY)
