"""Let one fault after the other happen to two processes of one server, and their Redis.

After each, every request and task must have had exactly one outcome, sessions and tasks
must be there, and neither the processes nor Redis may hold more than before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import trio
from msgspec import Struct, field

from tests.chaos.load import Figures, Load
from tests.chaos.measures import MIB, Held, look
from tests.chaos.report import Column, line_of
from tests.support.redis_server import RedisServer

from .faults import SharedFault
from .load import lanes_of
from .pair import Pair, running_pair

# How often each client does its job before the first look, and after each fault.
WARM_UP = 3
# Seconds of load before a fault.
LEAD = 0.8
# Seconds until every client has to have finished its current job.
SETTLE = 120.0
# Seconds until everything has to be released. In Redis, streams and tasks expire.
BACK = 20.0
EXPIRED = 150.0
INTERVAL = 0.5
# What there may be more of: the connections to Redis that its client keeps open after
# many were needed at once, each with three tasks; and the clients that had their
# sessions and streams at the other process before.
MORE = {
    "descriptors": 3 + 16,
    "tasks": 6 + 3 * 16,
    "sessions": 6,
    "streams": 2,
    "requests": 2,
}
# Keys that a process leaves in Redis for a day when it is killed or declared lost, and
# those of clients that go on: the streams that they can resume, and their tasks.
MORE_KEYS = 40
# Problems of one kind that are printed.
MOST = 5


class SharedOutcome(Struct):
    """How both processes have lived through a fault."""

    fault: str
    figures: Figures
    before: list[Held]
    after: list[Held]
    keys: tuple[int, int]
    problems: list[str] = field(default_factory=list)


COLUMNS: list[Column] = [
    ("fault", 26),
    ("jobs", 6),
    ("refused", 8),
    ("slowest", 9),
    ("memory of A, B (MiB)", 22),
    ("tasks", 12),
    ("keys", 12),
    ("", 7),
]


def row(outcome: SharedOutcome) -> str:
    """Return the line of one fault."""
    figures = outcome.figures
    memory = [held.memory // MIB for held in outcome.after]
    tasks = [held.tasks for held in outcome.after]
    before, after = outcome.keys
    cells = [
        outcome.fault,
        str(figures.calls),
        str(figures.refused),
        f"{figures.slowest:.1f} s",
        ", ".join(map(str, memory)),
        ", ".join(map(str, tasks)),
        f"{before} > {after}",
        "FAILED" if outcome.problems else "ok",
    ]
    return line_of(COLUMNS, cells)


async def survive_shared(
    faults: Sequence[SharedFault],
    seconds: float,
    folder: Path,
    redis: RedisServer,
    say: Callable[[str], None],
    expiry: float = EXPIRED,
) -> list[SharedOutcome]:
    """Let the faults happen, and return how the processes lived through each.

    In the end, wait at most `expiry` seconds until Redis has no more keys than before.
    """
    outcomes = []
    async with running_pair(folder, redis) as pair, trio.open_nursery() as nursery:
        load = Load()
        load.lanes = lanes_of(pair, load)
        nursery.start_soon(load.run)
        before, keys = await warm_up(pair, load)
        say(line_of(COLUMNS, [name for name, _ in COLUMNS]))
        for fault in faults:
            reason = fault.unable()
            if reason:
                say(f"{fault.name}: skipped: {reason}")
                continue
            outcome = await live_through(fault, seconds, pair, load, before, keys)
            outcomes.append(outcome)
            say(row(outcome))
            for problem in outcome.problems:
                say(f"    {problem}")
        if expiry and outcomes:
            left = await check_keys(pair, keys, expiry)
            outcomes[-1].problems += left
            say("\n".join(left) or f"keys in Redis: {await pair.keys()}, as before")
        nursery.cancel_scope.cancel()
    return outcomes


async def warm_up(pair: Pair, load: Load) -> tuple[list[Held], int]:
    """Use everything, and return what the processes and Redis hold without a fault."""
    figures = load.resume()
    await load.laps(WARM_UP)
    await load.rest()
    if figures.wrong:
        raise RuntimeError(f"without any fault: {figures.wrong[:MOST]}")
    await look_at(pair)  # so that what a look itself uses is there before
    return await look_at(pair), await pair.keys()


async def look_at(pair: Pair) -> list[Held]:
    """Return what each process holds. Nothing else must be going on."""
    return [await look(member.server) for member in pair.members]


async def live_through(
    fault: SharedFault,
    seconds: float,
    pair: Pair,
    load: Load,
    before: list[Held],
    keys: int,
) -> SharedOutcome:
    """Let one fault happen."""
    logged = [len(member.server.log) for member in pair.members]
    problems: list[str] = []
    figures = load.resume(fault.tolerates)
    pair.counts_alone = fault.counts_alone
    with trio.move_on_after(SETTLE) as settling:
        # So that requests, streams and tasks are under way.
        await trio.sleep(LEAD)
        await fault.inflict(pair, fault.lasts * seconds)
        await load.rest()
    if settling.cancelled_caught:
        problems.append(f"hangs: {', '.join(load.busy)}")
        await load.rest()
    problems += figures.wrong[:MOST]
    # Everything works again, and nothing is excused any more.
    calm = load.resume()
    pair.counts_alone = False
    await load.one_more_lap()
    await load.rest()
    problems += [f"afterwards: {text}" for text in calm.wrong[:MOST]]
    figures.calls += calm.calls
    if fault.restarts:
        logged[0] = 0
    for member, since in zip(pair.members, logged, strict=True):
        loud = member.server.loud_lines(since, fault.logs)[:MOST]
        problems += [f"{member.name}: {line}" for line in loud]
    after = await look_until_back(pair, before)
    problems += what_is_left(before, after)
    found = await pair.keys()
    return SharedOutcome(fault.name, figures, before, after, (keys, found), problems)


def what_is_left(before: list[Held], after: list[Held]) -> list[str]:
    """Return what has grown in the processes beyond the allowed amount."""
    problems = []
    for name, earlier, later in zip("AB", before, after, strict=True):
        left = later.more_than(earlier, **MORE)
        problems += [f"{name}: {text}" for text in left]
    return problems


async def look_until_back(pair: Pair, before: list[Held]) -> list[Held]:
    """Measure until nothing has grown, or until a timeout."""
    deadline = trio.current_time() + BACK
    while True:
        held = await look_at(pair)
        if not what_is_left(before, held) or trio.current_time() > deadline:
            return held
        await trio.sleep(INTERVAL)


async def check_keys(pair: Pair, keys: int, seconds: float) -> list[str]:
    """Wait until Redis has no more keys than before, at most so many seconds."""
    deadline = trio.current_time() + seconds
    while True:
        found = await pair.keys()
        if found <= keys + MORE_KEYS:
            return []
        if trio.current_time() > deadline:
            return [f"keys in Redis: {keys} before, {found} after"]
        await trio.sleep(INTERVAL)
