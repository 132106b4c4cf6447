"""What happens to one of the processes, A, or to Redis. To add one, see FAULTS.

A fault does its harm for some seconds, undoes it, and returns. The clients of `load.py`
go on all the while.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio
from msgspec import Struct

from tests.chaos.faults import why_no_clock

from .pair import Pair

Inflict = Callable[[Pair, float], Awaitable[None]]

# The kinds of problems that a fault excuses, as regular expressions. Requests that need
# a state that cannot be reached are refused with 503 and Retry-After.
UNAVAILABLE = "^unavailable: "
# Connections to A end.
A_GONE = "^gone: A|^gone: a change at A"
# A request or a task of A has ended with an error about the fault.
WORK_LOST = "^lost: "


class SharedFault(Struct, frozen=True):
    """Something that goes wrong, and the problems that it excuses."""

    name: str
    inflict: Inflict
    # Its duration, in multiples of the command line's value.
    lasts: float = 1.0
    # The problems that it excuses: none, as a rule.
    tolerates: str = "(?!)"
    # Errors in the log that it excuses.
    logs: str = "(?!)"
    # Whether each process counts only its own rates during the fault.
    counts_alone: bool = False
    # Whether A is another process afterwards.
    restarts: bool = False
    # Why it cannot happen here, or an empty text.
    unable: Callable[[], str] = lambda: ""


async def kill_a(pair: Pair, seconds: float) -> None:
    """Kill A, and start it again."""
    await pair.members[0].kill_and_restart()
    await trio.sleep(seconds)


async def stop_a(pair: Pair, seconds: float) -> None:
    """Give A no time at all."""
    server = pair.members[0].server
    server.send_signal(signal.SIGSTOP)
    try:
        await trio.sleep(seconds)
    finally:
        server.send_signal(signal.SIGCONT)


async def clock_of_a_jumps(pair: Pair, seconds: float) -> None:
    """Set the clock of A forward and back by a day."""
    for offset in (86_400, 0, -86_400, 0):
        pair.members[0].server.clock.set(offset)
        await trio.sleep(seconds / 4)


async def stop_redis(pair: Pair, seconds: float) -> None:
    """Stop Redis, and start it again."""
    await trio.to_thread.run_sync(pair.redis.stop)
    await trio.sleep(seconds)
    await trio.to_thread.run_sync(pair.redis.start)


async def kill_redis(pair: Pair, seconds: float) -> None:
    """Kill Redis, which writes each change to disk at once, and start it again."""
    await trio.to_thread.run_sync(pair.redis.kill)
    await trio.sleep(seconds)
    await trio.to_thread.run_sync(pair.redis.start)


async def pause_redis(pair: Pair, seconds: float) -> None:
    """Let Redis answer nobody for a while."""
    await pair.command("CLIENT", "PAUSE", str(round(1000 * seconds)), "ALL")
    await trio.sleep(seconds)


# Seconds between two cuts.
CUT = 0.25


async def cut_connections(pair: Pair, seconds: float) -> None:
    """Cut all connections to Redis, again and again."""
    for _ in range(max(1, round(seconds / CUT))):
        for kind in ("normal", "pubsub"):
            await pair.command("CLIENT", "KILL", "TYPE", kind)
        await trio.sleep(CUT)


async def fill_redis(pair: Pair, seconds: float) -> None:
    """Let Redis have no memory for anything new."""
    await pair.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await pair.command("CONFIG", "SET", "maxmemory", "1")
    try:
        await trio.sleep(seconds)
    finally:
        await pair.command("CONFIG", "SET", "maxmemory", "0")


AWAY = UNAVAILABLE
FAULTS = [
    SharedFault(
        "A is killed",
        kill_a,
        tolerates=f"{A_GONE}|{WORK_LOST}",
        restarts=True,
    ),
    SharedFault("A is stopped for a moment", stop_a, lasts=0.25),
    SharedFault(
        "A is stopped for long",
        stop_a,
        lasts=2.5,
        # When it goes on, its requests to Redis have taken too long.
        tolerates=f"{A_GONE}|{WORK_LOST}|{UNAVAILABLE}A",
    ),
    SharedFault("the clock of A jumps", clock_of_a_jumps, unable=why_no_clock),
    SharedFault("Redis is restarted", stop_redis, tolerates=AWAY, counts_alone=True),
    SharedFault(
        "Redis is killed", kill_redis, lasts=2.5, tolerates=AWAY, counts_alone=True
    ),
    SharedFault("Redis is slow", pause_redis, tolerates=AWAY, counts_alone=True),
    SharedFault(
        "connections are cut", cut_connections, tolerates=AWAY, counts_alone=True
    ),
    SharedFault("Redis is full", fill_redis, tolerates=AWAY, counts_alone=True),
]
