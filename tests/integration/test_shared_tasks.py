"""Tasks that two processes of one server share in a Redis."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess, serving, until
from tests.support.redis_server import RedisServer, running_redis

pytest.importorskip("coredis")
pytestmark = [pytest.mark.slow, pytest.mark.integration]

SERVER = """
import os

import trio
from mcp_trio import Context, Server
from msgspec import Struct

server = Server("shared")

class Answer(Struct):
    value: str

@server.tool(task="required")
async def pid() -> int:
    return os.getpid()

@server.tool(task="required", poll_interval=0.1)
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Answer)
    return "Hello " + answer.content.value

@server.tool(task="required")
async def slow(seconds: float) -> str:
    await trio.sleep(seconds)
    return "done"

@server.tool(task="required")
async def hang(path: str) -> None:
    open(path, "w").close()
    await trio.sleep(600)

@server.tool(task="required", retry=True)
async def again(path: str, ctx: Context) -> str:
    answer = (await ctx.elicit("Who are you?", Answer)).content.value
    with open(path, "a") as file:
        file.write(answer)
    with open(path) as file:
        attempts = len(file.read()) // len(answer)
    if attempts == 1:
        await trio.sleep(600)
    return f"{answer}, attempt {attempts}"

@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "shared_server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def url(redis: RedisServer) -> str:
    """Return the URL of a store that is empty."""
    return redis.url(prefix=secrets.token_hex(4))


@pytest.fixture
def pair(spec: Path, url: str) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Return two processes with one store."""
    with ExitStack() as stack:
        a = stack.enter_context(serving(spec, "--store", url))
        b = stack.enter_context(serving(spec, "--store", url))
        yield a, b


def becomes(process: ServerProcess, id: str, status: str, seconds: float = 30) -> None:
    def is_so() -> bool:
        task = process.task(id)
        is_over = task["status"] in ("completed", "failed", "cancelled")
        assert task["status"] == status or not is_over, task
        return bool(task["status"] == status)

    until(is_so, seconds)


def answer(process: ServerProcess, id: str, content: str) -> None:
    """Answer the question of a task."""
    becomes(process, id, "input_required")
    (key,) = process.task(id)["inputRequests"]
    response = {"action": "accept", "content": {"value": content}}
    process.ask("tasks/update", {"taskId": id, "inputResponses": {key: response}})


def test_a_task_is_polled_answered_and_cancelled_at_another_process(
    pair: tuple[ServerProcess, ServerProcess],
) -> None:
    a, b = pair
    greeted = a.create_task("greet")
    answer(b, greeted, "Bob")
    becomes(b, greeted, "completed")
    content = b.task(greeted)["result"]["content"]
    assert content[0]["text"] == "Hello Bob"
    endless = a.create_task("slow", seconds=600)
    b.ask("tasks/cancel", {"taskId": endless})
    becomes(a, endless, "cancelled", 5)


def test_tasks_of_a_killed_process_run_again_or_fail_within_20_seconds(
    pair: tuple[ServerProcess, ServerProcess], tmp_path: Path
) -> None:
    a, b = pair
    # Only A runs tasks until it is killed.
    b.send_signal(signal.SIGSTOP)
    attempts = tmp_path / "attempts"
    repeated = a.create_task("again", path=str(attempts))
    answer(a, repeated, "Bob")
    begun = tmp_path / "begun"
    failing = a.create_task("hang", path=str(begun))
    # A task that A had not taken from the queue would begin at B instead.
    until(attempts.exists)
    until(begun.exists)
    a.kill()
    killed = time.monotonic()
    b.send_signal(signal.SIGCONT)
    becomes(b, failing, "failed", 20)
    assert "process that ran the task was lost" in b.task(failing)["error"]["message"]
    # It has the answer already.
    becomes(b, repeated, "completed", 20)
    assert time.monotonic() - killed < 20
    text = b.task(repeated)["result"]["content"][0]["text"]
    assert text == "Bob, attempt 2"


def test_a_process_without_transports_runs_tasks(spec: Path, url: str) -> None:
    with serving(spec, "--store", url, "--task-slots", "1") as web:
        blocking = web.create_task("slow", seconds=600)
        becomes(web, blocking, "working")
        waiting = web.create_task("pid")
        worker = ServerProcess("work", str(spec), "--store", url, "--concurrency", "2")
        try:
            assert worker.greeting == "Running the tasks of 'shared'\n"
            becomes(web, waiting, "completed")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait() == 0
        finally:
            worker.kill()


def test_a_process_that_stops_gives_its_tasks_to_others(
    pair: tuple[ServerProcess, ServerProcess], tmp_path: Path
) -> None:
    a, b = pair
    b.send_signal(signal.SIGSTOP)
    attempts = tmp_path / "attempts"
    repeated = a.create_task("again", path=str(attempts))
    answer(a, repeated, "Bob")
    until(attempts.exists)
    a.send_signal(signal.SIGTERM)
    assert a.wait() == 0
    b.send_signal(signal.SIGCONT)
    becomes(b, repeated, "completed", 10)


def test_without_redis_only_what_needs_it_fails(spec: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(running_redis(tmp_path))
        process = stack.enter_context(serving(spec, "--store", redis.url()))
        assert process.get("/readyz") == (200, "ok\n")
        endless = process.create_task("slow", seconds=600)
        quick = process.create_task("slow", seconds=2)
        redis.kill()
        add = {"name": "add", "arguments": {"a": 1, "b": 2}}
        poll = {"taskId": endless}

        def is_refused() -> bool:
            status, headers, message = process.post("tasks/get", poll)
            if status != 503:
                return False
            assert headers["Retry-After"] == "2"
            assert "store cannot be reached" in message["error"]["message"]
            return True

        until(is_refused)
        status, _, _ = process.post(
            "tools/call", {"name": "slow", "arguments": {"seconds": 1}}
        )
        assert status == 503
        assert process.get("/readyz")[0] == 503
        assert process.get("/healthz")[0] == 200
        for _ in range(10):
            content = process.ask("tools/call", add)["content"]
            assert content[0]["text"] == "3"
        time.sleep(2)  # one of the tasks ends while Redis is stopped
        redis.start()
        until(lambda: process.get("/readyz")[0] == 200)
        assert process.task(endless)["status"] == "working"
        becomes(process, quick, "completed")
        assert "mcp_store_reconnections_total 1" in process.get("/metrics")[1]
