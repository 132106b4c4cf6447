"""Without `--store`, nothing that Redis needs is imported, whatever a server does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio

from mcp_trio import Server
from tests.support.http_wire import Site, message
from tests.support.processes import serving
from tests.support.shared_sites import calling, getting

SERVER = """
import sys

from mcp_trio import Context, Server

server = Server("a")

@server.tool
async def modules(ctx: Context) -> list[str]:
    await ctx.progress(1)
    return [*sys.modules]

@server.tool(task="required", rate="1000/s")
async def work() -> str:
    server.resource_updated("note://a")
    return "done"

@server.resource("note://{name}")
async def note(name: str) -> str:
    return name
"""

PARENT = pytest.param(
    ("--workers", "1"),
    id="parent",
    marks=pytest.mark.skipif(sys.platform == "win32", reason="there are no workers"),
)


@pytest.mark.slow
@pytest.mark.parametrize("options", [pytest.param((), id="memory"), PARENT])
async def test_coredis_is_never_imported(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    spec = tmp_path / "served.py"
    spec.write_text(SERVER)
    with serving(spec, "--rate", "1000/s", *options) as process:
        task = process.create_task("work")
        while process.task(task)["status"] == "working":
            await trio.sleep(0.05)
        there = Site(Server("nobody"), process.port, trio.Event())
        session = await there.open_session()
        subscribing = message("resources/subscribe", {"uri": "note://a"})
        assert (await there.post(subscribing, session)).status == 200
        async with calling(there, session, "modules") as events:
            _, reply = await events.rest()
        async with getting(there, session, events.ids[0]) as resumed:
            assert len(await resumed.rest()) == 2
    loaded = set(reply["result"]["structuredContent"]["result"])
    assert {"trio", "mcp_trio.server.app"} <= loaded
    assert {"coredis", "mcp_trio.stores.redis"} & loaded == set()
