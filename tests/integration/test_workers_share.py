"""What the workers of one parent share, with nothing to install."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_trio import Server
from tests.support.http_wire import Site, message
from tests.support.processes import until
from tests.support.shared_sites import Events, calling, getting, listening
from tests.support.shared_sites import until as until_so
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
async def add_a_tool() -> str:
    server.add_tool(trio.sleep, name="new")
    return "added"

@server.resource("note://{name}")
async def note(name: str) -> str:
    return name

@server.tool
async def change(uri: str) -> str:
    server.resource_updated(uri)
    return "changed"

@server.tool
async def hello(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Answer)
    return f"Hello {answer.content.value}, from {os.getpid()}"

@server.tool
async def wait(begun: str, ended: str) -> str:
    Path(begun).touch()
    try:
        await trio.sleep_forever()
    finally:
        Path(ended).touch()

@server.tool
async def advance(steps: int, until: str, ctx: Context) -> str:
    for step in range(steps):
        await ctx.progress(step + 1, steps, message=str(os.getpid()))
    while not Path(until).exists():
        await trio.sleep(0.05)
    return "done"

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
    """Return two processes that share the parent's store."""
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


# Sessions


def site_of(group: WorkerGroup) -> Site:
    """Return the workers as the helpers for streams expect them."""
    return Site(Server("nobody"), group.port, trio.Event())


def call(tool: str, **arguments: object) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments})


async def test_a_session_is_used_at_one_process_and_ended_at_the_other(
    pair: WorkerGroup,
) -> None:
    there = site_of(pair)
    a, b = pair.workers()
    add = call("change", uri="note://b")
    with pair.only(a):
        session = await there.open_session()
    with pair.only(b):
        assert (await there.post(add, session)).status == 200
    with pair.only(a):
        assert (await there.send("DELETE", "/mcp", session)).status == 204
    ended = time.monotonic()
    with pair.only(b):
        while (await there.post(add, session)).status != 404:
            assert time.monotonic() < ended + 1


async def test_the_standing_stream_hears_what_the_other_process_changes(
    pair: WorkerGroup,
) -> None:
    there = site_of(pair)
    a, b = pair.workers()
    session = await there.open_session()
    subscribing = message("resources/subscribe", {"uri": "note://a"})
    with pair.only(a):
        assert (await there.post(subscribing, session)).status == 200
    async with AsyncExitStack() as stack:
        with pair.only(b):
            stream = getting(there, session, patience=30)
            events = await stack.enter_async_context(stream)
        with pair.only(a):
            await there.post(call("add_a_tool"), session)
        changed = await events.next()
        assert changed["method"] == "notifications/tools/list_changed"
        with pair.only(a):
            await there.post(call("change", uri="note://a"), session)
        updated = await events.next()
        assert updated["method"] == "notifications/resources/updated"
        assert updated["params"] == {"uri": "note://a"}


async def test_a_question_of_one_process_is_answered_at_the_other(
    pair: WorkerGroup,
) -> None:
    there = site_of(pair)
    a, b = pair.workers()
    answer = {"action": "accept", "content": {"value": "Bob"}}
    async with AsyncExitStack() as stack:
        with pair.only(a):
            session = await there.open_session(capabilities={"elicitation": {}})
            calls = calling(there, session, "hello", patience=30)
            events = await stack.enter_async_context(calls)
            question = await events.next()
        with pair.only(b):
            body = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
            assert (await there.post(body, session)).status == 202
        reply = await events.next()
        assert reply["result"]["content"][0]["text"] == f"Hello Bob, from {a}"


async def test_a_request_of_one_process_is_cancelled_at_the_other(
    pair: WorkerGroup, tmp_path: Path
) -> None:
    there = site_of(pair)
    a, b = pair.workers()
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    arguments = {"begun": str(begun), "ended": str(ended)}
    cancelling = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 7},
    }
    body = message("tools/call", {"name": "wait", "arguments": arguments}, 7)
    async with trio.open_nursery() as nursery:
        with pair.only(a):
            session = await there.open_session()
            nursery.start_soon(there.post, body, session)
            await until_so(begun.exists)
        with pair.only(b):
            assert (await there.post(cancelling, session)).status == 202
        await until_so(ended.exists)
        nursery.cancel_scope.cancel()


async def test_a_subscription_hears_what_the_other_process_changes(
    pair: WorkerGroup,
) -> None:
    there = site_of(pair)
    a, b = pair.workers()
    async with AsyncExitStack() as stack:
        with pair.only(b):
            wanted = {"toolsListChanged": True}
            events = await stack.enter_async_context(listening(there, wanted))
        with pair.only(a):
            session = await there.open_session()
            await there.post(call("add_a_tool"), session)
        changed = await events.next()
        assert changed["method"] == "notifications/tools/list_changed"


CLIENTS = 200
STEPS = 5


async def test_streams_of_a_killed_process_go_on_and_end_with_an_error(
    pair: WorkerGroup, tmp_path: Path
) -> None:
    there = site_of(pair)
    go = tmp_path / "go"
    arguments = {"steps": STEPS, "until": str(go)}
    clients: list[tuple[dict[str, str], str, str]] = []
    found: dict[int, list[Any]] = {}
    async with AsyncExitStack() as stack:
        for number in range(CLIENTS):
            session = await there.open_session()
            calls = calling(there, session, "advance", arguments, number, patience=60)
            events: Events = await stack.enter_async_context(calls)
            steps = [(await events.next())["params"] for _ in range(STEPS)]
            clients.append((session, steps[0]["message"], events.ids[1]))
        killed = clients[0][1]
        os.kill(int(killed), signal.SIGKILL)
        since = time.monotonic()

    async def resume(number: int) -> None:
        session, _, last_event = clients[number]
        async with getting(there, session, last_event, patience=60) as events:
            found[number] = await events.rest()

    lost = {number for number, client in enumerate(clients) if client[1] == killed}
    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(resume, number)
        await until_so(lambda: lost <= found.keys())
        assert time.monotonic() - since < 15
        assert found.keys() == lost
        go.touch()
    for number, messages in found.items():
        *missed, reply = messages
        # The first event only had an id, and the second one was seen.
        progress = [sent["params"]["progress"] for sent in missed]
        assert progress == list(range(2, STEPS + 1))
        assert reply["id"] == number
        if number in lost:
            assert reply["error"]["code"] == -32603
            assert "process serving this request was lost" in reply["error"]["message"]
        else:
            assert reply["result"]["content"][0]["text"] == "done"
