"""What clients make the server hold is charged, and the largest client gives way."""

import json
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Limits, Server
from mcp_trio.server.charges import REQUEST_SIZE, params_size
from tests.support.checked import MODERN, OPENING, opened, request

R = OPENING[-1]
NEWEST = MODERN[-1]
MIB = 2**20


class Waiting:
    """A server with a tool that waits, and one that does not."""

    def __init__(self, memory: int) -> None:
        self.server: Server[Any] = Server("waiting", limits=Limits(memory=memory))
        self.go = trio.Event()
        self.running = 0
        self.server.add_tool(self.wait)
        self.server.add_tool(self.quick)
        self.server.add_resource("notes://{name}", self.note)

    async def wait(self, text: str = "") -> str:
        self.running += 1
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return "waited"

    async def quick(self, text: str = "") -> str:
        return "done"

    async def note(self, name: str) -> str:
        return name


def call(id: object, name: str, size: int) -> dict[str, Any]:
    params = {"name": name, "arguments": {"text": "x" * size}}
    return request(id, "tools/call", params)


def test_decoded_params_count_more_than_their_bytes() -> None:
    assert params_size(b'{"a":[1,2]}') == 11 + 3 * 64 + 64 + 32
    nested = b"[" + b",".join([b"{}"] * 1000) + b"]"
    assert params_size(nested) > 96 * 1000


async def test_a_request_is_charged_while_it_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waiting = Waiting(100 * MIB)
    ledger = waiting.server.ledger
    async with opened(waiting.server, R) as client:
        await client.exchange(call(1, "quick", MIB))
        assert ledger.held == 0
        client.send(call(2, "wait", MIB))
        await trio.testing.wait_all_tasks_blocked()
        assert MIB + REQUEST_SIZE < ledger.held < MIB + 2 * REQUEST_SIZE
        assert ledger.by_kind["requests"] == ledger.held
        waiting.go.set()
        await client.replies(1)
        assert ledger.held == 0


async def test_the_newest_requests_of_the_largest_client_are_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waiting = Waiting(10 * MIB)
    async with opened(waiting.server, R) as small, trio.open_nursery() as nursery:
        small.send(call("small", "wait", MIB))
        await trio.testing.wait_all_tasks_blocked()
        async with opened(waiting.server, R) as large:
            for id in range(5):
                large.send(call(id, "wait", 2 * MIB))
                await trio.testing.wait_all_tasks_blocked()
            (refused,) = await large.replies(1)
            assert "memory is needed for other clients" in json.dumps(refused)
            assert refused["id"] == 4
            assert waiting.running == 5
            waiting.go.set()
            assert {reply["id"] for reply in await large.replies(4)} == {0, 1, 2, 3}
        (reply,) = await small.replies(1)
        assert reply["result"]["content"][0]["text"] == "waited"
        nursery.cancel_scope.cancel()
    assert waiting.server.ledger.held == 0


async def test_subscriptions_are_charged_until_they_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Waiting(100 * MIB).server
    uris = [f"notes://{number}".ljust(8000, "x") for number in range(10)]
    async with opened(server, R) as client:
        for uri in uris:
            await client.exchange(
                request(uri[:20], "resources/subscribe", {"uri": uri})
            )
        held = server.ledger.by_kind["subscriptions"]
        assert 80_000 < held < 90_000
        gone = {"uri": uris[0]}
        await client.exchange(request("u", "resources/unsubscribe", gone))
        assert server.ledger.held < held - 8000
    assert server.ledger.held == 0


async def test_a_listen_keeps_nothing_of_its_meta(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Waiting(100 * MIB).server
    async with opened(server, NEWEST) as client:
        prefix = "io.modelcontextprotocol/"
        meta = {
            prefix + "protocolVersion": NEWEST,
            prefix + "clientCapabilities": {"sampling": {"x": ["y"] * 10_000}},
            "more": "z" * MIB,
        }
        params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        client.send(request(1, "subscriptions/listen", params))
        await trio.testing.wait_all_tasks_blocked()
        assert server.ledger.by_kind["listens"] == REQUEST_SIZE
    assert server.ledger.held == 0
