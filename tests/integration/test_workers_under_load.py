"""Several processes that serve one port, under load and with many clients."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from msgspec import Struct

from tests.support.paths import PROJECT
from tests.support.processes import newest_request, until
from tests.support.resuming_clients import resuming_clients
from tests.support.worker_group import WorkerGroup, worker_group
from tests.support.wrk import Load, tool_call, under_load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.load,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no workers"),
]

SPEC = PROJECT / "tests" / "support" / "scaled_server.py"
ADD = tool_call("add", a=1, b=2)
WORKERS = 4
CONNECTIONS = 16


# Clients that know which worker they talk to


class Failure(Struct):
    """A request without a response, and when it began and failed."""

    # None if it was the first request on its connection.
    worker: int | None
    began: float
    ended: float
    error: str


class Witness:
    """A client that knows which worker its connection leads to."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered = 0
        self.failures: list[Failure] = []
        self._worker: int | None = None

    def call_until(self, stopped: threading.Event) -> None:
        """Make one call after the other, on connections that are kept."""
        while not stopped.is_set():
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            began = time.monotonic()
            try:
                while not stopped.is_set():
                    began = time.monotonic()
                    self.call(connection)
            except (OSError, HTTPException) as error:
                ended = time.monotonic()
                failure = Failure(self._worker, began, ended, repr(error))
                self.failures.append(failure)
            finally:
                connection.close()

    def call(self, connection: HTTPConnection) -> None:
        """Call a tool, and note which worker has answered."""
        if connection.sock is None:  # it is opened now, perhaps once more
            self._worker = None
        headers, body = newest_request("tools/call", {"name": "pid", "arguments": {}})
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        data = response.read()
        assert response.status == 200, data
        found = int(json.loads(data)["result"]["content"][0]["text"])
        assert self._worker in (None, found)
        self._worker = found
        self.answered += 1


@contextmanager
def loaded(group: WorkerGroup, folder: Path) -> Iterator[tuple[Load, list[Witness]]]:
    """Keep the workers busy during the block, with wrk and with witnesses."""
    witnesses = [Witness(group.port) for _ in range(WORKERS)]
    stopped = threading.Event()
    with ExitStack() as stack:
        load = stack.enter_context(
            under_load(folder, group.port, ADD, connections=CONNECTIONS)
        )
        pool = stack.enter_context(ThreadPoolExecutor(len(witnesses)))
        stack.callback(stopped.set)
        calls = {one: pool.submit(one.call_until, stopped) for one in witnesses}
        until_answered(calls)
        yield load, witnesses
        until_answered(calls)
        stopped.set()
        for call in calls.values():
            call.result()


def until_answered(calls: dict[Witness, Future[None]]) -> None:
    """Wait until each witness has been answered a while longer."""
    for witness, call in calls.items():
        until(partial(has_answered, witness, call, witness.answered + 20))


def has_answered(witness: Witness, call: Future[None], enough: int) -> bool:
    if call.done():
        call.result()  # raises the problem of the witness
    return witness.answered >= enough


def test_only_requests_in_flight_fail_if_a_worker_is_killed_each_second(
    tmp_path: Path,
) -> None:
    kills: dict[int, float] = {}
    with worker_group(SPEC, "--workers", str(WORKERS)) as group:
        with loaded(group, tmp_path) as (load, witnesses):
            for _ in range(30):
                # At most one has not started yet, so the oldest one serves.
                until(lambda: group.metric("mcp_workers") >= WORKERS - 1)
                oldest = group.workers()[0]
                kills[oldest] = time.monotonic()
                os.kill(oldest, signal.SIGKILL)
                time.sleep(1)  # the pace is part of the test
        assert len(kills) == 30
        until(lambda: group.metric("mcp_workers") == WORKERS)
        assert group.metric("mcp_worker_exits_total") == 30
    assert load.requests > 1000
    # A connection has one request at a time.
    assert load.lost <= len(kills) * CONNECTIONS
    assert (load.connect, load.timeout, load.status) == (0, 0, 0)
    for witness in witnesses:
        for failure in witness.failures:
            check_is_excused(failure, kills)


def check_is_excused(failure: Failure, kills: dict[int, float]) -> None:
    """Check that the worker of a request that failed had been killed."""
    if failure.worker is not None:
        assert kills.get(failure.worker, math.inf) < failure.ended, (failure, kills)
        return
    # Nobody knows which worker has accepted a new connection.
    assert any(failure.began - 1 < at < failure.ended for at in kills.values()), failure


def test_no_request_fails_while_four_workers_are_replaced(tmp_path: Path) -> None:
    with worker_group(SPEC, "--workers", str(WORKERS)) as group:
        before = set(group.workers())
        with loaded(group, tmp_path) as (load, witnesses):
            group.send_signal(signal.SIGHUP)
            group.wait_for_line("all workers have been replaced")
            assert before.isdisjoint(group.workers())
    assert load.requests > 1000
    assert (load.lost, load.connect, load.timeout, load.status) == (0, 0, 0, 0)
    assert [failure for one in witnesses for failure in one.failures] == []


# A worker that is killed during calls whose responses are streams

CLIENTS = 200
STEPS = 3


def test_200_clients_of_two_workers_lose_no_event_if_one_is_killed(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    with (
        worker_group(SPEC, "--workers", "2") as group,
        resuming_clients(
            CLIENTS, STEPS, group, group, until=str(go), seconds=1
        ) as clients,
    ):
        workers = clients.started()
        # Connections lead to either worker.
        assert set(workers) <= set(group.workers())
        lost = {number for number in range(CLIENTS) if workers[number] == workers[0]}
        os.kill(workers[0], signal.SIGKILL)
        killed = time.time()
        reports = clients.reports(len(lost))
        assert reports.keys() == lost
        go.touch()
        others = clients.reports(CLIENTS - len(lost))
    for report in reports.values():
        assert report["code"] == -32603
        assert "process serving this request was lost" in report["message"]
        assert report["is_resumed"]
        assert report["ended"] < killed + 15
    for report in others.values():
        assert report["text"] == "done"
    for number, report in (reports | others).items():
        steps = report["steps"]
        assert len(steps) >= STEPS
        assert steps == list(range(1, len(steps) + 1))
        # The session goes on.
        assert report["added"] == number + 1
