"""The lifespan is entered once per process, however many clients there are."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from mcp_trio import Context, Server
from tests.support.checked import ALL, connect


class Traced:
    def __init__(self) -> None:
        self.server = Server("x")
        self.noted: list[str] = []
        self.server.lifespan(self.lifespan)
        self.server.add_tool(self.value)

    async def lifespan(self) -> AsyncIterator[str]:
        self.noted.append("entered")
        try:
            yield "the database"
        finally:
            await trio.lowlevel.checkpoint()
            self.noted.append("left")

    async def value(self, ctx: Context) -> str:
        return str(ctx.lifespan)


@pytest.mark.parametrize("revision", ALL)
async def test_tools_see_what_it_yields(revision: str) -> None:
    traced = Traced()
    async with connect(traced.server, revision) as client:
        result = await client.call_tool("value")
    assert result.get("toolResult", result.text) == "the database"
    assert traced.noted == ["entered", "left"]


async def test_it_is_entered_once_for_many_clients() -> None:
    traced = Traced()
    async with traced.server.running():
        for _ in range(3):
            async with connect(traced.server) as one, connect(traced.server) as other:
                assert (
                    (await one.call_tool("value")).text
                    == (await other.call_tool("value")).text
                    == "the database"
                )
        assert traced.noted == ["entered"]
    assert traced.noted == ["entered", "left"]


async def test_it_can_be_entered_again() -> None:
    traced = Traced()
    for _ in range(2):
        async with connect(traced.server) as client:
            await client.call_tool("value")
    assert traced.noted == ["entered", "left"] * 2


async def test_it_may_take_the_server_and_be_a_context_manager_already() -> None:
    server, seen = Server("x"), []

    @server.lifespan
    @asynccontextmanager
    async def lifespan(given: Server) -> AsyncIterator[None]:
        seen.append(given)
        yield

    async with connect(server):
        assert seen == [server]


async def test_what_fails_in_it_is_not_hidden() -> None:
    server = Server("x")

    @server.lifespan
    async def lifespan() -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with server.running():
            pass
    with pytest.raises(RuntimeError, match="no database"):
        async with server.running():
            pass


async def test_what_fails_in_it_is_noted_as_its_own() -> None:
    server = Server("x")

    @server.lifespan
    async def lifespan() -> AsyncIterator[None]:
        yield
        raise RuntimeError("no end")

    with pytest.raises(RuntimeError, match="no end") as caught:
        async with server.running():
            pass
    assert caught.value.__notes__ == ["raised by the server's lifespan"]
    with pytest.raises(RuntimeError, match="of the program") as other:
        async with server.running():
            raise RuntimeError("of the program")
    assert not hasattr(other.value, "__notes__")


async def test_without_one_there_is_nothing_to_see() -> None:
    server = Server("x")

    @server.tool
    async def value(ctx: Context) -> str:
        return str(ctx.lifespan)

    async with connect(server) as client:
        assert (await client.call_tool("value")).text == "None"


class Database:
    name = "the database"


async def open_database() -> AsyncIterator[Database]:
    yield Database()


@asynccontextmanager
async def database_of(server: Server[Database]) -> AsyncIterator[Database]:
    yield Database()


async def read(ctx: Context[Database]) -> str:
    return ctx.lifespan.name


async def read_maybe(ctx: "Context[Database] | None" = None) -> str:
    return ctx.lifespan.name if ctx else "nothing"


@pytest.mark.parametrize("lifespan", [open_database, database_of])
@pytest.mark.parametrize("function", [read, read_maybe])
async def test_the_constructor_takes_it_and_the_context_may_name_its_type(
    lifespan: Callable[..., AsyncIterator[Database]], function: Callable[..., Any]
) -> None:
    server = Server("x", lifespan=lifespan)
    server.add_tool(function, name="read")
    async with connect(server) as client:
        (tool,) = await client.list_tools()
        assert tool["inputSchema"].get("properties", {}) == {}
        assert (await client.call_tool("read")).text == "the database"


def test_a_server_has_one_lifespan() -> None:
    server = Server("x", lifespan=open_database)
    with pytest.raises(ValueError, match="already has a lifespan"):
        server.lifespan(open_database)
    with pytest.raises(TypeError, match="expected an async function that yields once"):
        Server("x", lifespan=Database)  # type: ignore[arg-type]
