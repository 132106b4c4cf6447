"""Two processes of one server, A and B, with one Redis, and ways to disturb them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from msgspec import Struct

from tests.chaos.process import ServerProcess, serving
from tests.support.paths import TESTS
from tests.support.redis_server import RedisServer

SERVED = TESTS / "chaos" / "shared" / "served.py"


class Member:
    """One of the processes. `server` is the one that runs now."""

    server: ServerProcess

    def __init__(self, name: str, folder: Path, store: str, journal: Path) -> None:
        self.name = name
        self._folder = folder
        self._store = store
        self._variables = {"CHAOS_JOURNAL": str(journal)}
        self._is_up = trio.Event()
        self._restart = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run one process after the other, until this is canceled."""
        self._folder.mkdir(mode=0o755)
        while True:
            async with serving(
                self._folder,
                "--store",
                self._store,
                spec=SERVED,
                is_faulty=True,
                variables=self._variables,
            ) as self.server:
                self._is_up.set()
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await self._restart.wait()

    async def kill_and_restart(self) -> None:
        """Kill the process, and wait until another one serves."""
        self.server.send_signal(signal.SIGKILL)
        self._is_up = trio.Event()
        self._restart.set()
        self._restart = trio.Event()
        await self._is_up.wait()


class Pair(Struct):
    """Both processes, and their Redis."""

    members: list[Member]
    redis: RedisServer
    journal: Path
    # Whether each process counts only its own calls, because Redis is unavailable.
    counts_alone: bool = False

    async def command(self, *words: str) -> bytes:
        """Run a command in Redis."""
        return await trio.to_thread.run_sync(lambda: self.redis.command(*words))

    async def keys(self) -> int:
        """Return the number of keys in Redis."""
        return int((await self.command("DBSIZE")).strip(b":\r\n"))

    def begun(self) -> list[str]:
        """Return the names of the tasks that have begun, as often as they have."""
        return self.journal.read_text(encoding="utf-8").splitlines()


@asynccontextmanager
async def running_pair(folder: Path, redis: RedisServer) -> AsyncIterator[Pair]:
    """Run both processes for as long as this is entered."""
    journal = folder / "journal"
    journal.touch()
    # The processes may belong to another user.
    os.chmod(journal, 0o666)
    members = [Member(name, folder / name, redis.url(), journal) for name in ("A", "B")]
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.run)
        yield Pair(members, redis, journal)
        nursery.cancel_scope.cancel()
