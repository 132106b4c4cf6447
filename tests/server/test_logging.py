"""Log messages to the client: the levels that it gets, and their names."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from mcp_trio import Context, Server
from mcp_trio.client.errors import RemoteError
from tests.support.checked import ALL, NEWEST, OPENING, connect

LEVELS = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
]
IN_THE_FIRST = dict(
    zip(
        LEVELS,
        ["debug", "info", "info", "warning", "error", "error", "error", "error"],
        strict=True,
    )
)
LATER = OPENING[1:]


class Struct(msgspec.Struct):
    a: int = 1


@dataclass
class Data:
    a: int = 1


def make_logging_server() -> Server:
    server = Server("x")

    @server.tool
    async def say_all(ctx: Context) -> str:
        for level in LEVELS:
            await ctx.log(level, f"at {level}", logger="tester")
        return "said"

    return server


async def heard(revision: str, level: str | None) -> list[str]:
    """Return the levels that arrive after the client has asked for one."""
    async with connect(make_logging_server(), revision) as client:
        meta = {}
        if level is not None and revision in OPENING:
            await client.request("logging/setLevel", {"level": level})
        elif level is not None:
            meta = {"io.modelcontextprotocol/logLevel": level}
        await client.call_tool("say_all", meta=meta)
    assert all(message["params"]["logger"] == "tester" for message in client.heard)
    return [message["params"]["level"] for message in client.heard]


@pytest.mark.parametrize("revision", [*LATER, NEWEST])
@pytest.mark.parametrize("level", LEVELS)
async def test_what_is_at_the_level_or_above_arrives(revision: str, level: str) -> None:
    assert await heard(revision, level) == LEVELS[LEVELS.index(level) :]


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
async def test_the_first_revision_has_four_levels(level: str) -> None:
    assert await heard("2024-10-07", level) == [
        IN_THE_FIRST[one] for one in LEVELS[LEVELS.index(level) :]
    ]


@pytest.mark.parametrize(
    ("revision", "level"), [*((r, "loud") for r in OPENING), ("2024-10-07", "notice")]
)
async def test_a_level_that_the_revision_does_not_have(
    revision: str, level: str
) -> None:
    async with connect(make_logging_server(), revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.request("logging/setLevel", {"level": level})
    assert caught.value.code == -32602


@pytest.mark.parametrize("revision", OPENING)
async def test_a_client_that_asks_for_no_level_gets_information(revision: str) -> None:
    assert len(await heard(revision, None)) == 7


async def test_the_newest_revision_sends_none_unless_the_request_asks() -> None:
    assert await heard(NEWEST, None) == []


DATA: list[tuple[Any, Any]] = [
    ("text", "text"),
    (None, None),
    (0, 0),
    ({"a": [1, None]}, {"a": [1, None]}),
    ([Struct()], [{"a": 1}]),
    (Struct(), {"a": 1}),
    (Data(), {"a": 1}),
    ("half \ud800", "half \ufffd"),
]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(("data", "wanted"), DATA, ids=repr)
async def test_the_data_may_be_anything(revision: str, data: Any, wanted: Any) -> None:
    server = Server("x")

    @server.tool
    async def say(ctx: Context) -> str:
        await ctx.log("error", data)
        return "said"

    async with connect(server, revision) as client:
        await client.call_tool(
            "say", meta={"io.modelcontextprotocol/logLevel": "error"}
        )
    (message,) = client.heard
    assert message["params"] == {"level": "error", "data": wanted}


async def test_an_unknown_level_is_an_error_of_the_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("x")

    @server.tool
    async def say(ctx: Context) -> str:
        await ctx.log("loud", "x")
        return "said"

    async with connect(server) as client:
        assert (await client.call_tool("say")).is_error
    assert "ctx.log(level): expected one of debug, info" in caplog.text


async def test_the_level_is_each_clients_own() -> None:
    server = make_logging_server()
    async with (
        connect(server, "2025-11-25") as one,
        connect(server, "2025-11-25") as other,
    ):
        await one.request("logging/setLevel", {"level": "emergency"})
        await one.call_tool("say_all")
        await other.call_tool("say_all")
        assert (len(one.heard), len(other.heard)) == (1, 7)
