"""What the workers of one parent share, with nothing to install."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import until
from tests.support.worker_group import WorkerGroup, worker_group

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no workers"),
]

SERVER = """
import os
from pathlib import Path

import trio
from mcp_trio import Context, Server
from msgspec import Struct

server = Server("shared")

class Answer(Struct):
    value: str

@server.tool(task="required", poll_interval=0.1)
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Answer)
    return "Hello " + answer.content.value

@server.tool(task="required")
async def slow(path: str) -> str:
    Path(path).write_text(str(os.getpid()))
    await trio.sleep(600)
    return "done"

@server.tool(task="required", retry=True)
async def again(path: str, ctx: Context) -> str:
    answer = (await ctx.elicit("Who are you?", Answer)).content.value
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")
    attempts = len(Path(path).read_text().splitlines())
    if attempts == 1:
        await trio.sleep(600)
    return f"{answer}, attempt {attempts}"

@server.tool
async def ask(ctx: Context) -> str:
    first = (await ctx.elicit("First?", Answer)).content.value
    second = (await ctx.elicit("Second?", Answer)).content.value
    return f"{first} {second} at {os.getpid()}"
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "shared_server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture
def pair(spec: Path) -> Iterator[WorkerGroup]:
    """Return two processes that share what the parent keeps."""
    with worker_group(spec, "--workers", "2") as group:
        yield group


def becomes(group: WorkerGroup, id: str, status: str, seconds: float = 30) -> None:
    def is_so() -> bool:
        found: str = group.task(id)["status"]
        is_over = found in ("completed", "failed", "cancelled")
        assert found == status or not is_over, group.task(id)
        return found == status

    until(is_so, seconds)


def answer(group: WorkerGroup, id: str, value: str) -> None:
    """Answer the question of a task."""
    becomes(group, id, "input_required")
    (key,) = group.task(id)["inputRequests"]
    response = {"action": "accept", "content": {"value": value}}
    group.ask("tasks/update", {"taskId": id, "inputResponses": {key: response}})


def test_a_task_is_polled_answered_and_cancelled_at_the_other_process(
    pair: WorkerGroup, tmp_path: Path
) -> None:
    a, b = pair.workers()
    with pair.only(a):
        greeted = pair.create_task("greet")
    with pair.only(b):
        assert pair.task(greeted)["taskId"] == greeted
    answer(pair, greeted, "Bob")
    becomes(pair, greeted, "completed")
    assert pair.task(greeted)["result"]["content"][0]["text"] == "Hello Bob"
    running = tmp_path / "running"
    endless = pair.create_task("slow", path=str(running))
    until(running.exists)
    runs, other = sorted((a, b), key=lambda pid: str(pid) != running.read_text())
    with pair.only(other):
        pair.ask("tasks/cancel", {"taskId": endless})
    assert runs != other
    becomes(pair, endless, "cancelled", 5)


def test_tasks_of_a_killed_process_run_again_or_fail_within_20_seconds(
    pair: WorkerGroup, tmp_path: Path
) -> None:
    # File -> the task that writes its process to it.
    repeated = {}
    endless = {}
    for number in range(4):
        path = tmp_path / f"again-{number}"
        repeated[path] = pair.create_task("again", path=str(path))
        answer(pair, repeated[path], "Bob")
        path = tmp_path / f"slow-{number}"
        endless[path] = pair.create_task("slow", path=str(path))
    until(lambda: all(map(is_written, [*repeated, *endless])))
    ran = {path: path.read_text().split()[0] for path in [*repeated, *endless]}
    killed = ran[next(iter(repeated))]
    os.kill(int(killed), signal.SIGKILL)
    since = time.monotonic()
    for path, id in endless.items():
        if ran[path] == killed:
            becomes(pair, id, "failed", 20)
            message = pair.task(id)["error"]["message"]
            assert "process that ran the task was lost" in message
        else:
            assert pair.task(id)["status"] == "working"
    for path, id in repeated.items():
        if ran[path] == killed:
            becomes(pair, id, "completed", 20)
            # It had the answer already.
            text = pair.task(id)["result"]["content"][0]["text"]
            assert text == "Bob, attempt 2"
        else:
            assert pair.task(id)["status"] == "working"
    assert time.monotonic() - since < 20


def is_written(path: Path) -> bool:
    return path.exists() and bool(path.read_text())


def test_a_call_goes_on_at_the_other_process_with_the_answers(
    pair: WorkerGroup,
) -> None:
    # What the client carries between the parts of a call is sealed with one secret.
    call: dict[str, object] = {"name": "ask", "arguments": {}}
    a, b = pair.workers()
    with pair.only(a):
        first = pair.ask("tools/call", call)
    with pair.only(b):
        second = pair.ask("tools/call", call | answered(first, "one"))
    with pair.only(a):
        last = pair.ask("tools/call", call | answered(second, "two"))
    assert last["content"][0]["text"] == f"one two at {a}"


def answered(result: dict[str, object], value: str) -> dict[str, object]:
    """Return the params that answer the questions in a result."""
    questions = result["inputRequests"]
    assert isinstance(questions, dict)
    response = {"action": "accept", "content": {"value": value}}
    return {
        "inputResponses": dict.fromkeys(questions, response),
        "requestState": result["requestState"],
    }
