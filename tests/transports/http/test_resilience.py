"""Processes that die, processes that replace others, and tools that block."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import trio

from mcp_trio.client.client import Client
from mcp_trio.client.target import connect
from tests.support.http_wire import (
    MODERN,
    VENDOR,
    Response,
    Site,
    Wire,
    make_server,
    message,
    request,
)
from tests.support.paths import PROJECT

PATIENCE = 30
SECRET = "what all processes know, and nobody else"
CAPABLE = {**MODERN, f"{VENDOR}clientCapabilities": {"elicitation": {"form": {}}}}
SERVER = """
import os, time
from msgspec import Struct
from mcp_trio import Context, Server

server = Server("resilient")
blocked, released = [], []

class Seats(Struct):
    count: int

class Day(Struct):
    name: str

@server.tool
async def book(ctx: Context, city: str) -> str:
    async def number() -> int:
        return os.getpid()

    first = await ctx.once("process", number)
    seats = await ctx.elicit(f"How many seats to {city}?", Seats)
    day = await ctx.elicit(f"{seats.content.count} seats: on which day?", Day)
    return f"{seats.content.count} seats to {city} on {day.content.name}, begun in {first}, ended in {os.getpid()}"

@server.tool
def block() -> str:
    blocked.append(1)
    while not released:
        time.sleep(0.1)
    return "done"

@server.tool
async def how_many_block() -> int:
    return len(blocked)

@server.tool
async def release() -> None:
    released.append(1)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "resilient.py"
    path.write_text(SERVER, encoding="utf-8")
    return path


class Started(Site):
    """A process that serves the file over HTTP."""

    def __init__(self, process: trio.Process, port: int) -> None:
        super().__init__(make_server(), port, trio.Event())
        self.process = process

    async def kill(self) -> None:
        """End it without a chance to save anything."""
        self.process.kill()
        assert await self.process.wait() == -signal.SIGKILL

    async def book(self, city: str = "Rome", **again: Any) -> Response:
        params = {
            "name": "book",
            "arguments": {"city": city},
            "_meta": CAPABLE,
            **again,
        }
        return await self.modern("tools/call", params)


