"""Run each target with a number of inputs, and report the progress."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The seconds that one input may take.
TIMEOUT = 20
# The seconds between two lines of progress.
INTERVAL = 2.0
Say = Callable[[str], object]


class Failure(AssertionError):
    """A target did something that no input may cause."""


def memory(pid: int | str = "self") -> int:
    """Return the bytes that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def check_growth(name: str, sizes: list[int], slack: int) -> None:
    """Check that the last sizes are not larger than the early ones. Raises Failure.

    Fewer than ten sizes are not enough to tell.
    """
    if len(sizes) < 10:
        return
    tenth = len(sizes) // 10
    early = max(sizes[tenth : len(sizes) // 3])
    late = max(sizes[-tenth:])
    if late > early * 1.1 + slack:
        raise Failure(f"{name} grows: {early:,} at first, {late:,} at the end")


class Progress:
    """Counts inputs, and reports the count every few seconds."""

    def __init__(self, name: str, total: int, say: Say) -> None:
        self.done = 0
        self._name = name
        self._total = total
        self._say = say
        self._started = time.monotonic()
        self._reported = self._started

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._reported > INTERVAL or self.done >= self._total:
            self._reported = now
            rate = self.done / max(now - self._started, 1e-9)
            self._say(
                f"{self._name:>12} {self.done:>9,} of {self._total:>9,}  "
                f"{rate:9,.0f} inputs/s"
            )


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise Failure where the code is when an input takes too long."""

    def stop(*_: object) -> None:
        raise Failure(f"one input takes more than {TIMEOUT} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_parser(name: str, inputs: int, seed: int, say: Say) -> int:
    """Run one parser with a number of inputs. Raises Failure."""
    from .parsers import PARSERS

    _, make, target = PARSERS[name]
    mutator = make()
    mutator.random.seed(f"{seed} {name}")
    check_one = target(mutator)
    progress = Progress(name, inputs, say)
    sizes: list[int] = []
    with no_hang():
        while progress.done < inputs:
            for _ in range(100):
                signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
                try:
                    count: Any = check_one() or 1
                except Exception as problem:
                    raise Failure(
                        f"{name}, seed {seed}, input {progress.done:,}: "
                        f"{mutator.last[:2000]!r}: {problem!r}"
                    ) from problem
                progress.add(count)
                if progress.done >= inputs:
                    break
            sizes.append(memory())
    step = max(1, len(sizes) // 50)
    check_growth(f"the memory of {name}", sizes[::step], 8 * 2**20)
    return progress.done
