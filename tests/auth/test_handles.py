"""Handles, such as sessions and sealed states, are refused from other principals."""

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from mcp_trio import Context, Server
from mcp_trio.client.event_parser import EventParser
from mcp_trio.transports.http.exchange import Exchange
from mcp_trio.transports.http.messages import Head, Reply
from mcp_trio.transports.http.rules import MCP
from mcp_trio.transports.http.service import Service
from tests.support.access_sites import (
    ADMIN,
    HOSTS,
    TOKENS,
    A,
    B,
    Bearer,
    calling,
    guarded,
    make_server,
    modern,
    post_modern,
    verify,
)
from tests.support.http_wire import HEADERS, Signals, message, request

each_host = pytest.mark.parametrize("host", HOSTS)
CANCELLING = {
    "jsonrpc": "2.0",
    "method": "notifications/cancelled",
    "params": {"requestId": 7},
}


@each_host
@pytest.mark.parametrize(
    "version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
)
async def test_cve_2026_52869_a_session_is_not_found_by_another_token(
    host: str, version: str
) -> None:
    async with guarded(host=host) as there:
        session = await there.open_session(version)
        other = there.by(B)
        for body in (
            message("ping"),
            calling("add", a=1, b=2),
            message("tools/list"),
            CANCELLING,
        ):
            refused = await other.post(body, session)
            unknown = await other.post(body, {**session, "Mcp-Session-Id": "unknown"})
            assert (refused.status, refused.body) == (404, unknown.body)
        assert (await there.post(message("ping"), session)).status == 200
        assert (
            await there.by(ADMIN).post(message("ping"), session)
        ).status == 200  # a's too


@each_host
async def test_cve_2026_52870_the_stream_of_a_session_is_not_found(host: str) -> None:
    async with guarded(host=host) as there:
        session = await there.open_session()
        assert (await there.by(B).send("GET", "/mcp", session)).status == 404


@asynccontextmanager
async def cut_off(there: Bearer, signals: Signals) -> Any:
    """Start a call by A on a stream that A has lost. Yields the session."""
    session = await there.open_session()
    body = calling("wait", 7)
    body["params"]["_meta"] = {"progressToken": "p"}
    async with there.wire() as wire:
        await wire.send(
            request("POST", "/mcp", {**session, **there.own}, json.dumps(body).encode())
        )
        await wire.head()
        await signals.begun.wait()
    yield session


@each_host
async def test_cve_2026_52870_what_a_stream_has_left_is_not_found_by_its_last_event_id(
    host: str,
) -> None:
    signals = Signals()
    async with (
        guarded(make_server(signals, access=verify), host) as there,
        cut_off(there, signals) as session,
    ):
        signals.go.set()
        last = {**session, "Last-Event-ID": "0-0"}
        refused = await there.by(B).send("GET", "/mcp", last)
        assert (refused.status, b"went" in refused.body) == (404, False)
        assert b"went" in (await there.send("GET", "/mcp", last)).body


@each_host
async def test_cve_2026_52870_a_session_cannot_be_ended(host: str) -> None:
    async with guarded(host=host) as there:
        session = await there.open_session()
        assert (await there.by(B).send("DELETE", "/mcp", session)).status == 404
        assert (await there.post(message("ping"), session)).status == 200


@each_host
async def test_cve_2026_52870_a_request_cannot_be_cancelled(host: str) -> None:
    signals = Signals()
    async with (
        guarded(make_server(signals, access=verify), host) as there,
        cut_off(there, signals) as session,
    ):
        assert (await there.by(B).post(CANCELLING, session)).status == 404
        assert not signals.cleaned.is_set()
        assert (await there.post(CANCELLING, session)).status == 202
        with trio.fail_after(30):
            await signals.cleaned.wait()


@each_host
async def test_cve_2026_52870_a_request_without_a_session_cannot_be_cancelled_by_its_id(
    host: str,
) -> None:
    signals = Signals()
    async with (
        guarded(make_server(signals, access=verify), host) as there,
        trio.open_nursery() as nursery,
    ):

        @nursery.start_soon
        async def called() -> None:
            reply = (await post_modern(there, calling("wait", 7))).json
            assert reply["result"]["content"][0]["text"] == "went"

        await signals.begun.wait()
        stateless = {
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "notifications/cancelled",
        }
        assert (await there.by(B).post(CANCELLING, stateless)).status == 202
        signals.go.set()


@each_host
async def test_cve_2026_52870_messages_to_a_stream_of_sse_are_not_taken(
    host: str,
) -> None:
    async with guarded(host=host) as there, there.legacy() as stream:
        assert await stream.post(calling("add", a=1, b=2), B) == 404
        assert (
            await stream.post(
                {"jsonrpc": "2.0", "method": "notifications/initialized"}, B
            )
            == 404
        )
        assert (await stream.ask(message("ping", id="mine")))["id"] == "mine"


async def test_a_stream_of_sse_takes_no_token_that_may_less_than_the_one_it_was_opened_by() -> (
    None
):
    async with guarded(token=ADMIN) as there, there.legacy() as stream:
        assert await stream.post(calling("purge"), A) == 404
    async with guarded(token=A) as there, there.legacy() as stream:
        assert await stream.post(calling("purge", 5), ADMIN) == 202
        reply = json.loads((await stream.wire.event(stream.parser)).data)
        assert reply["error"]["message"] == "Unknown tool: purge"


def asking_server() -> Server:
    server = Server("asks", access=verify)

    @server.tool
    async def book(context: Context) -> str:
        return f"booked {(await context.roots())[0].uri}"

    return server


