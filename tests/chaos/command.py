"""Inject one fault after the other into a server under load.

After each, the replies that other clients got must all have been right and in time, and
the server must hold no more than before: memory, descriptors, tasks, threads.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import trio

from tests.support.redis_server import REDIS, running_redis

from . import bystander
from .bystander import ATTACKS
from .faults import FAULTS, Fault, Situation
from .load import Load, lanes_of
from .measures import look, look_until_back
from .privileges import missing_programs
from .process import SERVED_BRIEFLY, serving
from .report import Outcome, heading, row
from .shared.command import SharedOutcome, survive_shared
from .shared.faults import FAULTS as SHARED_FAULTS
from .shared.faults import SharedFault

# How often each client does each of its jobs before the first measurement, so that
# everything has been used.
WARM_UP = 3
# A reply may take this many times as long as the slowest one without a fault, in
# addition to the time that the fault allows. This is for busy machines.
PATIENCE = 5
SECONDS = 8.0
# The number of problems of one kind that are printed.
MOST = 5


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


async def survive(
    faults: Sequence[Fault], seconds: float, folder: Path
) -> list[Outcome]:
    """Inject the faults, and return how the server survived each."""
    outcomes = []
    async with (
        serving(folder, spec=SERVED_BRIEFLY, is_faulty=True) as server,
        trio.open_nursery() as nursery,
    ):
        load = Load(lanes_of(server))
        situation = Situation(server, load, folder, seconds)
        nursery.start_soon(load.run)
        await warm_up(situation)
        say(f"without a fault, the slowest reply took {1000 * situation.calm:.0f} ms")
        say(heading())
        for fault in faults:
            reason = fault.unable()
            if reason:
                say(f"{fault.name}: skipped: {reason}")
                continue
            outcome = await live_through(fault, situation)
            outcomes.append(outcome)
            say(row(outcome))
            for problem in outcome.problems:
                say(f"    {problem}")
            if not server.is_running:
                break
        nursery.cancel_scope.cancel()
    return outcomes


async def warm_up(situation: Situation) -> None:
    """Use everything without a fault, and record what is held and how long replies
    take.
    """
    load = situation.load
    load.resume()
    await load.laps(WARM_UP)
    figures = load.resume()
    await load.laps(2 * WARM_UP)
    await load.rest()
    if figures.wrong:
        raise RuntimeError(f"without any fault: {figures.wrong[:MOST]}")
    situation.calm = figures.slowest
    await look(situation.server)  # so that the objects of a measurement exist before it
    situation.before = await look(situation.server)


async def live_through(fault: Fault, situation: Situation) -> Outcome:
    """Inject one fault."""
    server = situation.server
    before = situation.before
    logged = len(server.log)
    figures = situation.load.resume(fault.tolerates)
    await fault.inflict(situation)
    await trio.sleep(1)
    await situation.load.rest()
    problems = figures.wrong[:MOST]
    within = fault.within + PATIENCE * situation.calm
    if figures.slowest > within:
        slow = f"{figures.slowest_is} took {figures.slowest:.2f} s"
        problems.append(f"{slow}; at most {within:.2f} s are allowed")
    after = before
    if server.is_running:
        after = await look_until_back(server, before, fault.keeps, fault.settle)
        problems += after.more_than(before, fault.keeps)
    else:
        problems.append(await server.last_words())
    problems += server.loud_lines(logged, fault.logs)[:MOST]
    return Outcome(fault.name, figures, before, after, problems)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long each fault lasts (8)"
    )
    parser.add_argument(
        "--attacks",
        action="store_true",
        help="measure how long other clients wait during known attacks instead",
    )
    parser.add_argument(
        "--redis",
        action="store_true",
        help="inject the faults into two processes and the Redis that they share",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="only the faults with a word in their names",
    )
    options = parser.parse_args()
    missing = missing_programs()
    if options.attacks:
        missing += bystander.missing_programs()
    if options.redis and shutil.which(REDIS) is None:
        missing.append(REDIS)
    if missing:
        parser.error(f"not installed: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The server may be another user.
        folder.chmod(0o755)
        if options.redis:
            shared = [one for one in SHARED_FAULTS if has_word(one.name, options.words)]
            return survive_with_redis(shared, options.seconds, folder)
        if options.attacks:
            attacks = [one for one in ATTACKS if has_word(one.title, options.words)]
            return 0 if trio.run(bystander.observe_all, folder, attacks) else 1
        faults = [one for one in FAULTS if has_word(one.name, options.words)]
        return report_problems(trio.run(survive, faults, options.seconds, folder))


def survive_with_redis(
    faults: Sequence[SharedFault], seconds: float, folder: Path
) -> int:
    """Run a Redis, let the faults happen, and return the exit code."""
    with running_redis(folder) as redis:
        outcomes = trio.run(survive_shared, faults, seconds, folder, redis, say)
    return report_problems(outcomes)


def has_word(name: str, words: Sequence[str]) -> bool:
    """Return whether a name has one of the words, or whether no words are given."""
    return not words or any(word in name for word in words)


def report_problems(outcomes: Sequence[Outcome | SharedOutcome]) -> int:
    """Print the problems, and return the exit code."""
    failed = [outcome for outcome in outcomes if outcome.problems]
    calls = sum(outcome.figures.calls for outcome in outcomes)
    say(f"{len(outcomes) - len(failed)} of {len(outcomes)} survived; {calls:,} calls")
    return 1 if failed else 0
