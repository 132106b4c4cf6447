"""Several processes that serve one port: `run --workers`."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests.support.command_line import ENVIRONMENT, command
from tests.support.deployment import make_certificate
from tests.support.ports import free_port
from tests.support.processes import until
from tests.support.worker_group import WorkerGroup, worker_group
from tests.support.wrk import tool_call, under_load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no workers"),
]

SERVER = """
import logging
import os
import time
from pathlib import Path

import trio
from mcp_trio import Server

if Path(__file__).with_name("broken").exists():
    os._exit(7)
if Path(__file__).with_name("hanging").exists():
    Path(__file__).with_name("hangs").touch()
    time.sleep(600)

server = Server("shared", VERSION, grace=3)

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool(rate="10/m")
async def limited() -> int:
    return os.getpid()

@server.tool
async def version() -> str:
    return VERSION

@server.tool
async def slow(path: str, seconds: float) -> str:
    Path(path).touch()
    await trio.sleep(seconds)
    return "done"

@server.tool
async def block(path: str) -> str:
    Path(path).touch()
    time.sleep(600)
    return "done"

@server.tool
async def complain() -> str:
    logging.getLogger("user").warning("something is odd")
    return "done"
"""
ADD = tool_call("add", a=1, b=2)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "shared_server.py"
    path.write_text(SERVER.replace("VERSION", '"1"'))
    return path


@pytest.fixture
def group(spec: Path) -> Iterator[WorkerGroup]:
    with worker_group(spec, "--workers", "3") as found:
        yield found


# Serving


def test_all_workers_answer_on_one_port_that_is_announced_once(
    group: WorkerGroup,
) -> None:
    url = f"http://127.0.0.1:{group.port}/mcp"
    assert group.greeting == f"Serving 'shared' on {url} with 3 workers\n"
    assert len(group.workers()) == 3

    def has_heard_all() -> bool:
        heard.add(int(group.call("pid")))
        return heard == set(group.workers())

    heard: set[int] = set()
    until(has_heard_all)


def test_health_and_metrics_speak_for_all_workers(group: WorkerGroup) -> None:
    for _ in range(60):
        group.call("add", a=1, b=2)
    assert group.get("/healthz") == (200, "ok\n")
    assert group.get("/readyz") == (200, "ok\n")
    calls = 'mcp_requests_total{method="tools/call",tool="add",outcome="ok"}'
    assert group.metric(calls) == 60
    assert group.metric("mcp_workers") == 3
    # What a worker has counted is still there when it was killed.
    os.kill(group.workers()[0], signal.SIGKILL)
    until(lambda: group.metric("mcp_worker_exits_total") == 1)
    until(lambda: group.metric("mcp_workers") == 3)
    assert group.metric(calls) == 60


def test_lines_of_the_log_name_their_worker(group: WorkerGroup) -> None:
    group.call("complain")
    line = group.wait_for_line("something is odd")
    assert re.fullmatch(r"\[worker [123]\] WARNING user: something is odd\n", line)


def test_workers_have_the_options_of_the_parent(spec: Path, tmp_path: Path) -> None:
    made = subprocess.run(
        command("token", "alice"), capture_output=True, text=True, check=True
    )
    file = tmp_path / "tokens"
    file.write_text(made.stderr)
    options = ("--workers", "2", "--token-file", str(file), "--path", "/tools")
    with worker_group(spec, *options) as group:
        for _ in range(6):
            assert status_of_get(group, "/mcp", "") == 404
            assert status_of_get(group, "/tools", "") == 401
            # With a token it is only the method that does not fit.
            assert status_of_get(group, "/tools", made.stdout.strip()) == 400


def status_of_get(group: WorkerGroup, path: str, token: str) -> int:
    connection = HTTPConnection("127.0.0.1", group.port, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_hypercorn_is_served_and_replaced_too(spec: Path) -> None:
    options = ("--workers", "2", "--http-engine", "hypercorn")
    with worker_group(spec, *options) as group:
        before = {int(group.call("pid")) for _ in range(5)}
        group.send_signal(signal.SIGHUP)
        group.wait_for_line("all workers have been replaced")
        after = {int(group.call("pid")) for _ in range(5)}
        assert before.isdisjoint(after)
        assert group.metric("mcp_workers") == 2
        group.send_signal(signal.SIGTERM)
        assert group.wait() == 0


def test_tls_is_served_with_the_certificate_of_that_moment(
    spec: Path, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with worker_group(spec, "--workers", "2", *options) as group:
        assert group.greeting.startswith("Serving 'shared' on https://")
        address = ("127.0.0.1", group.port)
        served = certificate.read_text()
        assert ssl.get_server_certificate(address).split() == served.split()
        make_certificate(certificate, key)
        group.send_signal(signal.SIGHUP)
        group.wait_for_line("all workers have been replaced")
        assert ssl.get_server_certificate(address).split() != served.split()


# Rates


@pytest.mark.parametrize("options", [("--rate", "10/m"), ()], ids=["server", "tool"])
def test_all_workers_together_answer_as_many_calls_as_the_rate_allows(
    spec: Path, options: tuple[str, ...]
) -> None:
    tool = "pid" if options else "limited"
    with worker_group(spec, "--workers", "2", *options) as group:
        began = time.monotonic()
        replies = [group.call(tool) for _ in range(40)]
        seconds = time.monotonic() - began
    answered = [text for text in replies if "10 a minute are allowed" not in text]
    # Another call is allowed every six seconds.
    assert 10 <= len(answered) <= 10 + seconds / 6
    # One worker has answered, or both.
    assert len(set(answered)) in (1, 2)


# Dying, and being replaced


def test_a_worker_that_dies_is_replaced(group: WorkerGroup) -> None:
    before = group.workers()
    os.kill(before[1], signal.SIGKILL)
    line = group.wait_for_line("restarting it")
    assert f"(process {before[1]}) was killed by SIGKILL" in line
    until(lambda: len(group.workers()) == 3 and before[1] not in group.workers())
    assert group.call("add", a=1, b=2) == "3"


def test_a_worker_that_hangs_is_killed_and_replaced(spec: Path, tmp_path: Path) -> None:
    options = ("--workers", "2", "--worker-timeout", "2")
    with worker_group(spec, *options) as group:
        began = tmp_path / "began"
        with ThreadPoolExecutor(1) as pool:
            blocked = pool.submit(group.call, "block", path=str(began))
            until(began.exists)
            line = group.wait_for_line("has not responded for 2 s")
            hung = re.search(r"\(process ([0-9]+)\)", line)
            assert hung is not None
            # The traceback names the function that blocks.
            group.wait_for_line("in block")
            group.wait_for_line(f"(process {hung[1]}) was killed by SIGABRT")
            with pytest.raises((ConnectionError, HTTPException)):
                blocked.result(60)
        until(lambda: len(group.workers()) == 2)
        assert int(hung[1]) not in group.workers()
        assert group.call("add", a=1, b=2) == "3"


def test_sighup_loads_the_code_again_and_running_requests_finish(
    group: WorkerGroup, spec: Path, tmp_path: Path
) -> None:
    before = set(group.workers())
    began = tmp_path / "began"
    with group.calling("slow", path=str(began), seconds=1.5) as answer:
        until(began.exists)
        spec.write_text(SERVER.replace("VERSION", '"2"'))
        group.send_signal(signal.SIGHUP)
        group.wait_for_line("all workers have been replaced")
        assert answer() == "done"
    assert before.isdisjoint(group.workers())
    versions = {group.call("version") for _ in range(10)}
    assert versions == {"2"}


def test_sighup_with_broken_code_leaves_the_workers_as_they_are(
    group: WorkerGroup, tmp_path: Path
) -> None:
    before = group.workers()
    (tmp_path / "broken").touch()
    group.send_signal(signal.SIGHUP)
    line = group.wait_for_line("keeping the other workers")
    assert "ended with exit code 7 before it was ready" in line
    assert group.workers() == before
    assert group.call("add", a=1, b=2) == "3"


def test_another_sighup_replaces_workers_that_hang_while_they_start(
    group: WorkerGroup, tmp_path: Path
) -> None:
    before = set(group.workers())
    (tmp_path / "hanging").touch()
    group.send_signal(signal.SIGHUP)
    until((tmp_path / "hangs").exists)
    assert group.call("add", a=1, b=2) == "3"
    (tmp_path / "hanging").unlink()
    group.send_signal(signal.SIGHUP)
    group.wait_for_line("is still starting; starting another one")
    group.wait_for_line("all workers have been replaced")
    assert before.isdisjoint(group.workers())
    assert len(group.workers()) == 3


# The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_requests_of_all_workers_finish(
    group: WorkerGroup, tmp_path: Path, number: signal.Signals
) -> None:
    began = tmp_path / "began"
    workers = group.workers()
    with group.calling("slow", path=str(began), seconds=1) as answer:
        until(began.exists)
        group.send_signal(number)
        assert answer() == "done"
    assert group.wait() == 0
    until(lambda: not any(map(is_running, workers)))


def test_signals_to_the_whole_group_are_one_signal(
    group: WorkerGroup, tmp_path: Path
) -> None:
    # As systemd sends them: to the parent and to each worker.
    began = tmp_path / "began"
    with group.calling("slow", path=str(began), seconds=1) as answer:
        until(began.exists)
        for process in (*group.workers(), group.pid, *group.workers()):
            os.kill(process, signal.SIGTERM)
        group.send_signal(signal.SIGTERM)
        assert answer() == "done"
    assert group.wait() == 0


def test_ctrl_c_after_another_signal_ends_requests_at_once(
    group: WorkerGroup, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    with group.calling("slow", path=str(began), seconds=600):
        until(began.exists)
        group.send_signal(signal.SIGTERM)
        # Nothing is accepted any more, so the first signal was received.
        until(lambda: not group.accepts())
        asked = time.monotonic()
        group.send_signal(signal.SIGINT)
        assert group.wait() == 0
        assert time.monotonic() - asked < 3


def test_closing_the_terminal_ends_the_workers(spec: Path) -> None:
    ours, theirs = os.openpty()
    with worker_group(spec, "--workers", "2", stdin=theirs) as group:
        os.close(theirs)
        group.send_signal(signal.SIGHUP)
        group.wait_for_line("all workers have been replaced")
        os.close(ours)
        group.send_signal(signal.SIGHUP)
        assert group.wait() == 0


def test_workers_end_when_the_parent_is_killed(
    group: WorkerGroup, tmp_path: Path
) -> None:
    workers = group.workers()
    began = tmp_path / "began"
    with group.calling("slow", path=str(began), seconds=1) as answer:
        until(began.exists)
        group.kill()
        assert answer() == "done"
    until(lambda: not any(map(is_running, workers)))
    assert not group.accepts()


def test_a_worker_whose_loop_is_blocked_ends_after_its_parent(
    spec: Path, tmp_path: Path
) -> None:
    with worker_group(spec, "--workers", "1", "--grace", "0") as group:
        (worker,) = group.workers()
        began = tmp_path / "began"
        with group.calling("block", path=str(began)):
            until(began.exists)
            group.kill()
            until(lambda: not is_running(worker))


# Failures at the start


def test_an_error_in_the_spec_is_printed_once(tmp_path: Path) -> None:
    done = failing(tmp_path, "missing.py", "--workers", "3")
    assert done.returncode == 2
    assert done.stderr.count("mcp-trio: error:") == 1
    assert "missing.py" in done.stderr


def test_workers_that_cannot_start_are_given_up(tmp_path: Path, spec: Path) -> None:
    (tmp_path / "broken").touch()
    done = failing(tmp_path, str(spec), "--workers", "2")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[-1] == (
        "mcp-trio: error: --workers: 5 workers in a row ended before they were ready; "
        "the last one ended with exit code 7. See their output above for the reason"
    )
    assert len(lines) == 5


def test_a_port_in_use_is_one_line(group: WorkerGroup, tmp_path: Path) -> None:
    place = f"127.0.0.1:{group.port}"
    done = failing(tmp_path, "shared_server.py", "--workers", "2", "--http", place)
    assert done.returncode == 2
    assert done.stderr.startswith(f"mcp-trio: error: cannot listen on {place}:")


def failing(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with an error."""
    place = () if "--http" in arguments else ("--http", f"127.0.0.1:{free_port()}")
    return subprocess.run(
        command("run", *arguments, *place),
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


# Under load. Longer loads are in `test_workers_under_load`.


def test_only_requests_in_flight_at_a_killed_worker_fail(
    spec: Path, tmp_path: Path
) -> None:
    connections = 16
    with worker_group(spec, "--workers", "2") as group:
        with under_load(tmp_path, group.port, ADD, connections=connections) as load:
            until_busy(group)
            os.kill(group.workers()[0], signal.SIGKILL)
            group.wait_for_line("restarting it")
            until_busy(group)
        assert load.lost <= connections
        assert (load.connect, load.timeout, load.status) == (0, 0, 0)


def until_busy(group: WorkerGroup) -> None:
    """Wait until the load has been answered a while longer."""
    calls = 'mcp_requests_total{method="tools/call",tool="add",outcome="ok"}'
    enough = max(group.metric(calls), 0) + 500
    until(lambda: group.metric(calls) > enough)


def test_no_request_fails_while_the_workers_are_replaced(
    spec: Path, tmp_path: Path
) -> None:
    with worker_group(spec, "--workers", "2") as group:
        with under_load(tmp_path, group.port, ADD, connections=16) as load:
            until_busy(group)
            before = set(group.workers())
            group.send_signal(signal.SIGHUP)
            group.wait_for_line("all workers have been replaced")
            assert before.isdisjoint(group.workers())
            until_busy(group)
        assert (load.lost, load.connect, load.status) == (0, 0, 0)
