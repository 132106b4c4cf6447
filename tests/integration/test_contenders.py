"""Every contender that was built does the same work in the benchmarks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks.calls import ORDER, ROUTE
from benchmarks.contenders import builds, toolchains
from benchmarks.contenders.__main__ import table
from benchmarks.contenders.builds import Build, Builds
from benchmarks.contenders.table import BOTH, CONTENDERS, OLDER, Contender
from benchmarks.servers import environment, free_port
from mcp_trio.client.client import Client, Result
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.target import connect

pytestmark = pytest.mark.integration

# `tool_0` to `tool_2`.
ADDITIONAL_TOOLS = 3
TIMEOUT = 60
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
# The floors answer all calls in the same way, without structured content.
STRUCTURED = "structured results"
# The tools that a contender cannot have.
MISSING = {
    "tiny": {"grow"},
    "python_sdk": {"route"},
    "python_sdk_streams": {"route"},
    "python_sdk_trio": {"route"},
    # It is measured in one workload.
    "python_sdk_lowlevel": {*NAMES, STRUCTURED} - {"route"},
}
# The tools that no floor has.
FLOORS_MISSING = {"total", "user", "users", "order", "route", STRUCTURED}
BUILT = {
    contender.name: build
    for contender in CONTENDERS
    if (build := builds.find_build(contender))
}
TRANSPORTS = {"stdio", "http", "stateless", "stream", "ws"}
CASES = [
    pytest.param(contender, transport, id=f"{contender.name}-{transport}")
    for contender in CONTENDERS
    if contender.name in BUILT
    for transport, revisions in contender.transports.items()
    if revisions
]


@pytest.mark.slow
@pytest.mark.parametrize(("contender", "transport"), CASES)
async def test_a_contender_has_all_tools_in_each_of_its_revisions(
    contender: Contender, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(contender, ADDITIONAL_TOOLS).items():
        monkeypatch.setenv(name, value)
    with trio.fail_after(TIMEOUT):
        async with serving(contender, transport) as target:
            for revision in contender.transports[transport]:
                async with connect(target, revision) as client:
                    assert client.revision == revision
                    missing = MISSING.get(contender.name, set())
                    if contender.name.startswith("floor_"):
                        missing = FLOORS_MISSING
                    await check_tools(client, transport, missing)


async def check_tools(client: Client, transport: str, missing: set[str]) -> None:
    """Call all tools, and check the results."""
    names = sorted(tool["name"] for tool in await client.list_tools())
    expected = [name for name in NAMES if name not in missing]
    assert [name for name in names if not name.startswith("grown_")] == expected
    if "route" not in missing:
        await check_route(client)
    if "order" not in missing:
        await check_order(client)
    if "add" in missing:
        return
    for name in ("add", "wait", "block", "tool_2"):
        result = await client.call_tool(name, {"a": 2, "b": 3})
        assert result.text == "5"
        assert result.structured is None
        assert not result.is_error
    assert (await client.call_tool("echo", {"text": "hé — 雨"})).text == "hé — 雨"
    await check_progress(client, transport)
    if STRUCTURED not in missing:
        await check_structured(client)
    if "grow" not in missing:
        await check_growth(client, transport, names)


async def check_route(client: Client) -> None:
    """Arguments are validated by a JSON Schema, or as strictly."""
    result = await client.call_tool("route", ROUTE)
    assert result.text == "ride from Potsdam to Berlin"
    assert await is_refused(client, "route", {**ROUTE, "to": ""})
    assert await is_refused(client, "route", {**ROUTE, "mode": "fly"})
    assert await is_refused(client, "route", {**ROUTE, "price": 1})


async def check_order(client: Client) -> None:
    """Nested arguments are validated, with their constraints."""
    assert (await client.call_tool("order", ORDER)).text == "15"
    assert await is_refused(client, "order", {**ORDER, "items": []})
    item = {"sku": "AB1234", "quantity": 101, "price": 1}
    assert await is_refused(client, "order", {**ORDER, "items": [item]})
    item = {"sku": "ab1234", "quantity": 1, "price": 1}
    assert await is_refused(client, "order", {**ORDER, "items": [item]})


async def is_refused(client: Client, tool: str, arguments: dict[str, Any]) -> bool:
    """Return whether arguments are refused, with an error or a failed result."""
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
    """Return the value in structured content, which may be `{"result": value}`."""
    value = result.structured
    if isinstance(value, dict) and set(value) == {"result"}:
        return value["result"]
    return value


async def check_growth(client: Client, transport: str, names: list[str]) -> None:
    """A new tool is announced, and listed."""
    grown = await client.call_tool("grow")
    if transport == "stdio" and client.revision == OLDER:
        await client.hear("notifications/tools/list_changed")
    assert sorted([*names, grown.text]) == sorted(
        tool["name"] for tool in await client.list_tools()
    )


async def check_progress(client: Client, transport: str) -> None:
    """Progress arrives on transports that can deliver it."""
    result = await client.call_tool("progress", {"n": 3}, meta={"progressToken": "p"})
    assert result.text == "3"
    if transport in ("stdio", "stream"):
        messages = await client.hear("notifications/progress", 3)
        assert [message["params"]["progress"] for message in messages] == [1, 2, 3]


@pytest.mark.slow
async def test_the_websocket_floor_echoes_messages() -> None:
    from trio_websocket import open_websocket_url

    echo = next(
        contender for contender in CONTENDERS if contender.name == "floor_websocket"
    )
    with trio.fail_after(TIMEOUT):
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
    """Run a contender. Yields its URL, or on stdio only its command."""
    port = free_port()
    command = BUILT[contender.name].command(contender, transport, port)
    if transport == "stdio":
        yield command
        return
    process = await trio.lowlevel.open_process(command, stdin=subprocess.DEVNULL)
    try:
        await wait_until_listening(process, port)
        scheme = "ws" if transport == "ws" else "http"
        yield f"{scheme}://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def wait_until_listening(process: trio.Process, port: int) -> None:
    """Try to connect: the contenders have no other sign in common."""
    while True:
        assert process.poll() is None, "the process has ended instead"
        try:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            return
        except OSError:
            await trio.sleep(0.02)


def test_each_contender_is_described() -> None:
    assert len({contender.name for contender in CONTENDERS}) == len(CONTENDERS)
    for contender in CONTENDERS:
        assert set(contender.transports) <= TRANSPORTS
        for revisions in contender.transports.values():
            assert set(revisions) <= set(BOTH)
        assert all(builds.versions(contender).values()), contender.name
        assert contender.differences, contender.name


def test_a_contender_that_cannot_be_built_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TRIO_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    go = next(contender for contender in CONTENDERS if contender.toolchain == "go")
    result = builds.build_all([go])
    assert result == Builds(left_out={"go": "no `go` on the PATH"})
    assert table([go], result)[1].split(maxsplit=3) == [
        "go",
        "left",
        "out",
        "no `go` on the PATH",
    ]
    assert os.listdir(tmp_path) == []


def test_a_build_is_reused_until_its_sources_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "sources" / "small"
    source.mkdir(parents=True)
    (source / "main.go").write_text("package main")
    monkeypatch.setenv("MCP_TRIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(builds, "SOURCES", source.parent)
    made: list[Path] = []

    class Compiler(toolchains.Go):
        def build(self, source: Path, folder: Path) -> str:
            made.append(folder)
            return "a compiler"

    monkeypatch.setitem(toolchains.TOOLCHAINS, "go", Compiler())
    small = Contender("small", "a small program", "small", "go", {"stdio": BOTH})
    assert builds.find_build(small) is None
    first = builds.build(small)
    assert isinstance(first, Build)
    assert builds.build(small) == builds.find_build(small) == first
    assert len(made) == 1
    (source / "main.go").write_text("package other")
    assert builds.find_build(small) is None
    builds.build(small)
    assert len(made) == 2
