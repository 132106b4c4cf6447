"""The parent of the workers and a worker, each in this process, with real others.

What they do under load, and when they are killed, is in `tests/integration`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import trio

from mcp_trio.cli.main import main
from mcp_trio.cli.run_options import SETTINGS, SWITCHES
from mcp_trio.cli.worker import run_worker
from mcp_trio.workers.messages import (
    Alive,
    AllMetrics,
    Begin,
    CheckAlive,
    CollectMetrics,
    MetricsPage,
    Ready,
    ReportMetrics,
    Stop,
    WorkerChannel,
)
from tests.support.ports import free_port
from tests.support.processes import http_get, until

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="workers are not supported on Windows"
)

SERVER = """
import os
from pathlib import Path

from mcp_trio import Server

if Path(__file__).with_name("broken").exists():
    os._exit(7)

server = Server("shared", grace=2)
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "shared_server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    """Restore the import path, which a worker takes from its parent."""
    before = list(sys.path)
    yield
    sys.path[:] = before


def run_while(serve: Callable[[], int], act: Callable[[], None]) -> int:
    """Serve in this thread, while another one acts, and in the end stops the server.

    Signals arrive in the main thread, so it has to be the one that serves.
    """
    acted: Future[None] = Future()

    def run() -> None:
        try:
            act()
        except BaseException as problem:
            acted.set_exception(problem)
        else:
            acted.set_result(None)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return serve()
    finally:
        thread.join()
        acted.result()


def metric(port: int, name: str) -> float:
    status, page = http_get(port, "/metrics")
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines())
    return float(lines[name])


def is_up(port: int) -> bool:
    try:
        return http_get(port, "/healthz")[0] == 200
    except OSError:
        return False


def child_processes() -> list[int]:
    """Return the workers of this process."""
    found = Path("/proc/self/task").glob("*/children")
    return [int(pid) for path in found for pid in path.read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="workers are found in /proc")
def test_workers_are_announced_replaced_and_ended(
    spec: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    place = f"127.0.0.1:{port}"

    def act() -> None:
        try:
            use_workers()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def use_workers() -> None:
        until(lambda: is_up(port) and metric(port, "mcp_workers") == 1)
        os.kill(child_processes()[0], signal.SIGKILL)
        until(lambda: metric(port, "mcp_worker_exits_total") == 1)
        until(lambda: metric(port, "mcp_workers") == 1)
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: "all workers have been replaced" in caplog.text)
        spec.with_name("broken").touch()
        os.kill(os.getpid(), signal.SIGHUP)
        until(lambda: "keeping the other workers" in caplog.text)
        assert metric(port, "mcp_workers") == 1

    def serve() -> int:
        return main(["run", str(spec), "--http", place, "--workers", "1"])

    assert run_while(serve, act) == 0
    assert not is_up(port)
    error = capfd.readouterr().err
    assert error.count(f"Serving 'shared' on http://{place}/mcp with 1 worker\n") == 1
    assert "was killed by SIGKILL; restarting it" in caplog.text


def test_workers_that_cannot_start_end_the_parent(
    spec: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_trio.workers.supervisor.MOST_FAILURES", 1)
    spec.with_name("broken").touch()
    assert main(["run", str(spec), "--http", "127.0.0.1:0", "--workers", "2"]) == 2
    assert "the last one ended with exit code 7" in capfd.readouterr().err
    missing = str(spec.with_name("missing.py"))
    assert main(["run", missing, "--http", "127.0.0.1:0", "--workers", "2"]) == 2
    assert capfd.readouterr().err.count("mcp-trio: error:") == 1


def test_a_worker_serves_what_its_parent_says_until_it_is_stopped(spec: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.setblocking(False)
    ours, theirs = socket.socketpair()
    # The worker ends when this does, so it must stay open.
    lifeline, _ = os.pipe()
    options: dict[str, object] = dict.fromkeys([*SETTINGS, *SWITCHES])
    options |= {"spec": str(spec), "http": f"127.0.0.1:{port}", "workers": 1}
    inherited = {"http": [listener.detach()]}
    begin = Begin(1, options, sys.path, inherited, lifeline)
    told: list[object] = []

    async def be_parent() -> None:
        channel = WorkerChannel(ours)
        await channel.send(begin)
        told.append(await channel.receive())
        await channel.send(CheckAlive())
        assert await channel.receive() == Alive()
        await channel.send(ReportMetrics())
        told.append(await channel.receive())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, fetch_metrics)
            collect = await channel.receive()
            assert isinstance(collect, CollectMetrics)
            await channel.send(AllMetrics(collect.number, b"all\n"))
        await channel.send(Stop(is_for_all=False))
        while told[-1] is not None:
            told.append(await channel.receive())

    def fetch_metrics() -> None:
        assert http_get(port, "/metrics") == (200, "all\n")

    def act() -> None:
        # Without its parent, a worker ends.
        with ours:
            trio.run(be_parent)

    assert run_while(lambda: run_worker([str(theirs.detach())]), act) == 0
    ready, page, last, end = told
    url = f"http://127.0.0.1:{port}/mcp"
    assert ready == Ready("shared", [url], 2.0)
    assert isinstance(page, MetricsPage)
    assert isinstance(last, MetricsPage)
    assert b"mcp_sessions" in last.page
    assert end is None
