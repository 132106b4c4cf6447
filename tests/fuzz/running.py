"""Run each target with a number of inputs, and report the progress."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HANGS = 20  # seconds for one input
EVERY = 2.0  # seconds between two lines of progress
Say = Callable[[str], object]


class Found(AssertionError):
    """What an input has done that none may."""


def memory(pid: int | str = "self") -> int:
    """Bytes that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def level(name: str, sizes: list[int], slack: int) -> None:
    """What is held at the end is no more than what was held when all was in use; a few looks are too few to tell."""
    if len(sizes) >= 10:
        early, late = (
            max(sizes[len(sizes) // 10 : len(sizes) // 3]),
            max(sizes[-max(1, len(sizes) // 10) :]),
        )
        if late > early * 1.1 + slack:
            raise Found(
                f"{name} grows: {early:,} in the beginning, {late:,} in the end"
            )


class Progress:
    """Counts inputs, and says so now and then."""

    def __init__(self, name: str, wanted: int, say: Say) -> None:
        self.done = 0
        self._name, self._wanted, self._say = name, wanted, say
        self._begun = self._said = time.monotonic()

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._said > EVERY or self.done >= self._wanted:
            self._said = now
            rate = self.done / max(now - self._begun, 1e-9)
            self._say(
                f"{self._name:>12} {self.done:>9,} of {self._wanted:>9,}  {rate:9,.0f} inputs/s"
            )


@contextmanager
def no_hang() -> Iterator[None]:
    """Ends what takes too long with an error that says where it was."""

    def stop(*_: object) -> None:
        raise Found(f"one input takes more than {HANGS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_parser(name: str, inputs: int, seed: int, say: Say) -> int:
    """So many inputs through one parser. Raises Found."""
    from .parsers import PARSERS

    _, make, target = PARSERS[name]
    mutator = make()
    mutator.random.seed(f"{seed} {name}")
    one, progress, held = target(mutator), Progress(name, inputs, say), list[int]()
    with no_hang():
        while progress.done < inputs:
            for _ in range(100):
                signal.setitimer(signal.ITIMER_REAL, HANGS)
                try:
                    count: Any = one() or 1
                except Exception as problem:
                    where = f"{name}, seed {seed}, input {progress.done:,}: {mutator.last[:2000]!r}"
                    raise Found(f"{where}: {problem!r}") from problem
                progress.add(count)
                if progress.done >= inputs:
                    break
            held.append(memory())
    step = max(1, len(held) // 50)
    level(f"the memory of {name}", held[::step], 8 * 2**20)
    return progress.done
