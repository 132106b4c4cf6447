"""2026-07-28 over HTTP: headers match the body, and disconnecting cancels."""

import base64
import json

import pytest
import trio

from mcp_trio import Server
from tests.support.http_wire import (
    HEADERS,
    MODERN,
    VENDOR,
    Signals,
    Site,
    make_server,
    message,
    modern_headers,
    request,
    site,
)
from tests.support.oracle import Oracle

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


async def without(there: Site, name: str) -> tuple[int, int]:
    body = message("tools/call", {**ADD, "_meta": MODERN})
    headers = modern_headers(body)
    del headers[name]
    return await code_and_status(there, body, headers)


async def code_and_status(
    there: Site, body: object, headers: dict[str, str]
) -> tuple[int, int]:
    response = await there.post(body, headers)
    return response.json["error"]["code"], response.status


async def test_a_call_needs_no_session_and_makes_none() -> None:
    async with site(make_server()) as there:
        response = await there.modern("tools/call", ADD)
        assert response.json["result"]["resultType"] == "complete"
        assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("name", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
async def test_missing_headers(name: str) -> None:
    async with site(make_server()) as there:
        assert await without(there, name) == (-32020, 400)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MCP-Protocol-Version", "2025-11-25"),
        ("MCP-Protocol-Version", "1900-01-01"),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Method", "Tools/Call"),
        ("Mcp-Name", "echo"),
        ("Mcp-Name", "=?base64?!?="),
    ],
)
async def test_headers_that_contradict_the_body_are_refused(
    name: str, value: str
) -> None:
    async with site(make_server()) as there:
        body = message("tools/call", {**ADD, "_meta": MODERN})
        assert await code_and_status(
            there, body, {**modern_headers(body), name: value}
        ) == (-32020, 400)


async def test_names_may_be_encoded_and_header_names_have_any_case() -> None:
    server = make_server()
    server.add_resource("notes://ünï", lambda: "text")
    async with site(server) as there:
        encoded = f"=?base64?{base64.b64encode('notes://ünï'.encode()).decode()}?="
        assert (
            await there.modern(
                "resources/read", {"uri": "notes://ünï"}, **{"Mcp-Name": encoded}
            )
        ).status == 200
        body = message("tools/call", {**ADD, "_meta": MODERN})
        lower = {name.lower(): value for name, value in modern_headers(body).items()}
        assert (
            await there.send("POST", "/mcp", lower, json.dumps(body).encode())
        ).status == 200


async def test_versions_that_are_not_spoken() -> None:
    async with site(make_server()) as there:
        body = message(
            "server/discover",
            {"_meta": {**MODERN, f"{VENDOR}protocolVersion": "1900-01-01"}},
        )
        headers = {**modern_headers(body), "MCP-Protocol-Version": "1900-01-01"}
        response = await there.post(body, headers)
        assert (response.status, response.json["error"]["code"]) == (400, -32022)
        assert "2026-07-28" in response.json["error"]["data"]["supported"]
        headers["MCP-Protocol-Version"] = "2026-07-28"
        assert await code_and_status(there, body, headers) == (-32020, 400)


@pytest.mark.parametrize(
    ("method", "meta", "expected"),
    [
        ("nosuch", MODERN, (-32601, 404)),
        ("initialize", MODERN, (-32601, 404)),
        ("ping", MODERN, (-32601, 404)),
        ("ping", {}, (-32601, 404)),
        ("tools/list", {}, (-32602, 400)),
        ("tools/list", {f"{VENDOR}protocolVersion": "2026-07-28"}, (-32602, 400)),
    ],
)
async def test_statuses_of_errors(
    method: str, meta: object, expected: tuple[int, int]
) -> None:
    async with site(make_server()) as there:
        body = message(method, {"_meta": meta})
        assert await code_and_status(there, body, modern_headers(body)) == expected


async def test_an_unknown_tool_is_a_plain_error() -> None:
    async with site(make_server()) as there:
        response = await there.modern("tools/call", {"name": "nosuch"})
        assert (response.status, response.json["error"]["code"]) == (200, -32602)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_only_post(method: str) -> None:
    async with site(make_server()) as there:
        response = await there.send(
            method,
            "/mcp",
            {"MCP-Protocol-Version": "2026-07-28", "Mcp-Session-Id": "x"},
        )
        assert (response.status, response.headers["allow"]) == (405, "POST")


