"""A program answers the server's questions with one function for each kind."""

import asyncio
import re
from typing import Any

import pytest
import trio
from msgspec import Struct

from mcp_trio import Context, Server
from mcp_trio.client import RemoteError
from mcp_trio.testing import connect

ERAS = ["2025-11-25", "2026-07-28"]
each_era = pytest.mark.parametrize("revision", ERAS)


class Trip(Struct):
    """A form."""

    city: str
    days: int


def make_server() -> Server:
    server = Server("asking")

    @server.tool
    async def plan(ctx: Context) -> str:
        """Ask for a trip."""
        answer = await ctx.elicit("Where to?", Trip)
        if answer.content is None:
            return answer.action
        return f"{answer.content.days} days in {answer.content.city}"

    @server.tool
    async def visit(ctx: Context) -> str:
        """Ask the user to visit a page."""
        answer = await ctx.elicit_url("Sign in", "https://example.org/", id="1")
        return answer.action

    @server.tool
    async def think(ctx: Context) -> str:
        """Ask the model."""
        sampled = await ctx.sample("What is 6 times 7?", max_tokens=10)
        return str(sampled)

    @server.tool
    async def places(ctx: Context) -> list[str]:
        """Ask for roots."""
        return [root.uri for root in await ctx.roots()]

    @server.tool
    async def work(ctx: Context) -> str:
        """Report progress, and log."""
        await ctx.progress(1, 2, "half")
        await ctx.progress(2, 2, "all")
        await ctx.info("done", logger="worker")
        return "worked"

    @server.tool
    async def number() -> int:
        """Return a number."""
        return 7

    @server.tool
    async def sleep(seconds: float) -> str:
        """Sleep."""
        await trio.sleep(seconds)
        return "slept"

    return server


@each_era
async def test_a_form_is_filled_in(revision: str) -> None:
    asked: list[tuple[str, Any]] = []

    async def fill_in(message: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append((message, sorted(params["requestedSchema"]["properties"])))
        return {"city": "Nairobi", "days": 5}

    async with connect(make_server(), revision, elicitation=fill_in) as client:
        assert (await client.call_tool("plan")).text == "5 days in Nairobi"
    assert asked == [("Where to?", ["city", "days"])]


@each_era
async def test_a_form_is_declined_with_none(revision: str) -> None:
    async def decline(message: str, params: dict[str, Any]) -> None:
        return None

    async with connect(make_server(), revision, elicitation=decline) as client:
        assert (await client.call_tool("plan")).text == "decline"
        assert (await client.call_tool("visit")).text == "decline"


@each_era
async def test_a_page_is_visited(revision: str) -> None:
    async def accept(message: str, params: dict[str, Any]) -> dict[str, Any]:
        assert params["url"] == "https://example.org/"
        return {}

    async with connect(make_server(), revision, elicitation=accept) as client:
        assert (await client.call_tool("visit")).text == "accept"


@each_era
async def test_the_model_answers_with_text(revision: str) -> None:
    async def model(messages: list[dict[str, Any]], params: dict[str, Any]) -> str:
        assert params["maxTokens"] == 10
        return f"42, to {messages[0]['content']['text']!r}"

    async with connect(make_server(), revision, sampling=model) as client:
        assert "42, to 'What is 6 times 7?'" in (await client.call_tool("think")).text


@each_era
async def test_roots_are_a_list(revision: str) -> None:
    roots = ["file:///one", "file:///two"]
    async with connect(make_server(), revision, roots=roots) as client:
        assert "file:///two" in (await client.call_tool("places")).text


async def test_a_question_without_a_handler_is_not_asked() -> None:
    async with connect(make_server()) as client:
        with pytest.raises(RemoteError, match="capability elicitation"):
            await client.call_tool("plan")


@each_era
async def test_progress_and_log_are_reported(revision: str) -> None:
    progress: list[Any] = []
    logged: list[Any] = []
    async with connect(
        make_server(),
        revision,
        progress=lambda *report: progress.append(report),
        log=lambda *entry: logged.append(entry),
    ) as client:
        await client.call_tool("work")
    assert progress == [(1, 2, "half"), (2, 2, "all")]
    assert logged == [("info", "done", "worker")]


@pytest.mark.parametrize("revision", ["2025-06-18", *ERAS])
async def test_data_is_what_the_tool_returned(revision: str) -> None:
    async with connect(make_server(), revision) as client:
        assert (await client.call_tool("number")).data == 7
        assert (await client.call_tool("work")).data == "worked"


async def test_a_wait_has_a_time_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(make_server(), timeout=2) as client:
        with pytest.raises(TimeoutError, match="tools/call: no reply within 2 s"):
            await client.call_tool("sleep", {"seconds": 60})
        with pytest.raises(
            TimeoutError,
            match=re.escape("expected 1 of notifications/message within 2 s, got 0"),
        ):
            await client.hear("notifications/message")
        assert (await client.call_tool("number")).data == 7


async def test_a_request_that_took_too_long_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = make_server()
    cancelled = trio.Event()

    @server.tool
    async def endless() -> str:
        """Wait for ever."""
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        return "never"

    async with connect(server, timeout=2) as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("endless")
        with trio.fail_after(30):
            await cancelled.wait()


async def test_an_exception_inside_of_connect_is_raised_as_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(make_server()):
            raise ZeroDivisionError


def test_asyncio_gets_an_error_that_says_what_to_do() -> None:
    async def use() -> None:
        async with connect(make_server()):
            pass

    with pytest.raises(RuntimeError, match="this is asyncio"):
        asyncio.run(use())
    with pytest.raises(RuntimeError, match=r"Server\.serve runs on trio"):
        asyncio.run(make_server().serve(stdio=True))

    async def mount() -> None:
        async with make_server().running():
            pass

    with pytest.raises(RuntimeError, match=r"hypercorn -k trio"):
        asyncio.run(mount())
