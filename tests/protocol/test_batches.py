"""Batches: revision 2025-03-26 answers one array with another; others refuse it."""

import json
from typing import Any

import pytest
import trio

from mcp_trio import Context, Server
from tests.support.checked import (
    ALL,
    call,
    cancelled,
    initialize,
    modern,
    notification,
    opened,
    ping,
    raw,
    request,
)

R = "2025-03-26"


class Office:
    def __init__(self) -> None:
        self.server = Server("x")
        self.go_on = trio.Event()
        for tool in (self.say, self.wait, self.fail, self.tell):
            self.server.add_tool(tool)

    async def say(self, word: str = "x") -> str:
        return word

    async def wait(self) -> str:
        await self.go_on.wait()
        return "waited"

    async def fail(self) -> str:
        raise RuntimeError("no")

    async def tell(self, ctx: Context) -> str:
        await ctx.log("error", "telling")
        return "told"


async def test_an_array_is_answered_by_an_array() -> None:
    async with opened(Office().server, R) as client:
        (replies,) = await client.exchange(
            [call(R, 1, "say"), ping(R, 2), request(3, "tools/list")]
        )
    assert [reply["id"] for reply in replies] == [1, 2, 3]


async def test_the_array_waits_for_the_last_and_other_messages_do_not() -> None:
    office = Office()
    async with opened(office.server, R) as client:
        (pong,) = await client.exchange(
            [call(R, 1, "wait"), call(R, 2, "say")], ping(R)
        )
        assert pong["id"] == "ping"
        office.go_on.set()
        (replies,) = await client.quiet()
    assert sorted(reply["id"] for reply in replies) == [1, 2]


async def test_each_message_of_an_array_has_its_own_error() -> None:
    async with opened(Office().server, R) as client:
        batch: list[Any] = [
            request(1, "no/such"),
            5,
            call(R, 2, "fail"),
            {"jsonrpc": "2.0", "id": 3},
            [],
            ping(R, 4),
        ]
        (replies,) = await client.exchange(batch)
    codes = {reply.get("id"): reply.get("error", {}).get("code") for reply in replies}
    assert codes == {1: -32601, None: -32600, 2: None, 3: -32600, 4: None}
    assert len(replies) == 6


@pytest.mark.parametrize(
    "batch",
    [
        [notification("notifications/strange")],
        [{"jsonrpc": "2.0", "id": 9, "result": {}}],
    ],
)
async def test_an_array_that_asks_for_nothing_gets_nothing(batch: list[Any]) -> None:
    async with opened(Office().server, R) as client:
        (pong,) = await client.exchange(batch, ping(R))
    assert pong["id"] == "ping"


async def test_a_cancelled_request_is_left_out_of_the_array() -> None:
    async with opened(Office().server, R) as client:
        assert await client.exchange([call(R, 1, "wait"), call(R, 2, "say")]) == []
        (replies,) = await client.exchange(cancelled(1))
        assert [reply["id"] for reply in replies] == [2]
        assert await client.exchange([call(R, 1, "wait")]) == []
        assert await client.exchange(cancelled(1)) == []


async def test_of_two_requests_with_one_id_in_an_array_one_is_refused() -> None:
    office = Office()
    async with opened(office.server, R) as client:
        await client.exchange([call(R, 1, "wait"), call(R, 1, "say")])
        office.go_on.set()
        (replies,) = await client.quiet()
    assert sorted("error" in reply for reply in replies) == [False, True]


async def test_notifications_of_a_request_are_not_part_of_the_array() -> None:
    async with opened(Office().server, R) as client:
        told, replies = await client.exchange([call(R, 1, "tell"), ping(R, 2)])
    assert told["method"] == "notifications/message"
    assert sorted(reply["id"] for reply in replies) == [1, 2]


async def test_initialize_must_not_be_in_an_array() -> None:
    async with opened(Office().server, R) as client:
        (replies,) = await client.exchange([initialize(R)])
    assert (
        replies[0]["error"]["message"]
        == "Invalid request: initialize must not be in a batch"
    )


async def test_an_empty_array_is_refused() -> None:
    async with opened(Office().server, R) as client:
        (reply,) = await client.exchange([])
    assert reply["error"] == {
        "code": -32600,
        "message": "Invalid request: an empty batch",
    }
    assert reply["id"] is None


@pytest.mark.parametrize(
    "data",
    [
        b" [",
        b"[1,",
        b"[}",
        b'["\xff"]',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
)
async def test_an_array_that_is_not_valid_json_is_refused(data: bytes) -> None:
    async with opened(Office().server, R) as client:
        reply, pong = await client.exchange(data, ping(R))
    assert (reply["error"]["code"], reply["id"]) == (-32700, None)
    assert pong["id"] == "ping"


@pytest.mark.parametrize("revision", [revision for revision in ALL if revision != R])
@pytest.mark.parametrize("batch", [[], [ping(R, 99)], [[]]])
async def test_an_array_is_refused_in_any_other_revision(
    revision: str, batch: list[Any]
) -> None:
    async with opened(Office().server, revision) as client:
        client.send(json.dumps(batch).encode())
        (reply,) = await client.quiet()
        assert reply["error"] == {
            "code": -32600,
            "message": "Invalid request: $: expected object, got array",
        }
        assert len(await client.exchange(ping(revision))) == 1


async def test_an_array_is_refused_before_initialize() -> None:
    async with raw(Office().server, "2025-11-25") as client:
        (reply,) = await client.exchange([initialize(R)])
    assert reply["error"]["code"] == -32600


async def test_a_modern_request_in_an_array_is_answered() -> None:
    async with raw(Office().server) as client:
        await client.open(R)
        (replies,) = await client.exchange([modern(1, "tools/list"), ping(R, 2)])
    assert [reply["id"] for reply in replies] == [1, 2]


async def test_an_array_of_too_many_messages_is_refused_as_a_whole() -> None:
    async with opened(Office().server, R) as client:
        (reply,) = await client.exchange(b"[" + b"1," * 1_000_000 + b"1]")
        assert reply["error"]["code"] == -32600
        assert (
            "a batch of 1000001 messages; at most 10000 are taken"
            in reply["error"]["message"]
        )
        assert len(await client.exchange(ping(R))) == 1
