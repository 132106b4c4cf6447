"""Progress is sent to clients that ask for it, under their token, and increases."""

from typing import Any

import pytest
import trio

from mcp_trio import Context, Server
from tests.support.checked import ALL, connect

R = "2025-11-25"


def reporting(*steps: Any) -> Server:
    server = Server("x")

    @server.tool
    async def work(ctx: Context) -> str:
        for step in steps:
            await ctx.progress(*step)
        return "done"

    return server


async def told(server: Server, revision: str, token: Any) -> list[Any]:
    async with connect(server, revision) as client:
        await client.call_tool(
            "work", meta={} if token is None else {"progressToken": token}
        )
    assert {message["method"] for message in client.heard} <= {"notifications/progress"}
    return [message["params"] for message in client.heard]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("token", ["t", "", 0, 7, 2**53])
async def test_each_step_is_reported(revision: str, token: Any) -> None:
    first, second = await told(
        reporting((1, 2, "half"), (2, 2, "all")), revision, token
    )
    with_message = {"message": "half"} if revision >= "2025-03-26" else {}
    assert first == {"progressToken": token, "progress": 1, "total": 2, **with_message}
    assert second["progress"] == 2


@pytest.mark.parametrize("revision", ALL)
async def test_a_client_that_did_not_ask_gets_no_progress(revision: str) -> None:
    assert await told(reporting((1,), (2,)), revision, None) == []


async def test_progress_that_does_not_increase_is_not_sent() -> None:
    steps = [(0,), (0.5,), (0.5,), (0.25,), (-1,), (float("nan"),), (1,)]
    assert [step["progress"] for step in await told(reporting(*steps), R, "t")] == [
        0,
        0.5,
        1,
    ]


async def test_progress_that_is_not_a_number_is_never_sent() -> None:
    assert [
        step["progress"]
        for step in await told(reporting((1, float("inf")), (float("inf"),)), R, "t")
    ] == [1]


async def test_two_requests_report_under_their_own_tokens() -> None:
    async with connect(reporting((1,), (2,)), R) as client:
        ids = [
            client.begin("tools/call", {"name": "work"}, meta={"progressToken": token})
            for token in ("a", "b")
        ]
        for id in ids:
            await client.finish(id)
        tokens = [message["params"]["progressToken"] for message in client.heard]
    assert sorted(tokens) == ["a", "a", "b", "b"]


async def test_resources_and_prompts_report_too() -> None:
    server = Server("x")

    @server.resource("a://b")
    async def read(ctx: Context) -> str:
        await ctx.progress(1)
        return "b"

    @server.prompt
    async def prompt(ctx: Context) -> str:
        await ctx.progress(1)
        return "p"

    async with connect(server, R) as client:
        await client.request(
            "resources/read", {"uri": "a://b"}, meta={"progressToken": 1}
        )
        await client.request(
            "prompts/get", {"name": "prompt"}, meta={"progressToken": 2}
        )
        assert [message["params"]["progressToken"] for message in client.heard] == [
            1,
            2,
        ]


async def test_the_requests_meta_is_the_tools_to_read() -> None:
    server = Server("x")

    @server.tool
    async def work(ctx: Context) -> dict[str, Any]:
        return ctx.meta

    async with connect(server, R) as client:
        result = await client.call_tool(
            "work", meta={"progressToken": 1, "example.com/trace": {"a": [1]}}
        )
        assert result.structured == {
            "progressToken": 1,
            "example.com/trace": {"a": [1]},
        }
        assert (await client.call_tool("work")).structured == {}


async def test_a_function_that_reports_all_the_time_lets_other_calls_run() -> None:
    server = Server("x")
    stopped = trio.Event()

    @server.tool
    async def work(ctx: Context) -> str:
        done = 0
        while not stopped.is_set():
            done += 1
            await ctx.progress(done)
        return "done"

    @server.tool
    async def stop() -> str:
        stopped.set()
        return "stopped"

    async with connect(server, R) as client:
        id = client.begin("tools/call", {"name": "work"})
        await client.call_tool("stop")
        await client.finish(id)


async def test_a_report_right_after_another_notices_a_cancelled_scope() -> None:
    server = Server("x")

    @server.tool
    async def work(ctx: Context) -> str:
        with trio.CancelScope() as scope:
            await ctx.progress(1)
            scope.cancel()
            await ctx.progress(2)
            return "went on"
        return "noticed"

    async with connect(server, R) as client:
        result = await client.call_tool("work", meta={"progressToken": 1})
    assert result.text == "noticed"
