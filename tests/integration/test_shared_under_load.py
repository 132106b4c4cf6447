"""Two processes that share a Redis: many clients at once, and long failures."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec import Struct, field

from mcp_trio import Server
from tests.support.http_wire import HEADERS, Site, message
from tests.support.paths import PROJECT
from tests.support.processes import ServerProcess, serving, until
from tests.support.redis_server import RedisServer, running_redis
from tests.support.resuming_clients import resuming_clients
from tests.support.shared_sites import calling, getting
from tests.support.shared_sites import until as until_so
from tests.support.wrk import tool_call, under_load

pytest.importorskip("coredis")
pytestmark = [pytest.mark.slow, pytest.mark.load]

SPEC = PROJECT / "tests" / "support" / "scaled_server.py"

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as server:
        yield server


@pytest.fixture
def pair(redis: RedisServer) -> Iterator[Pair]:
    # One process can run all tasks.
    options = ("--store", redis.url(), "--task-slots", "50")
    with ExitStack() as stack:
        a = stack.enter_context(serving(SPEC, *options))
        b = stack.enter_context(serving(SPEC, *options))
        yield a, b


# A process that is killed

CLIENTS = 200
STEPS = 3


def test_200_clients_of_a_killed_process_lose_no_event_and_get_an_error(
    pair: Pair, tmp_path: Path
) -> None:
    a, b = pair
    never = str(tmp_path / "never")
    with resuming_clients(CLIENTS, STEPS, a, b, until=never, seconds=1) as clients:
        assert clients.started() == [a.pid] * CLIENTS
        killed = time.time()
        a.kill()
        reports = clients.reports(CLIENTS)
    assert reports.keys() == set(range(CLIENTS))
    for number, report in reports.items():
        assert report["code"] == -32603
        assert "process serving this request was lost" in report["message"]
        # The process was killed between any two steps.
        steps = report["steps"]
        assert len(steps) >= STEPS
        assert steps == list(range(1, len(steps) + 1))
        assert report["is_resumed"]
        # The session goes on.
        assert report["added"] == number + 1
    assert max(report["ended"] for report in reports.values()) < killed + 15


# Redis is stopped under load

OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "visitor", "version": "1"},
}
# Seconds between two visits of a client.
PAUSE = 0.1


class Visitor:
    """A client that opens sessions and creates tasks, at one process and the other."""

    def __init__(self, name: str, pair: Pair, journal: Path) -> None:
        self.name = name
        self.places = pair
        self.journal = journal
        self.sessions: list[dict[str, str]] = []
        # Id -> name of each task that was acknowledged.
        self.tasks: dict[str, str] = {}
        self.served = 0
        self.refused = 0

    def visit_until(self, stopped: threading.Event) -> None:
        """Visit again and again."""
        number = 0
        while not stopped.wait(PAUSE):
            number += 1
            first, second = self.places
            self.visit(first, second, f"{self.name}-{number}")
            self.places = (second, first)

    def visit(self, first: ServerProcess, second: ServerProcess, name: str) -> None:
        """Use a new session and a new task at both processes."""
        session = self.open_session(first)
        if session is not None:
            self.sessions.append(session)
            self.judge(add_in_session(second, session))
        self.create_task(first, name, until=self.journal)
        latest = next(reversed(self.tasks))
        self.judge(second.post("tasks/get", {"taskId": latest}))

    def open_session(self, process: ServerProcess) -> dict[str, str] | None:
        """Open a session, if that is possible now."""
        reply = exchange(process, HEADERS, message("initialize", OPENING))
        if not self.judge(reply):
            return None
        return {
            **HEADERS,
            "Mcp-Session-Id": reply[1]["Mcp-Session-Id"],
            "MCP-Protocol-Version": "2025-11-25",
        }

    def create_task(self, process: ServerProcess, name: str, until: Path) -> None:
        """Create a task that ends when a file exists, if that is possible now."""
        arguments = {"name": name, "journal": str(self.journal), "until": str(until)}
        reply = process.post("tools/call", {"name": "once", "arguments": arguments})
        if self.judge(reply):
            self.tasks[reply[2]["result"]["taskId"]] = name

    def judge(self, reply: Reply) -> bool:
        """Return whether a request was served. Otherwise it must say when to retry."""
        status, headers, body = reply
        if status == 503:
            assert headers["Retry-After"] == "2"
            assert "store cannot be reached" in body["error"]["message"]
            self.refused += 1
            return False
        assert status == 200, reply
        assert "result" in body, reply
        self.served += 1
        return True


Reply = tuple[int, dict[str, str], Any]


def exchange(process: ServerProcess, headers: dict[str, str], body: Any) -> Reply:
    """Post a message. Returns the status, the headers and the message of the reply."""
    connection = HTTPConnection("127.0.0.1", process.port, timeout=60)
    try:
        connection.request("POST", "/mcp", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), json.loads(response.read())
    finally:
        connection.close()


def add_in_session(process: ServerProcess, session: dict[str, str]) -> Reply:
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    return exchange(process, session, message("tools/call", params))


def test_without_redis_for_10_seconds_under_load_nothing_acknowledged_is_lost(
    redis: RedisServer, pair: Pair, tmp_path: Path
) -> None:
    a, b = pair
    journal = tmp_path / "journal"
    journal.touch()
    visitors = [Visitor(f"visitor-{number}", pair, journal) for number in range(2)]
    stopped = threading.Event()
    known = visitors[0].open_session(a)
    assert known is not None
    go = tmp_path / "go"
    for number in range(10):
        visitors[0].create_task(a, f"long-{number}", until=go)
    with ExitStack() as stack:
        add = tool_call("add", a=1, b=2)
        loads = [
            stack.enter_context(under_load(tmp_path, one.port, add, connections=4))
            for one in pair
        ]
        pool = stack.enter_context(ThreadPoolExecutor(len(visitors)))
        stack.callback(stopped.set)
        visits = {one: pool.submit(one.visit_until, stopped) for one in visitors}
        until_served(visits, 50)
        assert not any(one.refused for one in visitors)
        add_at_both(pair, known)
        redis.stop()
        away = time.monotonic()
        go.touch()  # so that tasks end while Redis is away
        while time.monotonic() < away + 10:
            # Both processes know this session already.
            add_at_both(pair, known)
            time.sleep(PAUSE)
        refused = [one.refused for one in visitors]
        redis.start()
        until(lambda: a.get("/readyz")[0] == b.get("/readyz")[0] == 200)
        until_served(visits, 50)
        stopped.set()
        for visit in visits.values():
            visit.result()
    assert min(refused) > 0
    for load in loads:
        assert load.requests > 1000
        assert (load.lost, load.connect, load.status) == (0, 0, 0)
    for visitor in visitors:
        check_everything_is_there(visitor, pair)


def until_served(visits: dict[Visitor, Future[None]], times: int) -> None:
    """Wait until each client was served so many times more."""
    for visitor, visit in visits.items():
        enough = visitor.served + times
        until(partial(has_served, visitor, visit, enough), 120)


def has_served(visitor: Visitor, visit: Future[None], enough: int) -> bool:
    if visit.done():
        visit.result()  # raises the problem of the client
    return visitor.served >= enough


def add_at_both(pair: Pair, session: dict[str, str]) -> None:
    for process in pair:
        status, _, body = add_in_session(process, session)
        assert status == 200
        assert body["result"]["content"][0]["text"] == "3"


def check_everything_is_there(visitor: Visitor, pair: Pair) -> None:
    """Check that all sessions and tasks of a client are there, at both processes."""
    for session in visitor.sessions:
        add_at_both(pair, session)
    begun = [line.split()[0] for line in visitor.journal.read_text().splitlines()]
    for id, name in visitor.tasks.items():
        for process in pair:
            task = outcome_of(process, id)
            assert task["result"]["content"][0]["text"] == f"done {name}"
        assert begun.count(name) == 1


def outcome_of(process: ServerProcess, id: str) -> dict[str, Any]:
    """Wait until a task is over, and return it."""
    until(lambda: process.task(id)["status"] != "working")
    return process.task(id)


# Redis is killed, or a process is suspended

HALF = 25
KINDS = ("once", "again")
# Seconds for a process to be declared lost, if it could be.
LONGER_THAN_A_LEASE = 15


class Stream(Struct, eq=False):
    """A call whose response is a stream, and all that its client has received of it."""

    id: int
    owner: ServerProcess
    session: dict[str, str] = field(default_factory=dict)
    first_event: str = ""
    # The messages of each connection, in the end.
    received: list[list[Any]] = field(default_factory=list)

    def replies(self) -> list[Any]:
        """Return the replies that were received. They must all be the same."""
        sent = [message for messages in self.received for message in messages]
        return [message for message in sent if "method" not in message]

    async def call(self, until: Path, *, task_status: trio.TaskStatus[None]) -> None:
        """Call the tool, and read the response until it ends."""
        there = site_of(self.owner)
        self.session = await there.open_session()
        arguments = {"until": str(until), "seconds": 1}
        async with calling(
            there, self.session, "advance", arguments, self.id, patience=120
        ) as events:
            first = await events.next()
            self.first_event = events.ids[0]
            task_status.started()
            self.received.append([first, *await events.rest()])

    async def resume(
        self,
        process: ServerProcess,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Read the response once more from its beginning, at a process."""
        there = site_of(process)
        async with getting(
            there, self.session, self.first_event, patience=120
        ) as events:
            task_status.started()
            self.received.append(await events.rest())

    def check_steps(self) -> None:
        """Check that each connection has received one step after the other."""
        for messages in self.received:
            steps = [one["params"]["progress"] for one in messages if "method" in one]
            assert steps == list(range(1, len(steps) + 1))


