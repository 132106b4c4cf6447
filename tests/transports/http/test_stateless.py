"""HTTP without sessions in every revision: `--stateless`."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from msgspec import Struct

from mcp_trio import Context, Server
from tests.support.http_wire import (
    HEADERS,
    HOSTS,
    Signals,
    make_server,
    message,
    request,
    site_on,
)

SESSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]
NEWEST = "2026-07-28"


class Answer(Struct):
    """A form."""

    yes: bool


def initialize(version: str) -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    return message("initialize", params)


def stated(version: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": version}


def server_with_everything(signals: Signals | None = None) -> Server:
    server = make_server(signals)

    @server.tool
    async def who(ctx: Context) -> str:
        return repr(ctx.client)

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Really?", Answer)).action

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.warning("careful")
        return "done"

    @server.resource("text://a")
    async def text() -> str:
        return "a"

    return server


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("asked", "agreed"),
    [*zip(SESSIONS, SESSIONS, strict=True), ("2024-11-05", "2025-11-25")],
)
async def test_initialize_names_no_session_and_promises_nothing_later(
    host: str, asked: str, agreed: str
) -> None:
    async with site_on(host, server_with_everything(), stateless=True) as there:
        reply = await there.post(initialize(asked))
        assert "mcp-session-id" not in reply.headers
        assert reply.json["result"]["protocolVersion"] == agreed
        capabilities = reply.json["result"]["capabilities"]
        assert capabilities == {"tools": {}, "resources": {}}
        noted = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await there.post(noted, stated(agreed))).status == 202


async def test_the_newest_revision_promises_nothing_later_either() -> None:
    async with site_on("native", server_with_everything(), stateless=True) as there:
        reply = await there.modern("server/discover")
        assert reply.json["result"]["capabilities"] == {"tools": {}, "resources": {}}
        versions = reply.json["result"]["supportedVersions"]
        assert versions == [NEWEST, *reversed(SESSIONS)]


@pytest.mark.parametrize("version", SESSIONS)
async def test_requests_stand_for_themselves(version: str) -> None:
    call = message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    async with site_on("native", server_with_everything(), stateless=True) as there:
        for headers in (
            stated(version),
            {**stated(version), "Mcp-Session-Id": "of another process"},
        ):
            reply = await there.post(call, headers)
            assert reply.json["result"]["content"][0]["text"] == "3"
        who = await there.post(message("tools/call", {"name": "who"}), stated(version))
        assert who.json["result"]["content"][0]["text"] == "None"


async def test_a_request_that_states_no_revision_is_of_the_first_with_this_transport() -> (
    None
):
    call = message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    async with site_on("native", server_with_everything(), stateless=True) as there:
        assert (await there.post([call, call])).json[1][
            "id"
        ] == 1  # only it has batches
        assert (await there.post([call], stated("2025-11-25"))).status == 400


async def test_an_unknown_revision_is_refused_with_those_that_are_known() -> None:
    async with site_on("native", server_with_everything(), stateless=True) as there:
        for version in ("2024-11-05", "never"):
            reply = await there.post(message("tools/list"), stated(version))
            assert reply.status == 400
            said = reply.json["error"]["message"]
            assert f"{version!r} is not one of {NEWEST}, 2025-11-25" in said


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_no_stream_and_no_session_to_end(host: str, method: str) -> None:
    async with site_on(host, server_with_everything(), stateless=True) as there:
        for headers in ({}, {"Accept": "text/event-stream"}, stated(SESSIONS[0])):
            reply = await there.send(method, "/mcp", headers)
            assert (reply.status, reply.headers["allow"]) == (405, "POST")
        assert (await there.send("GET", "/sse")).status == 404
        assert (await there.send("POST", "/messages")).status == 404


@pytest.mark.parametrize("version", SESSIONS)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "text://a"}),
        ("resources/unsubscribe", {"uri": "text://a"}),
    ],
)
async def test_what_would_have_to_be_kept_is_not_a_method(
    version: str, method: str, params: dict[str, str]
) -> None:
    async with site_on("native", server_with_everything(), stateless=True) as there:
        reply = await there.post(message(method, params), stated(version))
        assert reply.json["error"]["code"] == -32601


async def test_nothing_can_be_listened_to() -> None:
    async with site_on("native", server_with_everything(), stateless=True) as there:
        filter = {"notifications": {"toolsListChanged": True}}
        reply = await there.modern("subscriptions/listen", filter)
        assert reply.json["error"]["code"] == -32601


@pytest.mark.parametrize("version", SESSIONS)
async def test_log_messages_are_not_sent(version: str) -> None:
    async with site_on("native", server_with_everything(), stateless=True) as there:
        reply = await there.post(
            message("tools/call", {"name": "talk"}), stated(version)
        )
        assert reply.headers["content-type"] == "application/json"
        assert reply.json["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("version", SESSIONS)
async def test_a_question_fails_with_the_reason(version: str) -> None:
    async with site_on("native", server_with_everything(), stateless=True) as there:
        reply = await there.post(
            message("tools/call", {"name": "ask"}), stated(version)
        )
        result = reply.json["result"]
        assert result["isError"]
        said = result["content"][0]["text"]
        assert said == (
            f"elicitation/create needs a session in revision {version}, but this "
            "server is stateless"
        )
        answer = {"jsonrpc": "2.0", "id": "ask-1", "result": {}}
        reply = await there.post(answer, stated(version))
        assert reply.status == 400
        assert "the server asks nothing" in reply.json["error"]["message"]


async def test_a_stream_has_no_event_ids_and_ends_with_its_client() -> None:
    signals = Signals()
    call = message(
        "tools/call", {"name": "step_and_wait", "_meta": {"progressToken": "p"}}
    )
    async with site_on(
        "native", server_with_everything(signals), stateless=True
    ) as there:
        async with there.wire() as wire:
            body = json.dumps(call).encode()
            headers = {**HEADERS, **stated("2025-11-25")}
            await wire.send(request("POST", "/mcp", headers, body))
            head = await wire.head()
            assert head.headers["content-type"] == "text/event-stream"
            event = await wire.until(b"\n\n")
            assert b"notifications/progress" in event
            assert b"id:" not in event
        with trio.fail_after(30):
            await signals.cleaned.wait()


async def test_websocket_is_as_ever() -> None:
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    served = site_on("native", server_with_everything(), stateless=True)
    async with served as there, there.wire() as wire:
        await wire.send(request("GET", "/mcp", upgrade))
        assert (await wire.head()).status == 101