ABLE = {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}


@each_host
async def test_cve_2026_52870_a_sealed_state_is_refused_from_another_principal(
    host: str,
) -> None:
    async with guarded(asking_server(), host) as there:
        body = calling("book")
        body["params"]["_meta"] = ABLE
        asked = (await post_modern(there, body)).json["result"]
        (key,) = asked["inputRequests"]
        answers = {key: {"roots": [{"uri": "file:///home"}]}}
        body["params"] |= {
            "requestState": asked["requestState"],
            "inputResponses": answers,
        }
        refused = (await post_modern(there.by(B), body)).json["error"]
        assert (refused["code"], "requestState" in refused["message"]) == (-32602, True)
        booked = (await post_modern(there.by(ADMIN), body)).json["result"]
        assert booked["content"][0]["text"] == "booked file:///home"


@each_host
async def test_cve_2026_52870_a_question_cannot_be_answered(host: str) -> None:
    async with guarded(asking_server(), host) as there, there.wire() as wire:
        session = await there.open_session(capabilities={"roots": {}})
        await wire.send(
            request(
                "POST",
                "/mcp",
                {**session, **there.own},
                json.dumps(calling("book")).encode(),
            )
        )
        await wire.head()
        parser = EventParser()
        while not (event := await wire.event(parser)).data:
            pass
        question = json.loads(event.data)["id"]
        for token, uri, status in ((B, "file:///evil", 404), (A, "file:///home", 202)):
            answer = {
                "jsonrpc": "2.0",
                "id": question,
                "result": {"roots": [{"uri": uri}]},
            }
            assert (await there.by(token).post(answer, session)).status == status
        reply = json.loads((await wire.event(parser)).data)
        assert reply["result"]["content"][0]["text"] == "booked file:///home"


@each_host
async def test_cve_2026_52870_what_a_session_subscribes_to_cannot_be_changed(
    host: str,
) -> None:
    async with guarded(host=host) as there, there.wire() as wire:
        session = await there.open_session("2025-06-18")
        await there.post(
            message("resources/subscribe", {"uri": "notes://one"}), session
        )
        assert (
            await there.by(B).post(
                message("resources/unsubscribe", {"uri": "notes://one"}), session
            )
        ).status == 404
        await wire.send(request("GET", "/mcp", {**session, **there.own}))
        await wire.head()
        there.server.resource_updated("notes://one")
        assert json.loads((await wire.event(EventParser())).data)["params"] == {
            "uri": "notes://one"
        }


@each_host
async def test_cve_2026_52870_a_subscription_cannot_be_ended_by_its_id(
    host: str,
) -> None:
    async with guarded(host=host) as there, there.wire() as wire:
        body = modern(
            message(
                "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 7
            )
        )
        headers = {
            **HEADERS,
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "subscriptions/listen",
            **there.own,
        }
        await wire.send(request("POST", "/mcp", headers, json.dumps(body).encode()))
        await wire.head()
        parser = EventParser()
        await wire.event(parser)
        stateless = {
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "notifications/cancelled",
        }
        assert (await there.by(B).post(CANCELLING, stateless)).status == 202
        there.server.remove_tool("add")
        heard = json.loads((await wire.event(parser)).data)
        assert heard["method"] == "notifications/tools/list_changed"


async def test_cve_2026_52870_another_connection_cannot_cancel_over_websocket() -> None:
    signals = Signals()
    server = make_server(signals, access=verify)
    async with (
        guarded(server) as there,
        there.websocket() as one,
        there.by(B).websocket() as other,
    ):
        await one.send_message(json.dumps(modern(calling("wait", 7))))
        await signals.begun.wait()
        await other.send_message(json.dumps(CANCELLING))
        await other.send_message(json.dumps(modern(message("tools/list"))))
        await other.get_message()
        signals.go.set()
        assert (
            json.loads(await one.get_message())["result"]["content"][0]["text"]
            == "went"
        )


# A session's requests are each made with the scopes of their own token


@each_host
async def test_a_session_gives_no_request_more_than_its_token_does(host: str) -> None:
    async with guarded(host=host, token=ADMIN) as there:
        session = await there.open_session()
        assert "result" in (await there.post(calling("purge"), session)).json
        refused = (await there.by(A).post(calling("purge"), session)).json["error"]
        assert refused["message"] == "Unknown tool: purge"
        assert "result" in (await there.post(calling("purge"), session)).json


async def test_a_batch_is_carried_out_for_the_token_that_it_came_with() -> None:
    service = Service(make_server())
    session = {b"mcp-protocol-version": b"2025-03-26"}

    def head(token: str) -> Head:
        return Head(b"POST", b"/mcp", session, route=MCP, principal=TOKENS[token])

    opening = {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    reply = service.answer(head(A), json.dumps(message("initialize", opening)).encode())
    assert isinstance(reply, Reply)
    session[b"mcp-session-id"] = dict(reply.headers)[b"Mcp-Session-Id"]
    replies = {}

    async def post(token: str) -> None:
        batch = json.dumps([calling("purge", number) for number in range(3)]).encode()
        with trio.CancelScope() as scope:
            exchange = service.answer(head(token), batch)
            assert isinstance(exchange, Exchange)
            await exchange.rest(scope)
        response = await exchange.response()
        assert isinstance(response, Reply)
        replies[token] = ["error" in one for one in json.loads(response.body)]

    async with service.server.running(), trio.open_nursery() as nursery:
        for token in (A, ADMIN):
            nursery.start_soon(post, token)
    assert replies == {A: [True] * 3, ADMIN: [False] * 3}
