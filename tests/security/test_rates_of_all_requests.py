"""One rate holds for all requests of a client, on every transport."""

from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Limits, Server
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.target import connect as connect_to
from mcp_trio.extensions.tasks import Tasks
from mcp_trio.serve import serve
from mcp_trio.server.limiter import MOST_SENDERS
from tests.support.checked import NEWEST, OPENING, connect, opened, request
from tests.support.reachable import reachable

R = OPENING[-1]


def make_server(rate: str) -> Server[Any]:
    server = Server("rated", limits=Limits(rate=rate))

    @server.tool
    async def quick() -> str:
        return "done"

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        return name

    @server.prompt
    async def greet() -> str:
        return "hello"

    return server


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "quick"}),
        ("tools/call", {"name": "unknown"}),
        ("resources/read", {"uri": "notes://a"}),
        ("prompts/get", {"name": "greet"}),
    ],
)
async def test_calls_reads_and_prompts_count_one(
    method: str, params: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(make_server("2/m"), R) as client:
        requests = [request(id, method, params) for id in range(4)]
        texts = [str(reply) for reply in await client.exchange(*requests)]
    limited = ["Too many calls: 2 a minute" in text for text in texts]
    assert limited == [False, False, True, True]


@pytest.mark.parametrize("method", ["ping", "tools/list", "resources/list"])
async def test_other_requests_count_a_twentieth(
    method: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(make_server("2/m"), R) as client:
        requests = [request(id, method) for id in range(50)]
        replies = await client.exchange(*requests)
    assert ["error" in reply for reply in replies] == [False] * 40 + [True] * 10
    message = replies[-1]["error"]["message"]
    assert message == "Too many requests: 2 a minute are allowed; try again in 1.5 s"


async def test_lists_and_calls_share_the_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(make_server("2/m"), R) as client:
        pings = [request(id, "ping") for id in range(20)]
        await client.exchange(*pings)
        calls = [request(id, "tools/call", {"name": "quick"}) for id in range(2)]
        first, second = await client.exchange(*calls)
    assert first["result"]["content"][0]["text"] == "done"
    assert "Too many calls" in str(second)


@pytest.mark.parametrize("revision", [R, "2026-07-28"])
@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_the_rate_holds_for_reads_over_the_network(
    scheme: str, revision: str
) -> None:
    async with trio.open_nursery() as nursery:
        server = make_server("5/h")
        (url,) = await nursery.start(lambda **options: serve(server, http=0, **options))
        async with connect_to(url.replace("http", scheme, 1), revision) as client:
            refused = 0
            for _ in range(10):
                try:
                    await client.read_resource("notes://a")
                except RemoteError as error:
                    refused += "Too many" in str(error)
        nursery.cancel_scope.cancel()
    assert refused >= 5


async def test_polls_at_their_interval_count_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tasks = Tasks(poll_interval=2.0)
    server: Server[Any] = Server("rated", limits=Limits(rate="1/h"), extensions=[tasks])

    @server.tool(task="optional")
    async def wait() -> str:
        await trio.sleep(1000)
        return "waited"

    declared = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with connect(server, NEWEST, capabilities=declared) as client:
        created = await client.request("tools/call", {"name": "wait", "arguments": {}})
        asked = {"taskId": created["taskId"]}
        for _ in range(50):
            assert (await client.request("tasks/get", asked))["status"] == "working"
            await trio.sleep(2)
        await client.request("tasks/get", asked)
        # This one is too early, and the call has used up the rate.
        with pytest.raises(RemoteError, match="Too many requests"):
            await client.request("tasks/get", asked)


async def test_only_a_limited_number_of_polls_is_remembered() -> None:
    limiter = Server("rated", limits=Limits(rate="1/h")).limiter
    for number in range(MOST_SENDERS + 5):
        limiter.expect_poll(f"task {number}", 1.0)
    expected = [id for id in reachable(limiter, str) if id.startswith("task ")]
    assert len(expected) == MOST_SENDERS
    assert "task 4" not in expected


async def test_without_a_rate_no_poll_is_remembered() -> None:
    limiter = Server("free").limiter
    limiter.expect_poll("task", 1.0)
    assert "task" not in reachable(limiter, str)
