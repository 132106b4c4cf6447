"""Check that the time of an action is proportional to the size of its input."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# How many times larger the large input is than the small one.
RATIO = 8
ROUNDS = 3
# Seconds that any action may take: for so short times, the size matters little.
NEGLIGIBLE = 0.01


def assert_linear(
    act: Callable[[T], object], make: Callable[[int], T], size: int
) -> None:
    """Fail if an action on `make(size)` takes far more than eight times `make(size / 8)`.

    Quadratic time would be 64 times. Only the time in which this thread runs is
    counted, and of several rounds the shortest, so other programs do not affect the
    result.
    """
    small = _shortest(act, make(size // RATIO))
    large = _shortest(act, make(size))
    assert large < 3 * RATIO * small + NEGLIGIBLE


def _shortest(act: Callable[[T], object], given: T) -> float:
    """Return the shortest time of several rounds."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        act(given)
        seconds.append(time.thread_time() - started)
    return min(seconds)
