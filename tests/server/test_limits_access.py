"""With access control, each principal has its own limits on every transport."""

import json

import pytest

from mcp_trio import Access, Limits
from tests.support.access_sites import (
    ADMIN,
    A,
    B,
    calling,
    guarded,
    make_server,
    modern,
    post_modern,
    verify,
)


def told(reply: dict) -> str:
    return (
        reply["result"]["content"][0]["text"]
        if "result" in reply
        else reply["error"]["message"]
    )


@pytest.mark.parametrize("host", ["native", "hypercorn"])
async def test_another_principal_is_not_slowed(host: str) -> None:
    server = make_server(access=Access(verify), limits=Limits(rate="10/h"))
    async with guarded(server, host) as there:

        async def burst(token: str, count: int) -> int:
            """Return how many of these calls are answered."""
            replies = [
                await post_modern(there.by(token), calling("add", a=1, b=2))
                for _ in range(count)
            ]
            return [told(reply.json) for reply in replies].count("3")

        assert await burst(A, 25) == 10
        assert await burst(ADMIN, 5) == 0  # the same principal, by another token
        assert await burst(B, 25) == 10


async def test_a_principal_has_one_rate_on_all_ways_in() -> None:
    server = make_server(access=Access(verify), limits=Limits(rate="10/h"))
    async with guarded(server) as there:
        for _ in range(4):
            await post_modern(there, calling("add", a=1, b=2))
        async with there.legacy() as stream:
            answers = [
                told(await stream.ask(calling("add", id, a=1, b=2))) for id in range(4)
            ]
        assert answers == ["3"] * 4
        async with there.websocket() as websocket:
            answers = []
            for id in range(4):
                await websocket.send_message(
                    json.dumps(modern(calling("add", id, a=1, b=2)))
                )
                answers.append(told(json.loads(await websocket.get_message())))
        assert answers[:2] == ["3"] * 2
        assert all(
            text.startswith("Too many calls: 10 an hour are allowed")
            for text in answers[2:]
        )
        async with there.by(B).websocket() as websocket:
            await websocket.send_message(json.dumps(modern(calling("add", a=1, b=2))))
            assert told(json.loads(await websocket.get_message())) == "3"


@pytest.mark.parametrize("host", ["native", "hypercorn"])
@pytest.mark.parametrize(
    ("token", "why"),
    [(None, "Authorization: expected Bearer TOKEN"), ("swordfish", "")],
)
async def test_a_denied_request_is_logged_without_its_token(
    host: str, token: str | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with guarded(host=host, token=token) as there:
        assert (await post_modern(there, calling("add", a=1, b=2))).status == 401
    (line,) = [
        record.getMessage() for record in caplog.records if record.name == "mcp_trio"
    ]
    assert line.startswith(f"refused: 127.0.0.1 (401): {why}")
    assert "swordfish" not in caplog.text
