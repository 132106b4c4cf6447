"""The replies to a batch are bounded, and charged to its client."""

import json
from typing import Any

import pytest
import trio

from mcp_trio import Limits, Server
from mcp_trio.server.batch_replies import MOST_BYTES
from tests.support.http_wire import HEADERS, Response, message, site

SIZE = 4 * 2**20


def make_server(memory: int) -> Server[Any]:
    server = Server("batches", limits=Limits(memory=memory))

    @server.tool
    async def large() -> str:
        return "x" * SIZE

    @server.tool
    async def small() -> str:
        return "x"

    return server


async def send_batch(server: Server[Any], names: list[str]) -> Response:
    batch = [
        message("tools/call", {"name": name, "arguments": {}}, id)
        for id, name in enumerate(names)
    ]
    async with site(server) as there:
        return await there.post(
            batch, {**HEADERS, "MCP-Protocol-Version": "2025-03-26"}
        )


@pytest.mark.slow
async def test_replies_that_do_not_fit_into_the_bound_are_errors() -> None:
    response = await send_batch(make_server(2**28), ["large"] * 6 + ["small"])
    assert len(response.body) <= MOST_BYTES + 4096
    replies = {reply["id"]: reply for reply in response.json}
    assert sorted(replies) == [0, 1, 2, 3, 4, 5, 6]
    refused = [reply for reply in replies.values() if "error" in reply]
    assert len(refused) == 3
    assert "more than 16 MiB" in refused[0]["error"]["message"]
    assert "result" in replies[6]


async def test_replies_to_a_batch_whose_memory_is_needed_are_given_up() -> None:
    server = make_server(2 * SIZE)
    response = await send_batch(server, ["large"] * 4)
    assert "memory is needed for other clients" in response.json["error"]["message"]
    assert server.ledger.by_kind["replies"] == 0


async def test_a_batch_whose_memory_is_needed_is_cancelled() -> None:
    server = make_server(2 * SIZE)

    @server.tool
    async def wait() -> str:
        await trio.sleep_forever()

    response = await send_batch(server, ["wait", *["large"] * 4])
    assert json.loads(response.body)["error"]