async def test_notifications_are_taken_and_responses_are_not() -> None:
    async with site(make_server()) as there:
        version = {"MCP-Protocol-Version": "2026-07-28"}
        note = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 1},
        }
        assert (await there.post(note, version)).status == 202
        assert (
            await there.post({"jsonrpc": "2.0", "id": 1, "result": {}}, version)
        ).status == 400


async def test_streams_have_no_ids_to_resume_from() -> None:
    async with site(make_server()) as there:
        response = await there.modern(
            "tools/call", {"name": "steps", "_meta": {"progressToken": 1}}
        )
        assert response.headers["content-type"] == "text/event-stream"
        assert b"id:" not in response.body.replace(b'"id":', b"")
        assert len(response.messages) == 4


async def test_a_subscription_is_a_stream() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        wanted = {"notifications": {"toolsListChanged": True}, "_meta": MODERN}
        body = message("subscriptions/listen", wanted)
        await wire.send(
            request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
        )
        await wire.head()
        assert b"acknowledged" in await wire.chunk()
        there.server.remove_tool("add")
        assert b"list_changed" in await wire.chunk()
        json_alone = {**modern_headers(body), "Accept": "application/json"}
        assert (await there.post(body, json_alone)).status == 406


MIRRORED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "n": {"type": "integer"},
    },
}


@pytest.mark.parametrize(
    ("arguments", "headers", "status"),
    [
        ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, 200),
        ({"region": "eu"}, {"mcp-param-region": "=?base64?ZXU=?="}, 200),
        ({"region": "eu"}, {"Mcp-Param-Region": "us"}, 400),
        ({"region": "eu"}, {}, 400),
        ({}, {"Mcp-Param-Other": "x"}, 200),
    ],
)
async def test_mirrored_arguments_must_match_their_headers(
    arguments: object, headers: dict[str, str], status: int
) -> None:
    server = Server("there")

    @server.tool(input_schema=MIRRORED)
    async def query(region: str = "", n: int = 0) -> str:
        return region * n

    async with site(server) as there:
        response = await there.modern(
            "tools/call", {"name": "query", "arguments": arguments}, **headers
        )
        assert response.status == status
        assert ("error" in response.json) == (status == 400)


# Closing is cancelling


@pytest.mark.parametrize("tool", ["wait", "step_and_wait"])
@pytest.mark.parametrize(
    "behind", ["nothing", "a request", "half a request", "a flood"]
)
async def test_closing_cancels_whatever_was_sent_behind(tool: str, behind: str) -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        body = message(
            "tools/call", {"name": tool, "_meta": {**MODERN, "progressToken": 1}}
        )
        sent = request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
        second = request("GET", "/healthz")
        more = {
            "nothing": b"",
            "a request": second,
            "half a request": second[:20],
            "a flood": second * 20_000,
        }
        async with there.wire() as wire:
            await wire.send(sent + more[behind])
            await signals.begun.wait()
        with trio.fail_after(30):
            await signals.cleaned.wait()


async def test_what_is_pipelined_behind_is_answered_after() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        body = message("tools/call", {"name": "wait", "_meta": MODERN})
        sent = request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
        await wire.send(sent + request("GET", "/healthz"))
        await signals.begun.wait()
        await wire.send(request("GET", "/nowhere"))
        signals.go.set()
        assert (await wire.response()).json["result"]["content"][0]["text"] == "went"
        assert (await wire.response()).body == b"ok\n"
        assert (await wire.response()).status == 404


async def test_requests_of_two_connections_may_have_one_id() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        body = message("tools/call", {"name": "wait", "_meta": MODERN})
        await wire.send(
            request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
        )
        await signals.begun.wait()
        assert (await there.modern("tools/call", ADD, id=1)).status == 200


async def test_an_older_client_is_served_beside() -> None:
    async with site(make_server()) as there:
        assert (await there.modern("server/discover")).status == 200
        assert (
            await there.post(message("tools/list"), await there.open_session())
        ).status == 200
        assert (await there.post(message("tools/list"), HEADERS)).status == 400


async def test_bodies_fit_the_official_schema() -> None:
    oracle = Oracle("2026-07-28")
    async with site(make_server()) as there:
        for method, params in (
            ("tools/list", {}),
            ("tools/call", ADD),
            ("server/discover", {}),
        ):
            sent = message(method, {**params, "_meta": MODERN})
            oracle.sent_by_client(sent)
            assert (
                oracle.check((await there.post(sent, modern_headers(sent))).json) == []
            )