def site_of(process: ServerProcess) -> Site:
    """Return a process as the helpers for streams expect it."""
    return Site(Server("nobody"), process.port, trio.Event())


class Work:
    """Streams and tasks, half of them at each process, until a file exists."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self.pair = pair
        self.go = folder / "go"
        self.journal = folder / "journal"
        a, b = pair
        self.streams = [Stream(id, a) for id in range(HALF)]
        self.streams += [Stream(HALF + id, b) for id in range(HALF)]
        # Name of a task -> its id.
        self.tasks: dict[str, str] = {}

    def streams_of(self, process: ServerProcess) -> list[Stream]:
        return [stream for stream in self.streams if stream.owner is process]

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        """Begin everything, and wait in the end until each connection has ended.

        Half of the streams are also read at the process that does not run their calls.
        """
        await trio.to_thread.run_sync(self.create_tasks)
        async with trio.open_nursery() as nursery:
            for stream in self.streams:
                await nursery.start(stream.call, self.go)
            for stream in self.streams[::2]:
                await nursery.start(stream.resume, self.other_than(stream.owner))
            yield

    def other_than(self, process: ServerProcess) -> ServerProcess:
        a, b = self.pair
        return b if process is a else a

    def create_tasks(self) -> None:
        """Create tasks at each process, which runs them."""
        for name, process in zip("AB", self.pair, strict=True):
            other = self.other_than(process)
            other.send_signal(signal.SIGSTOP)
            try:
                self.create_tasks_at(process, name)
            finally:
                other.send_signal(signal.SIGCONT)

    def create_tasks_at(self, process: ServerProcess, name: str) -> None:
        """Create tasks at the only process that runs now, and wait until they run."""
        paths = {"journal": str(self.journal), "until": str(self.go)}
        for number in range(HALF):
            kind = KINDS[number % 2]
            task = f"{kind}-{name}-{number}"
            self.tasks[task] = process.create_task(kind, name=task, **paths)
        until(lambda: len(self.runs()) == len(self.tasks))

    def runs(self) -> list[tuple[str, int]]:
        """Return the task and the process of each run of a task."""
        if not self.journal.exists():
            return []
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [(name, int(pid)) for name, pid in lines]

    def running_tasks(self) -> list[str]:
        """Return the tasks that have no outcome yet."""
        found = {name: self.pair[1].task(id) for name, id in self.tasks.items()}
        return [name for name, task in found.items() if task["status"] == "working"]

    async def read_again(self) -> None:
        """Read all streams again, at both processes."""
        async with trio.open_nursery() as nursery:
            for stream in self.streams:
                for process in self.pair:
                    nursery.start_soon(stream.resume, process)

    async def outcomes_of_tasks(self) -> dict[str, dict[str, Any]]:
        """Wait until all tasks are over, and check that both processes say the same."""
        return await trio.to_thread.run_sync(self._outcomes_of_tasks)

    def _outcomes_of_tasks(self) -> dict[str, dict[str, Any]]:
        a, b = self.pair
        found = {}
        for name, id in self.tasks.items():
            found[name] = outcome_of(a, id)
            assert outcome_of(b, id) == found[name]
        return found

    def check_calls(self, streams: list[Stream], expected: Any) -> None:
        """Check that each client has received this reply only, at both processes."""
        for stream in streams:
            stream.check_steps()
            replies = stream.replies()
            # Both have sent it when it was read again.
            assert len(replies) >= 2
            for reply in replies:
                assert reply == {"jsonrpc": "2.0", "id": stream.id, **expected}


DONE = {"result": {"content": [{"type": "text", "text": "done"}], "isError": False}}
LOST = {
    "error": {"code": -32603, "message": "The process serving this request was lost"}
}


async def test_each_request_and_task_has_one_outcome_if_redis_is_killed(
    redis: RedisServer, pair: Pair, tmp_path: Path
) -> None:
    a, b = pair
    work = Work(pair, tmp_path)
    async with work.begun():
        redis.kill()
        await trio.sleep(20)
        await trio.to_thread.run_sync(redis.start)
        await until_so(lambda: a.get("/readyz")[0] == b.get("/readyz")[0] == 200)
        await trio.sleep(LONGER_THAN_A_LEASE)
        # No process was declared lost.
        assert not any(stream.received for stream in work.streams)
        running = await trio.to_thread.run_sync(work.running_tasks)
        assert running == list(work.tasks)
        work.go.touch()
    await work.read_again()
    work.check_calls(work.streams, DONE)
    for name, task in (await work.outcomes_of_tasks()).items():
        assert task["result"]["content"][0]["text"] == f"done {name}"
    # Each has run once.
    assert len(work.runs()) == len(work.tasks)


async def test_each_request_and_task_has_one_outcome_if_a_process_is_suspended(
    pair: Pair, tmp_path: Path
) -> None:
    a, b = pair
    work = Work(pair, tmp_path)
    async with work.begun():
        a.send_signal(signal.SIGSTOP)
        try:
            await trio.sleep(20)
            # What A did has an outcome, or was begun again.
            lost = [one for one in work.streams_of(a) if one.replies()]
            assert len(lost) == len(work.streams_of(a)[::2])
            await until_so(lambda: len(work.runs()) == len(work.tasks) + HALF // 2)
            # When A goes on, its tools return, but their results are not used.
            work.go.touch()
        finally:
            a.send_signal(signal.SIGCONT)
    await work.read_again()
    work.check_calls(work.streams_of(b), DONE)
    work.check_calls(work.streams_of(a), LOST)
    for name, task in (await work.outcomes_of_tasks()).items():
        if name.startswith("once-A-"):
            message = task["error"]["message"]
            assert "process that ran the task was lost" in message
        else:
            assert task["result"]["content"][0]["text"] == f"done {name}"
    # Only tasks of A have run again, at B.
    again = work.runs()[len(work.tasks) :]
    assert sorted(again) == [
        (name, b.pid) for name in sorted(work.tasks) if name.startswith("again-A-")
    ]
