"""The client and the command line drive tasks: poll, answer, cancel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trio
from msgspec import Struct
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_trio import Context, InvalidParams, Server
from mcp_trio.cli.reload import Reloader
from mcp_trio.client import TASKS, RemoteError, TaskCancelled
from mcp_trio.load_spec import load
from mcp_trio.testing import connect
from tests.support.command_line import ENVIRONMENT

DECLARED: dict[str, Any] = {"elicitation": {}, "extensions": {TASKS: {}}}


class Answer(Struct):
    """A form."""

    yes: bool


def make_server() -> Server[Any]:
    server = Server("tasks")

    @server.tool(task="optional", poll_interval=2)
    async def job(ctx: Context) -> str:
        await trio.sleep(5)
        await ctx.progress(1, 2, "half way")
        await trio.sleep(5)
        return "done"

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        answers = [await ctx.elicit("Go on?", Answer) for _ in range(2)]
        return " ".join(answer.action for answer in answers)

    @server.tool(task="optional")
    async def refuse() -> str:
        raise InvalidParams("never")

    return server


async def test_a_call_waits_for_its_task(autojump_clock: MockClock) -> None:
    states: list[dict[str, Any]] = []
    async with connect(make_server(), capabilities=DECLARED) as client:
        began = trio.current_time()
        result = await client.call_tool("job", on_task=states.append)
    assert result.text == "done"
    assert trio.current_time() - began == pytest.approx(10)
    assert [state["status"] for state in states] == ["working"] * 5 + ["completed"]
    assert "half way" in [state.get("statusMessage") for state in states]


async def test_the_questions_of_a_task_are_answered_once(
    autojump_clock: MockClock,
) -> None:
    asked = []

    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(method)
        return {"action": "accept", "content": {"yes": True}}

    async with connect(make_server(), capabilities=DECLARED, answer=answer) as client:
        result = await client.call_tool("ask")
    assert result.text == "accept accept"
    assert asked == ["elicitation/create"] * 2


async def test_a_task_whose_question_cannot_be_answered_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    states: list[dict[str, Any]] = []

    async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RemoteError({"code": -1, "message": "nobody is there"})

    async with connect(make_server(), capabilities=DECLARED, answer=answer) as client:
        with pytest.raises(RemoteError, match="nobody is there"):
            await client.call_tool("ask", on_task=states.append)
        task = await client.request("tasks/get", {"taskId": states[0]["taskId"]})
    assert task["status"] == "cancelled"


async def test_a_task_that_fails_raises_its_error(autojump_clock: MockClock) -> None:
    async with connect(make_server(), capabilities=DECLARED) as client:
        with pytest.raises(RemoteError, match="never") as failed:
            await client.call_tool("refuse")
    assert failed.value.code == -32602


async def test_a_client_that_gives_up_cancels_its_task(
    autojump_clock: MockClock,
) -> None:
    states: list[dict[str, Any]] = []
    async with connect(make_server(), capabilities=DECLARED) as client:
        with trio.move_on_after(3):
            await client.call_tool("job", on_task=states.append)
        task = await client.request("tasks/get", {"taskId": states[0]["taskId"]})
    assert task["status"] == "cancelled"


async def test_a_task_cancelled_by_another_client_is_distinguished(
    autojump_clock: MockClock,
) -> None:
    states: list[dict[str, Any]] = []
    async with connect(make_server(), capabilities=DECLARED) as client:

        async def cancel() -> None:
            await wait_all_tasks_blocked()
            await client.request("tasks/cancel", {"taskId": states[0]["taskId"]})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            with pytest.raises(TaskCancelled, match=r"the task .* was cancelled"):
                await client.call_tool("job", on_task=states.append)


# The command line

SERVER = """
import trio
from mcp_trio import Context, Server

server = Server("tasks")

@server.tool(task="required", poll_interval=0.1)
async def job(ctx: Context, seconds: float, mark: str = "") -> str:
    await ctx.progress(1, 2, "half way")
    if mark:
        open(mark + ".began", "w").close()
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        if mark:
            open(mark, "w").close()
        raise
    return "done"
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "tasks_server.py"
    path.write_text(SERVER)
    return str(path)


def command(*words: str) -> list[str]:
    modern = ["--revision", "2026-07-28"]
    return [sys.executable, "-m", "mcp_trio", "call", *modern, *words]


def test_call_waits_for_a_task(spec: str) -> None:
    done = subprocess.run(
        command(spec, "job", "seconds=0.2"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


async def test_a_reloaded_tool_is_still_a_task(
    spec: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [str(Path(spec).parent), *sys.path])
    server = load(spec)
    reloader = Reloader(server, spec)
    changed = SERVER.replace('return "done"', 'return "done again"')
    Path(spec).write_text(changed)
    reloader.reload()
    async with connect(server, capabilities=DECLARED) as client:
        result = await client.call_tool("job", {"seconds": 1})
    assert result.text == "done again"


@pytest.mark.slow
def test_ctrl_c_cancels_the_task(spec: str, tmp_path: Path) -> None:
    mark = tmp_path / "cancelled"
    serving = subprocess.Popen(
        [sys.executable, "-m", "mcp_trio", "run", spec, "--http", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert serving.stderr is not None
    try:
        url = serving.stderr.readline().split()[-1]
        calling = subprocess.Popen(
            command(url, "job", "seconds=60", f"mark={mark}"), env=ENVIRONMENT
        )
        until(lambda: os.path.exists(f"{mark}.began"))
        # Once it polls, the client knows of the task.
        until(lambda: 'method="tasks/get"' in metrics(url))
        calling.send_signal(signal.SIGINT)
        calling.wait(20)
        until(mark.exists)
        assert serving.poll() is None
    finally:
        serving.kill()
        serving.communicate()


def metrics(url: str) -> str:
    """Return the counters of the server at a URL."""
    with urlopen(url.replace("/mcp", "/metrics"), timeout=30) as page:
        text: str = page.read().decode()
    return text


def until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
