"""Older revisions over HTTP without a session: the header names the revision."""

import json

import pytest
import trio

from mcp_trio import Context, Server
from mcp_trio.transports.http.sessions import HttpSession
from tests.support.http_wire import HEADERS, Signals, message, request, site
from tests.support.http_wire import make_server as make_wait
from tests.support.reachable import reachable

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
OLDER = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def said(version: str) -> dict[str, str]:
    return {**HEADERS, "MCP-Protocol-Version": version}


def make_server() -> Server:
    server = Server("sessionless")

    @server.tool
    async def add(a: int, b: int, ctx: Context) -> str:
        """Add two numbers."""
        await ctx.log("info", "adding")
        await ctx.progress(1, 1)
        return str(a + b)

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        return str(await ctx.elicit("Sure?", bool))

    return server


@pytest.mark.parametrize("version", OLDER)
async def test_a_request_that_says_its_revision_is_served_in_it_and_makes_no_session(
    version: str,
) -> None:
    async with site(make_server()) as there:
        response = await there.post(message("tools/call", ADD), said(version))
        assert response.status == 200
        result = (response.messages[-1] if response.events else response.json)["result"]
        assert result["content"] == [{"type": "text", "text": "3"}]
        assert "resultType" not in result
        assert "mcp-session-id" not in response.headers
        assert (await there.post(message("ping"), said(version))).json["result"] == {}
        assert (await there.post(message("server/discover"), said(version))).json[
            "error"
        ]["code"] == -32601


async def test_an_opening_that_says_its_revision_opens_a_session_all_the_same() -> None:
    opening = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    async with site(make_server()) as there:
        opened = await there.post(message("initialize", opening), said("2025-11-25"))
        session = {
            **said("2025-06-18"),
            "Mcp-Session-Id": opened.headers["mcp-session-id"],
        }
        assert opened.json["result"]["protocolVersion"] == "2025-06-18"
        assert (await there.post(message("ping"), session)).status == 200
        assert (
            await there.post(
                message("ping"), {**session, "MCP-Protocol-Version": "2025-11-25"}
            )
        ).status == 400


async def test_only_requests_and_notifications_do_without_a_session() -> None:
    async with site(make_server()) as there:
        headers = said("2025-11-25")
        assert (
            await there.post(
                {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers
            )
        ).status == 202
        assert (
            await there.post({"jsonrpc": "2.0", "id": 1, "result": {}}, headers)
        ).status == 400
        assert (await there.send("GET", "/mcp", headers)).status == 400
        assert (await there.send("DELETE", "/mcp", headers)).status == 400
        assert (await there.post(message("ping"), said("1900-01-01"))).status == 400


async def test_nothing_is_kept_of_what_has_no_session() -> None:
    server = make_server()
    server.add_resource("notes://one", lambda: "text", name="one")
    headers = said("2025-11-25")
    async with site(server) as there:
        assert (
            await there.post(
                {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers
            )
        ).status == 202
        refused = await there.post(
            message("resources/subscribe", {"uri": "notes://one"}), headers
        )
        assert "subscribing needs a session" in refused.json["error"]["message"]
        assert reachable(server.subscriptions, HttpSession) == []


async def test_a_batch_is_answered_in_revisions_that_have_batches() -> None:
    async with site(make_server()) as there:
        batch = [message("ping", id=1), message("ping", id=2)]
        assert len((await there.post(batch, said("2025-03-26"))).json) == 2
        assert (await there.post(batch, said("2025-11-25"))).status == 400


async def test_a_question_is_refused_for_nothing_is_known_of_what_the_client_can() -> (
    None
):
    async with site(make_server()) as there:
        response = await there.post(
            message("tools/call", {"name": "ask", "arguments": {}}), said("2025-11-25")
        )
        assert "elicitation" in response.json["result"]["content"][0]["text"]
        assert response.json["result"]["isError"]


async def test_closing_the_connection_cancels() -> None:
    """Without a session, no client can reconnect for the result."""
    signals = Signals()
    body = json.dumps(message("tools/call", {"name": "wait", "arguments": {}})).encode()
    async with site(make_wait(signals)) as there:
        async with there.wire() as wire:
            await wire.send(request("POST", "/mcp", said("2025-11-25"), body))
            await signals.begun.wait()
        with trio.fail_after(30):
            await signals.cleaned.wait()
