"""Every installed contender of the benchmarks does the same work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks import contenders
from benchmarks.calls import ORDER, ROUTE
from benchmarks.contenders import BOTH, CONTENDERS, OLDER, Build, Contender, Roll
from mcp_trio.client.client import Client, Result
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.target import connect

pytestmark = pytest.mark.integration

MORE = 3
SECONDS = 60
NAMES = [
    "add",
    "block",
    "echo",
    "grow",
    "order",
    "progress",
    "route",
    "tool_0",
    "tool_1",
    "tool_2",
    "total",
    "user",
    "users",
    "wait",
]
# The floors answer every call alike, without structured content.
STRUCTURED = "structured results"
# What a contender has no way to do.
LACKS = {
    "tiny": {"grow"},
    "python_sdk": {"route"},
    "python_sdk_streams": {"route"},
    "python_sdk_trio": {"route"},
    # It serves one workload only.
    "python_sdk_lowlevel": {*NAMES, STRUCTURED} - {"route"},
}
BUILT = {
    contender.name: there
    for contender in CONTENDERS
    if (there := contenders.found(contender))
}
WAYS = [
    pytest.param(contender, transport, id=f"{contender.name}-{transport}")
    for contender in CONTENDERS
    if contender.name in BUILT
    for transport, revisions in contender.transports.items()
    if revisions
]


@pytest.mark.slow
@pytest.mark.parametrize(("contender", "transport"), WAYS)
async def test_a_contender_answers_every_call_in_each_revision_that_it_claims(
    contender: Contender, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in contenders.environment(contender, MORE).items():
        monkeypatch.setenv(name, value)
    with trio.fail_after(SECONDS):
        async with serving(contender, transport) as target:
            for revision in contender.transports[transport]:
                async with connect(target, revision) as client:
                    assert client.revision == revision
                    lacks = LACKS.get(contender.name, set())
                    if contender.name.startswith("floor_"):
                        lacks = {"total", "user", "users", "order", "route", STRUCTURED}
                    await check(client, transport, lacks)


async def check(client: Client, transport: str, lacks: set[str]) -> None:
    """Everything that a workload asks for."""
    names = sorted(tool["name"] for tool in await client.list_tools())
    expected = [name for name in NAMES if name not in lacks]
    assert [name for name in names if not name.startswith("grown_")] == expected
    if "route" not in lacks:
        await check_route(client)
    if "order" not in lacks:
        await check_order(client)
    if "add" in lacks:
        return
    for adds in ("add", "wait", "block", "tool_2"):
        result = await client.call_tool(adds, {"a": 2, "b": 3})
        assert result.text == "5"
        assert result.structured is None
        assert not result.is_error
    assert (await client.call_tool("echo", {"text": "hé — 雨"})).text == "hé — 雨"
    await check_progress(client, transport)
    if STRUCTURED not in lacks:
        await check_structured(client)
    if "grow" not in lacks:
        await check_growth(client, transport, names)


async def check_route(client: Client) -> None:
    """Arguments are checked by a JSON Schema, or as strictly."""
    result = await client.call_tool("route", ROUTE)
    assert result.text == "ride from Potsdam to Berlin"
    assert await is_refused(client, "route", {**ROUTE, "to": ""})
    assert await is_refused(client, "route", {**ROUTE, "mode": "fly"})
    assert await is_refused(client, "route", {**ROUTE, "price": 1})


async def check_order(client: Client) -> None:
    """Nested arguments are checked, with their constraints."""
    assert (await client.call_tool("order", ORDER)).text == "15"
    assert await is_refused(client, "order", {**ORDER, "items": []})
    item = {"sku": "AB1234", "quantity": 101, "price": 1}
    assert await is_refused(client, "order", {**ORDER, "items": [item]})
    item = {"sku": "ab1234", "quantity": 1, "price": 1}
    assert await is_refused(client, "order", {**ORDER, "items": [item]})


async def is_refused(client: Client, tool: str, arguments: dict[str, Any]) -> bool:
    """Return whether arguments are refused, with an error or with a failed result."""
    try:
        return (await client.call_tool(tool, arguments)).is_error
    except RemoteError:
        return True


async def check_structured(client: Client) -> None:
    """Structured results are the same values in every contender."""
    arguments = {"a": 2, "b": 3}
    assert unwrapped(await client.call_tool("total", arguments)) == 5
    user = unwrapped(await client.call_tool("user", arguments))
    assert user["id"] == 2
    users = unwrapped(await client.call_tool("users", arguments))
    assert users[0] == user
    assert len(users) == 100


def unwrapped(result: Result) -> Any:
    """The value in structured content, which may be in an object of its own."""
    value = result.structured
    is_wrapped = isinstance(value, dict) and set(value) == {"result"}
    return value["result"] if is_wrapped else value


async def check_growth(client: Client, transport: str, names: list[str]) -> None:
    """A new tool is announced, and listed."""
    grown = await client.call_tool("grow")
    if transport == "stdio" and client.revision == OLDER:
        await client.hear("notifications/tools/list_changed")
    assert sorted([*names, grown.text]) == sorted(
        tool["name"] for tool in await client.list_tools()
    )


async def check_progress(client: Client, transport: str) -> None:
    """It is heard where the transport has a way for it."""
    result = await client.call_tool("progress", {"n": 3}, meta={"progressToken": "p"})
    assert result.text == "3"
    if transport in ("stdio", "stream"):
        told = await client.hear("notifications/progress", 3)
        assert [one["params"]["progress"] for one in told] == [1, 2, 3]


@pytest.mark.slow
async def test_the_websocket_floor_sends_back_what_it_gets() -> None:
    from trio_websocket import open_websocket_url

    echo = next(
        contender for contender in CONTENDERS if contender.name == "floor_websocket"
    )
    with trio.fail_after(SECONDS):
        async with (
            serving(echo, "ws") as target,
            open_websocket_url(str(target), subprotocols=["mcp"]) as connection,
        ):
            assert connection.subprotocol == "mcp"
            await connection.send_message("hello")
            assert await connection.get_message() == "hello"


@asynccontextmanager
async def serving(
    contender: Contender, transport: str
) -> AsyncIterator[str | list[str]]:
    """Where a contender can be reached; on stdio, the command to start it."""
    there, port = BUILT[contender.name], contenders.free_port()
    command = there.command(contender, transport, port)
    if transport == "stdio":
        yield command
        return
    process = await trio.lowlevel.open_process(command, stdin=subprocess.DEVNULL)
    try:
        await listening(process, port)
        yield f"{'ws' if transport == 'ws' else 'http'}://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def listening(process: trio.Process, port: int) -> None:
    """Wait until a process lets one in. It has no other way to say so that all contenders share."""
    while True:
        assert process.poll() is None, "it has ended instead"
        try:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            return
        except OSError:
            await trio.sleep(0.02)


def test_each_contender_says_what_it_is() -> None:
    assert len({contender.name for contender in CONTENDERS}) == len(CONTENDERS)
    for contender in CONTENDERS:
        assert set(contender.transports) <= {
            "stdio",
            "http",
            "stateless",
            "stream",
            "ws",
        }
        assert all(
            set(revisions) <= set(BOTH) for revisions in contender.transports.values()
        )
        assert all(contenders.versions(contender).values()), contender.name
        assert contender.differs, contender.name


def test_what_cannot_be_built_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TRIO_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    go = next(contender for contender in CONTENDERS if contender.toolchain == "go")
    roll = contenders.call_roll([go])
    assert roll == Roll(left_out={"go": "no `go` on the PATH"})
    assert contenders.table([go], roll)[1].split(maxsplit=3) == [
        "go",
        "left",
        "out",
        "no `go` on the PATH",
    ]
    assert os.listdir(tmp_path) == []


def test_a_build_is_found_again_until_what_it_is_made_from_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "sources" / "small"
    source.mkdir(parents=True)
    (source / "main.go").write_text("package main")
    monkeypatch.setenv("MCP_TRIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(contenders, "SOURCES", source.parent)
    made: list[Path] = []

    def make(source: Path, folder: Path) -> str:
        made.append(folder)
        return "a compiler"

    go = contenders.TOOLCHAINS["go"]
    monkeypatch.setitem(contenders.TOOLCHAINS, "go", replace(go, make=make))
    small = Contender("small", "a small one", "small", "go", {"stdio": BOTH})
    assert contenders.found(small) is None
    first = contenders.build(small)
    assert isinstance(first, Build)
    assert contenders.build(small) == contenders.found(small) == first
    assert len(made) == 1
    (source / "main.go").write_text("package other")
    assert contenders.found(small) is None
    contenders.build(small)
    assert len(made) == 2
