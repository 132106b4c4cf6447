"""State that a client carries is accepted only by the server that signed it."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from mcp_trio import Context, Server
from tests.support.checked import NEWEST, modern, raw

SECRET = "one secret that two servers have in common"


class Booking(msgspec.Struct):
    seats: int


def _server(name: str, done: list[str]) -> Server:
    server = Server(name, secret=SECRET)

    @server.tool
    async def book(ctx: Context, where: str = "here") -> str:
        async def step() -> str:
            done.append(name)
            return f"done by {name}"

        result = await ctx.once("step", step)
        await ctx.elicit("Seats?", Booking)
        return result

    return server


async def _ask(server: Server, **params: Any) -> Any:
    capabilities = {"elicitation": {"form": {}}}
    about = {"name": "book", "arguments": {"where": "here"}, **params}
    async with raw(server, NEWEST) as client:
        message = modern(1, "tools/call", about, clientCapabilities=capabilities)
        (reply,) = await client.exchange(message)
    return reply


async def test_a_server_does_not_accept_the_state_of_another_with_the_same_secret() -> (
    None
):
    done: list[str] = []
    first = await _ask(_server("a", done))
    state = first["result"]["requestState"]
    (key,) = first["result"]["inputRequests"]
    answers = {key: {"action": "accept", "content": {"seats": 2}}}
    at_other = await _ask(
        _server("b", done), requestState=state, inputResponses=answers
    )
    assert at_other["error"]["message"].endswith("belongs to another request")
    # Another process of the same server continues, and does not repeat the step.
    at_same = await _ask(_server("a", done), requestState=state, inputResponses=answers)
    assert at_same["result"]["content"][0]["text"] == "done by a"
    assert done == ["a"]


def _asking() -> Server:
    """Return a server whose tool, prompt and resources ask the same question."""
    server = Server("x", secret=SECRET)

    async def book(ctx: Context, where: str) -> str:
        await ctx.elicit("Seats?", Booking)
        return "booked"

    server.add_tool(book)
    server.add_prompt(book)
    server.add_resource("seats://{where}", book)
    return server


BOOK = {"name": "book", "arguments": {"where": "here"}}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (("tools/call", BOOK), ("prompts/get", BOOK)),
        (
            ("resources/read", {"uri": "seats://here"}),
            ("resources/read", {"uri": "seats://there"}),
        ),
    ],
    ids=["another method", "another resource"],
)
async def test_a_state_is_refused_for_another_request(
    asked: tuple[str, dict[str, Any]], answered: tuple[str, dict[str, Any]]
) -> None:
    capabilities = {"elicitation": {"form": {}}}
    async with raw(_asking(), NEWEST) as client:

        async def ask(method: str, params: dict[str, Any]) -> Any:
            message = modern(1, method, params, clientCapabilities=capabilities)
            (reply,) = await client.exchange(message)
            return reply

        first = (await ask(*asked))["result"]
        (key,) = first["inputRequests"]
        more = {
            "requestState": first["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"seats": 2}}},
        }
        method, params = answered
        refused = await ask(method, {**params, **more})
        assert refused["error"]["message"].endswith("belongs to another request")
        method, params = asked
        assert "booked" in str((await ask(method, {**params, **more}))["result"])


@pytest.mark.parametrize("secret", ["x", b"x", "", "é" * 15])
def test_a_short_secret_is_refused(secret: str | bytes) -> None:
    with pytest.raises(
        ValueError, match=r"Server\(secret\): expected at least 32 bytes"
    ):
        Server("x", secret=secret)


def test_a_secret_of_32_bytes_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Server("x", secret="é" * 16).environment.secret == ("é" * 16).encode()
    monkeypatch.setenv("MCP_TRIO_SECRET", "s" * 32)
    assert Server("x").environment.secret == b"s" * 32


def test_a_short_secret_in_the_environment_is_one_line_of_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_TRIO_SECRET", "x")
    process = subprocess.run(
        [sys.executable, "-m", "mcp_trio", "run"],
        input="",
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert process.returncode == 2
    (line,) = process.stderr.splitlines()
    assert "MCP_TRIO_SECRET: expected at least 32 bytes, got 1; generate one: " in line
