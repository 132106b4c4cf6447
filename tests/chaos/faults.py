"""The faults, one after the other. To add one, write a function and put it into FAULTS.

A fault does its harm for some seconds and undoes it before it returns. The clients of
`load.py` go on all the while.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from msgspec import Struct

from tests.support.command_line import ENVIRONMENT
from tests.support.paths import PROJECT

from .load import MODERN, Lane, Load, add, echo, reach, steps
from .measures import MIB, MORE_MEMORY, Held, look
from .privileges import (
    Clock,
    can_administer_network,
    small_disk,
    threads_of_server_user,
)
from .process import ServerProcess

# The attackers' address. The other clients' is 127.0.0.1.
ATTACKER = "127.0.0.2"
# Seconds for a reply on a busy machine.
IN_TIME = 5.0
# Seconds until everything has to be released. Idle threads end after ten.
SETTLE = 40.0
# The same if the server has to detect that a client has disappeared.
LONG = 120.0
# Bytes that the allocator may keep if large and small blocks are mixed.
FRAGMENTED = 96 * MIB


class Situation(Struct):
    """The server, and everything else that a fault may use."""

    server: ServerProcess
    load: Load
    folder: Path
    seconds: float  # the duration of a fault
    # Without a fault: what the server holds, and the seconds of the slowest reply.
    before: Held = Held()
    calm: float = 0.0


Inflict = Callable[[Situation], Awaitable[None]]


class Fault(Struct, frozen=True):
    """Something that goes wrong, and the problems that it excuses."""

    name: str
    inflict: Inflict
    # Seconds within which every reply has to arrive.
    within: float = IN_TIME
    # The text of refusals that this fault excuses. Most excuse none.
    tolerates: str = "(?!)"
    # Errors in the log that this fault excuses.
    logs: str = "(?!)"
    # Bytes of memory that may be kept.
    keeps: int = MORE_MEMORY
    # Seconds until everything has to be released.
    settle: float = SETTLE
    # Why it cannot happen here, or an empty text.
    unable: Callable[[], str] = lambda: ""


@asynccontextmanager
async def attacked(port: int, name: str) -> AsyncIterator[None]:
    """Run a client that attacks, and kill it at the end."""
    command = [sys.executable, "-m", "tests.chaos.attack", name]
    command += [str(port), ATTACKER]
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.PIPE, cwd=PROJECT, env=ENVIRONMENT
    )
    assert process.stdout is not None
    try:
        with trio.fail_after(60):
            said = await process.stdout.receive_some()
        assert said.startswith(b"ready"), f"the attacker {name} has ended"
        yield
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def by_client(name: str) -> Inflict:
    """Return a fault that is an attacking client."""

    async def inflict(situation: Situation) -> None:
        async with attacked(situation.server.port, name):
            await trio.sleep(situation.seconds)

    return inflict


# Faults of the process

STOPPED = 2.0  # seconds


async def stop_and_continue(situation: Situation) -> None:
    """Suspend the process for a while."""
    situation.server.send_signal(signal.SIGSTOP)
    await trio.sleep(STOPPED)
    situation.server.send_signal(signal.SIGCONT)
    await trio.sleep(situation.seconds)


async def too_few_descriptors(situation: Situation) -> None:
    """Limit the descriptors of the process, while a client opens hundreds of
    connections.
    """
    held = await look(situation.server)
    most = held.highest_descriptor + 1 + 16
    with situation.server.limited("nofile", most):
        async with attacked(situation.server.port, "take_descriptors"):
            await trio.sleep(situation.seconds)


async def too_few_threads(situation: Situation) -> None:
    """Limit the threads of the user, while a client needs a hundred."""
    most = threads_of_server_user() + 4
    with situation.server.limited("nproc", most):
        async with attacked(situation.server.port, "take_threads"):
            await trio.sleep(situation.seconds)


async def too_little_memory(situation: Situation) -> None:
    """Limit the address space of the process, while a client requests much."""
    most = situation.server.address_space() + 64 * MIB
    with situation.server.limited("as", most):
        async with attacked(situation.server.port, "take_memory"):
            await trio.sleep(situation.seconds)


async def clock_jumps(situation: Situation) -> None:
    """Set the clock forward and back by a day."""
    for seconds in (86_400, 0, -86_400, 0):
        situation.server.clock.set(seconds)
        await trio.sleep(situation.seconds / 4)


# Faults of a recorder in front of the server

DISK = 64 * 1024
TO_FILL = 60.0  # seconds


async def disk_is_full(situation: Situation) -> None:
    """Fill the disk of a recorder that one more client talks through."""
    with small_disk(situation.folder / "disk", DISK) as limit:
        trace = situation.folder / "disk" / "trace.jsonl"
        async with _recorder(situation, trace, limit) as (url, said):
            lane = Lane("recorded", reach(url, MODERN), [add, echo, steps])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(situation.load.visit, lane)
                with trio.fail_after(TO_FILL):
                    while b"nothing more is recorded" not in said:
                        await trio.sleep(0.1)
                await trio.sleep(situation.seconds)
                nursery.cancel_scope.cancel()


@asynccontextmanager
async def _recorder(
    situation: Situation, trace: Path, limit: int | None
) -> AsyncIterator[tuple[str, bytearray]]:
    """Run a recorder. Yields its URL, and its standard error."""
    command = [sys.executable, "-m", "mcp_trio", "record", "--output", str(trace)]
    command += ["--listen", "0", situation.server.url()]
    if limit is not None:
        command = ["prlimit", f"--fsize={limit}", *command]
    process = await trio.lowlevel.open_process(
        command, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    said = bytearray()
    assert process.stderr is not None
    try:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(30):
                while (found := re.search(rb" on (http://\S+)\n", said)) is None:
                    said += await process.stderr.receive_some()
            nursery.start_soon(_collect, process.stderr, said)
            yield found[1].decode(), said
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _collect(stream: trio.abc.ReceiveStream, into: bytearray) -> None:
    async for piece in stream:
        into += piece


def why_no_repair() -> str:
    """Return why no client can disappear here."""
    return "" if can_administer_network() else "needs the right CAP_NET_ADMIN"


def why_no_clock() -> str:
    """Return why the clock cannot be set."""
    return "" if Clock.is_available() else "needs libfaketime"


# The attacker's own connections and calls fail.
NO_MEMORY = "a connection failed|failed \\(reference|^Traceback"
NO_THREAD = "Busy: no (worker )?thread|Busy: all worker threads"
FAULTS = [
    Fault("SIGSTOP, SIGCONT", stop_and_continue, within=STOPPED + IN_TIME),
    Fault("too few descriptors", too_few_descriptors),
    Fault("too few threads", too_few_threads, tolerates=NO_THREAD),
    Fault("a recorder's disk is full", disk_is_full),
    Fault("half-open connections", by_client("go_half_open")),
    Fault("clients vanish", by_client("vanish"), settle=LONG, unable=why_no_repair),
    Fault("the clock jumps", clock_jumps, unable=why_no_clock),
    Fault("a client floods", by_client("flood")),
    Fault("a client never reads", by_client("never_read")),
    Fault("a client opens everything", by_client("open_everything")),
    # The last one, because afterwards the allocator keeps more.
    Fault(
        "too little memory",
        too_little_memory,
        logs=NO_MEMORY,
        keeps=FRAGMENTED,
    ),
]
