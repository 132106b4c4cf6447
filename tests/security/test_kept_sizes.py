"""Clients cannot make the server keep large ids, URIs and capabilities."""

import json
from typing import Any

import pytest
from msgspec import UNSET

from mcp_trio import Server
from mcp_trio.protocol.jsonrpc import MAX_ID
from mcp_trio.protocol.params import MAX_URI, MAX_URIS
from mcp_trio.protocol.session import Call, Refusal, Session
from tests.support.checked import MODERN, OPENING, opened, request

NEWEST = MODERN[-1]


def receive(session: Session, message: dict[str, Any]) -> Any:
    return session.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())


def make_session() -> Session:
    return Session(Server("kept").revisions)


def initialize(capabilities: dict[str, Any]) -> dict[str, Any]:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "client", "version": "1"},
    }
    return {"id": 1, "method": "initialize", "params": params}


def test_a_session_keeps_only_the_known_flags_of_capabilities() -> None:
    nested = [{"deep": ["x" * 100] * 1000}]
    session = make_session()
    event = receive(
        session,
        initialize(
            {
                "sampling": {"tools": nested, "unknown": nested},
                "roots": {"listChanged": True, "more": nested},
                "elicitation": {"form": {"x": nested}, "url": {}},
                "experimental": {"x": nested},
            }
        ),
    )
    assert isinstance(event, Call)
    kept = session.capabilities
    assert kept.sampling == {"tools": {}}
    assert kept.roots == {"listChanged": True}
    assert kept.elicitation == {"form": {}, "url": {}}
    assert kept.extensions is UNSET


def test_an_id_has_at_most_256_characters() -> None:
    session = make_session()
    assert isinstance(receive(session, {"id": "i" * 256, "method": "ping"}), Call)
    event = receive(session, {"id": "i" * (MAX_ID + 1), "method": "ping"})
    assert isinstance(event, Refusal)
    reply = json.loads(event.data)
    assert reply["error"]["code"] == -32600
    assert "$.id: expected string of length <= 256" in reply["error"]["message"]
    # The id is not sent back.
    assert reply.get("id") is None


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe"])
async def test_a_uri_has_at_most_8_kib(method: str) -> None:
    server = Server("kept")

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        return name

    async with opened(server, OPENING[-1]) as client:
        for size, problem in [(MAX_URI, ""), (MAX_URI + 1, "length <= 8192")]:
            uri = "notes://".ljust(size, "x")
            (reply,) = await client.exchange(request(size, method, {"uri": uri}))
            assert problem in reply.get("error", {}).get("message", "")
            assert ("error" in reply) == bool(problem)


def test_a_subscription_names_at_most_a_thousand_uris() -> None:
    prefix = "io.modelcontextprotocol/"
    meta = {prefix + "protocolVersion": NEWEST, prefix + "clientCapabilities": {}}
    params: dict[str, Any] = {
        "_meta": meta,
        "notifications": {"resourceSubscriptions": ["notes://1"] * (MAX_URIS + 1)},
    }
    event = receive(
        make_session(), {"id": 1, "method": "subscriptions/listen", "params": params}
    )
    assert isinstance(event, Refusal)
    assert "of length <= 1000" in json.loads(event.data)["error"]["message"]