@asynccontextmanager
async def started(
    file: Path, secret: str | None = SECRET, port: int = 0
) -> AsyncIterator[Started]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MCP_TRIO_")
    }
    environment |= {"MCP_TRIO_SECRET": secret} if secret is not None else {}
    command = [sys.executable, "-m", "mcp_trio", "run", str(file), "--http", str(port)]
    process = await trio.lowlevel.open_process(
        command, cwd=PROJECT, env=environment, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        told = b""
        with trio.fail_after(PATIENCE):
            while not told.endswith(b"/mcp\n"):
                told += await process.stderr.receive_some()
        yield Started(process, int(told.rpartition(b":")[2].partition(b"/")[0]))
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


# The state of a conversation is the client's to carry


def answer(response: Response, **content: Any) -> dict[str, Any]:
    """Return the params that answer a response with one question."""
    result = response.json["result"]
    assert result["resultType"] == "input_required"
    (key,) = result["inputRequests"]
    return {
        "requestState": result["requestState"],
        "inputResponses": {key: {"action": "accept", "content": content}},
    }


def question(response: Response) -> str:
    (asked,) = response.json["result"]["inputRequests"].values()
    return str(asked["params"]["message"])


def booked(response: Response, begun: Started, ended: Started) -> bool:
    processes = f"begun in {begun.process.pid}, ended in {ended.process.pid}"
    result = response.json["result"]
    assert result["resultType"] == "complete"
    return bool(
        result["content"][0]["text"] == f"2 seats to Rome on Monday, {processes}"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("same_port", [True, False])
async def test_a_conversation_survives_the_death_of_its_process(
    file: Path, same_port: bool
) -> None:
    async with started(file) as one:
        async with one.wire():  # a connection that is open when the process dies
            first = await one.book()
            await one.kill()
        async with started(file, port=one.port if same_port else 0) as two:
            second = await two.book(**answer(first, count=2))
            assert question(second) == "2 seats: on which day?"
            await two.kill()
            async with started(file, port=one.port if same_port else 0) as three:
                # The first answer is in the state, where the second process has put it.
                assert booked(
                    await three.book(**answer(second, name="Monday")), one, three
                )


@pytest.mark.thorough
async def test_two_processes_answer_in_turn(file: Path) -> None:
    async with started(file) as one, started(file) as two:
        first = await one.book()
        second = await two.book(**answer(first, count=2))
        assert booked(await one.book(**answer(second, name="Monday")), one, one)
        assert booked(await two.book(**answer(second, name="Monday")), one, two)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "secrets",
    [(SECRET, "another secret, of another process"), (SECRET, None), (None, None)],
)
async def test_a_state_is_refused_where_the_secret_is_another(
    file: Path, secrets: tuple[str | None, str | None]
) -> None:
    async with started(file, secrets[0]) as one, started(file, secrets[1]) as two:
        first = await one.book()
        refused = await two.book(**answer(first, count=2))
        assert (refused.status, refused.json["error"]["code"]) == (200, -32602)
        assert "$.params.requestState" in refused.json["error"]["message"]
        begun_again = await two.book()
        assert question(begun_again) == question(first) == "How many seats to Rome?"
        second = await one.book(**answer(first, count=2))  # it is as good as it was
        assert question(second) == "2 seats: on which day?"


@pytest.mark.thorough
async def test_another_process_checks_what_a_state_is_for(file: Path) -> None:
    async with started(file) as one, started(file) as two:
        refused = await two.book("Paris", **answer(await one.book(), count=2))
        assert (refused.status, refused.json["error"]["code"]) == (200, -32602)
        assert "belongs to another request" in refused.json["error"]["message"]


@pytest.mark.thorough
async def test_a_session_ends_with_its_process_and_the_client_has_to_open_another(
    file: Path,
) -> None:
    async with started(file) as one:
        session = await one.open_session()
        assert (await one.post(message("ping"), session)).status == 200
        await one.kill()
    async with started(file, port=one.port) as two:
        assert (await two.post(message("ping"), session)).status == 404
        assert (await two.post(message("ping"), await two.open_session())).status == 200


async def test_calls_that_run_when_the_process_is_killed_end_at_once(
    file: Path,
) -> None:
    async with started(file) as one, one.wire() as wire:
        session = await one.open_session()
        await wire.send(
            request(
                "POST",
                "/mcp",
                session,
                json.dumps(message("tools/call", {"name": "block"})).encode(),
            )
        )
        async with connect(f"http://127.0.0.1:{one.port}/mcp") as client:
            await all_block(client, 1)
        await one.kill()
        assert await wire_is_lost(wire)


async def wire_is_lost(wire: Wire) -> bool:
    try:
        return await wire.ended()
    except trio.BrokenResourceError:
        return True


# Tools that block

CALLS, PINGS = 40, 21
WAYS = [
    ("http", "2025-11-25"),
    ("http", "2026-07-28"),
    ("ws", "2025-11-25"),
    ("stdio", "2025-11-25"),
]


@asynccontextmanager
async def clients(
    file: Path, way: str, revision: str
) -> AsyncIterator[tuple[Client, Client]]:
    """Return two clients of one process. On stdio, they are the same one."""
    if way == "stdio":
        async with connect(
            [sys.executable, "-m", "mcp_trio", "run", str(file)], revision
        ) as client:
            yield client, client
        return
    async with started(file) as there:
        url = f"{way}://127.0.0.1:{there.port}/mcp"
        async with connect(url, revision) as one, connect(url, revision) as other:
            yield one, other


async def all_block(client: Client, calls: int) -> None:
    """Wait until this many calls block, each in the middle of its sleep."""
    with trio.fail_after(PATIENCE):
        while int((await client.call_tool("how_many_block")).text) < calls:
            pass  # the call itself is the wait


async def seconds_of_a_ping(client: Client, revision: str) -> float:
    begun = trio.current_time()
    await client.request("ping" if revision < "2026" else "server/discover")
    return trio.current_time() - begun


@pytest.mark.thorough
@pytest.mark.parametrize(("way", "revision"), WAYS)
async def test_a_ping_is_answered_while_forty_tools_block(
    file: Path, way: str, revision: str
) -> None:
    replies: list[str] = []

    async def block(client: Client) -> None:
        replies.append((await client.call_tool("block")).text)

    with trio.fail_after(3 * PATIENCE):
        async with clients(file, way, revision) as (caller, pinger):
            async with trio.open_nursery() as nursery:
                for _ in range(CALLS):
                    nursery.start_soon(block, caller)
                await all_block(pinger, CALLS)
                times = [
                    await seconds_of_a_ping(pinger, revision) for _ in range(PINGS)
                ]
                assert replies == []  # all of them still block
                await pinger.call_tool("release")
            assert replies == ["done"] * CALLS
    # The median, as whatever else this machine does may hold up some of them; what
    # blocks the loop holds up all.
    assert median(times) < 0.05
