"""Published vulnerabilities of other MCP servers, which cannot happen here.

Each incident is reproduced over every transport. The modules of access control test the
principals of sessions and handles (CVE-2026-52869, CVE-2026-52870), and tests/console
tests the console's token (CVE-2025-49596).
"""

import configparser
import json
import logging
import math
import os
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import pytest
import trio
from trio_websocket import WebSocketConnection, wrap_client_stream

from mcp_trio import Server
from mcp_trio.client.event_parser import EventParser
from mcp_trio.server.features.uri_template import UriTemplate
from mcp_trio.server.serve_conversation import serve_conversation
from mcp_trio.transports.stdio import open_wire
from tests.support.checked import initialize, modern, notification, opened, raw
from tests.support.growth import assert_linear
from tests.support.http_wire import (
    HEADERS,
    HOSTS,
    MODERN,
    PATIENCE,
    Response,
    Site,
    Wire,
    make_server,
    message,
    modern_headers,
    request,
    site_on,
)
from tests.support.paths import PROJECT

EVIL = "https://evil.example"
LIST = message("tools/list", {"_meta": MODERN})
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mcp",
}
# Every endpoint: method, path, headers and body of a valid request.
WAYS_IN: dict[str, tuple[str, str, dict[str, str], bytes]] = {
    "HTTP": ("POST", "/mcp", modern_headers(LIST), json.dumps(LIST).encode()),
    "HTTP, a stream": ("GET", "/mcp", {"Accept": "text/event-stream"}, b""),
    "HTTP, an end": ("DELETE", "/mcp", {}, b""),
    "HTTP+SSE, its stream": ("GET", "/sse", {"Accept": "text/event-stream"}, b""),
    "HTTP+SSE, a message": ("POST", "/messages?session=1", HEADERS, b"{}"),
    "WebSocket": ("GET", "/mcp", UPGRADE, b""),
    "metrics": ("GET", "/metrics", {}, b""),
}
EVERY_WAY_IN = pytest.mark.parametrize("way", WAYS_IN)
EVERY_HOST = pytest.mark.parametrize("host", HOSTS)
# Under hypercorn, no WebSocket is accepted.
NO_WEBSOCKET = {("WebSocket", "hypercorn"): 403}


async def knock(there: Site, way: str, **headers: str) -> Response:
    """Return the head of the answer to a request on this transport."""
    method, path, own, body = WAYS_IN[way]
    async with there.wire() as wire:
        await wire.send(request(method, path, {**own, **headers}, body))
        return await wire.head()


# Which requests are accepted


@EVERY_HOST
@EVERY_WAY_IN
async def test_a_page_that_uses_its_own_host_name_is_refused(
    way: str, host: str
) -> None:
    """CVE-2025-66416, CVE-2026-34742, CVE-2026-42559: Host was not checked (DNS
    rebinding).

    In go-sdk 1.4, only HTTP+SSE lacked the check. Here one guard protects all
    transports.
    """
    async with site_on(host, make_server()) as there:
        for name in (
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "localhost:1@evil.example",
            "",
        ):
            refused = await knock(there, way, Host=name)
            assert refused.status == NO_WEBSOCKET.get((way, host), 421), name
        assert (await knock(there, way, Host=f"localhost:{there.port}")).status != 421


@EVERY_HOST
@EVERY_WAY_IN
async def test_a_page_of_another_site_is_refused(way: str, host: str) -> None:
    """CVE-2026-33252: requests of a page of another site were served."""
    async with site_on(host, make_server()) as there:
        for origin in (EVIL, "null", f"http://localhost.evil.example:{there.port}"):
            assert (await knock(there, way, Origin=origin)).status == 403, origin
        own = await knock(there, way, Origin=f"http://localhost:{there.port}")
        assert own.status != 403 or (way, host) in NO_WEBSOCKET


@EVERY_HOST
@pytest.mark.parametrize("way", ["HTTP", "HTTP+SSE, a message"])
async def test_a_body_that_needs_no_preflight_is_refused(way: str, host: str) -> None:
    """CVE-2026-33252: a body of type text/plain was read as JSON.

    A browser sends this type to any site without a preflight.
    """
    kinds = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "",
    ]
    async with site_on(host, make_server()) as there:
        for kind in kinds:
            assert (await knock(there, way, **{"Content-Type": kind})).status == 415, (
                kind
            )
        assert (await knock(there, way)).status != 415


@pytest.mark.parametrize(
    "headers", [{"Origin": EVIL}, {"Origin": "null"}, {"Host": "evil.example"}]
)
async def test_no_page_of_another_site_gets_a_websocket(
    headers: dict[str, str],
) -> None:
    """CVE-2026-59950: Origin was checked only after the 101 response."""
    async with site_on("native", make_server()) as there:
        assert (await knock(there, "WebSocket", **headers)).status in (403, 421)
        assert (await knock(there, "WebSocket")).status == 101
        assert (
            await knock(there, "WebSocket", Origin="http://localhost")
        ).status == 101


# Replies reach their own clients

CLIENTS = 100
Ask = Callable[[str], Awaitable[Any]]


def meeting() -> Server:
    """Return a server that answers calls only when all of them have arrived."""
    server, here, all_here = Server("meeting"), list[str](), trio.Event()

    @server.tool
    async def meet(nonce: str) -> str:
        here.append(nonce)
        if len(here) == CLIENTS:
            all_here.set()
        await all_here.wait()
        return nonce

    return server


def calls(nonce: str, meta: Any = MODERN) -> Any:
    return message(
        "tools/call",
        {
            "name": "meet",
            "arguments": {"nonce": nonce},
            **({"_meta": meta} if meta else {}),
        },
    )


async def each_gets_its_own(ask: Ask) -> None:
    async def one(nonce: str) -> None:
        reply = await ask(nonce)
        assert (reply["id"], reply["result"]["content"][0]["text"]) == (1, nonce)

    with trio.fail_after(4 * PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(one, secrets.token_hex(8))


@EVERY_HOST
async def test_a_hundred_clients_with_one_id_over_http(host: str) -> None:
    """CVE-2026-25536: a reply went to another client that used the same request id."""

    async def ask(nonce: str) -> Any:
        return (await there.post(body := calls(nonce), modern_headers(body))).json

    async with site_on(host, meeting()) as there:
        await each_gets_its_own(ask)


@EVERY_HOST
async def test_a_hundred_clients_with_one_id_in_sessions(host: str) -> None:
    """CVE-2026-25536"""

    async def ask(nonce: str) -> Any:
        return (await there.post(calls(nonce, None), await there.open_session())).json

    async with site_on(host, meeting()) as there:
        await each_gets_its_own(ask)


@EVERY_HOST
async def test_a_hundred_clients_with_one_id_over_http_and_sse(host: str) -> None:
    """CVE-2026-25536"""

    async def ask(nonce: str) -> Any:
        async with there.wire() as wire:
            parser = EventParser()
            await wire.send(request("GET", "/sse", {"Accept": "text/event-stream"}))
            await wire.head()
            path = (await wire.event(parser)).data
            for body in (initialize("2024-11-05"), calls(nonce, None)):
                assert (
                    await there.send("POST", path, HEADERS, json.dumps(body).encode())
                ).status == 202
                reply = json.loads((await wire.event(parser)).data)
            return reply

    async with site_on(host, meeting()) as there:
        await each_gets_its_own(ask)


async def test_a_hundred_clients_with_one_id_over_websocket() -> None:
    """CVE-2026-25536"""

    async def ask(nonce: str) -> Any:
        async with there.wire() as wire, trio.open_nursery() as nursery:
            client = await websocket(wire, nursery)
            await client.send_message(json.dumps(calls(nonce)))
            reply = json.loads(await client.get_message())
            nursery.cancel_scope.cancel()
        return reply

    async with site_on("native", meeting()) as there:
        await each_gets_its_own(ask)


async def websocket(wire: Wire, nursery: trio.Nursery) -> WebSocketConnection:
    queue: dict[str, Any] = {
        "max_message_size": 2**24,
        "message_queue_size": math.inf,
    }
    return await wrap_client_stream(
        nursery, wire.stream, "localhost", "/mcp", subprotocols=["mcp"], **queue
    )


async def test_a_hundred_clients_with_one_id_over_stdio() -> None:
    """CVE-2026-25536"""
    server = meeting()

    async def serve(reading: int, writing: int) -> None:
        async with open_wire(reading, writing) as wire:
            await serve_conversation(server, wire)

    async def ask(nonce: str) -> Any:
        (reading, to_server), (from_server, writing) = os.pipe(), os.pipe()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve, reading, writing)
                async with open_wire(from_server, to_server) as wire:
                    wire.send(json.dumps(calls(nonce)).encode())
                    wire.flush()
                    (reply,) = await wire.receive()
                nursery.cancel_scope.cancel()
        finally:
            for descriptor in (reading, to_server, from_server, writing):
                os.close(descriptor)
        return json.loads(reply)

    async with server.running():
        await each_gets_its_own(ask)


# The cost of a message


@pytest.mark.parametrize(
    "template", ["note://{x}/{y}", "note://{+x}/b/{+y}/c", "note://{a}-{b}-{c}-{d}-{e}"]
)
@pytest.mark.parametrize("filling", ["a", "/", "-", "a/", "a-", "/b", "/b/"])
def test_a_long_uri_is_matched_in_linear_time(template: str, filling: str) -> None:
    """CVE-2026-0621: the regular expression of a template took exponential time."""

    def uri_of(size: int) -> str:
        return "note://" + (filling * size)[:size] + "\n"

    assert_linear(UriTemplate(template).match, uri_of, 50_000)


@pytest.mark.parametrize(
    "key", ["Method", "METHOD", "method\\u0000", "methoḋ", "ｍethod"]
)
async def test_keys_are_case_sensitive(key: str) -> None:
    """CVE-2026-27896: keys were compared without case.

    A proxy in front of the server could read another message than the server.
    """
    async with opened(make_server(), "2025-06-18") as client:
        (reply,) = await client.exchange(
            f'{{"jsonrpc":"2.0","id":1,"{key}":"ping"}}'.encode()
        )
        assert reply["error"] == {
            "code": -32600,
            "message": "Invalid request: $.method: missing",
        }
        (reply,) = await client.exchange(
            f'{{"jsonrpc":"2.0","id":2,"method":"ping","{key}":"tools/list"}}'.encode()
        )
        assert reply["result"] == {}
        (reply,) = await client.exchange(
            b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"Name":"echo","arguments":{"text":"x"}}}'
        )
        assert reply["error"]["code"] == -32602
        (reply,) = await client.exchange(
            b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","arguments":{"Text":"x"}}}'
        )
        assert reply["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("sent", "counts"),
    [
        (b'"id":1,"method":"tools/list","method":"ping"', {}),
        (b'"id":2,"id":1,"method":"ping"', {}),
        (b'"id":1,"method":"ping","params":{"_meta":5},"params":{}', {}),
        (b'"id":1,"jsonrpc":"2.0","method":"ping","jsonrpc":"2.0"', {}),
        (
            b'"id":1,"method":"ping","\\u006dethod":"tools/destroy"',
            None,
        ),  # an escape in a key does not make it another key
    ],
)
async def test_the_last_of_two_equal_keys_counts(sent: bytes, counts: Any) -> None:
    """CVE-2026-27896: as documented, the last of two equal keys counts."""
    async with opened(make_server(), "2025-06-18") as client:
        (reply,) = await client.exchange(b'{"jsonrpc":"2.0",%b}' % sent)
    assert reply["id"] == 1
    assert reply.get("result") == counts
    assert (
        "result" in reply
        or reply["error"]["message"] == "Method not found: tools/destroy"
    )


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$schema", "$id"])
@pytest.mark.parametrize("place", ["input_schema", "output_schema"])
def test_nothing_is_fetched_for_a_schema(keyword: str, place: str) -> None:
    """fastmcp 3502: a $ref was fetched from any URL. Here, nothing is fetched."""

    async def tool(**arguments: Any) -> dict[str, Any]:
        return arguments

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        schema = {"type": "object", "properties": {"a": {"$ref": "other.json"}}}
        schema |= (
            {"properties": {"a": {keyword: url}}}
            if keyword[1:].endswith("ef")
            else {keyword: url}
        )
        with pytest.raises(
            ValueError, match=r"which is not within the schema|supported are"
        ):
            Server("schemas").add_tool(tool, **{place: schema})  # type: ignore[arg-type]
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_schemas_have_a_bounded_depth() -> None:
    """fastmcp 3502: a schema with an endless recursion ended the server."""

    async def tool(**arguments: Any) -> str:
        return "in"

    deep: Any = {}
    for _ in range(1_000):
        deep = {"properties": {"a": deep}}
    with pytest.raises(ValueError, match="levels deep"):
        Server("schemas").add_tool(tool, input_schema=deep)


# Errors do not end a server


async def bad_json(wire: Wire) -> None:
    await wire.send(request("POST", "/mcp", HEADERS, b"\xff{[" * 1_000))


async def half_a_body(wire: Wire) -> None:
    await wire.send(request("POST", "/mcp", HEADERS, b"{" * 1_000)[:-500])


async def a_failing_tool(wire: Wire) -> None:
    body = message("tools/call", {"name": "explode", "_meta": MODERN})
    await wire.send(
        request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
    )


async def a_stream(wire: Wire) -> None:
    body = message(
        "tools/call", {"name": "step_and_wait", "_meta": {**MODERN, "progressToken": 1}}
    )
    await wire.send(
        request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
    )
    await wire.head()


async def an_old_stream(wire: Wire) -> None:
    await wire.send(request("GET", "/sse", {"Accept": "text/event-stream"}))
    await wire.head()


async def half_a_frame(wire: Wire) -> None:
    await wire.send(request("GET", "/mcp", UPGRADE))
    await wire.head()
    await wire.send(b"\x81\xfe\xff")


async def no_frame(wire: Wire) -> None:
    await wire.send(request("GET", "/mcp", UPGRADE))
    await wire.head()
    await wire.send(os.urandom(500))


HARMS = [
    bad_json,
    half_a_body,
    a_failing_tool,
    a_stream,
    an_old_stream,
    half_a_frame,
    no_frame,
]


@EVERY_HOST
@pytest.mark.parametrize("harm", HARMS, ids=[harm.__name__ for harm in HARMS])
async def test_a_failure_stays_with_its_request(
    harm: Callable[[Wire], Awaitable[None]], host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CVE-2025-53366, CVE-2025-53365: an exception in a request ended the server."""
    if host == "hypercorn" and harm in (half_a_frame, no_frame):
        harm = bad_json  # it accepts no WebSocket
    server = make_server()

    @server.tool
    async def explode() -> str:
        raise BaseExceptionGroup("all", [KeyError("one"), RuntimeError("other")])

    async with site_on(host, server) as there:
        for _ in range(20):
            async with there.wire() as wire:
                await harm(wire)
                wire.stream.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
        assert (await there.modern("tools/list")).status == 200
    loud = [record for record in caplog.records if record.levelno > logging.WARNING]
    assert [
        record
        for record in loud
        if not record.getMessage().startswith("tools/call failed (reference ")
    ] == []


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"id":1}',
        b'{"jsonrpc":"2.0","id":[],"method":1}',
    ],
)
async def test_a_bad_message_does_not_end_the_connection(sent: bytes) -> None:
    """CVE-2025-53366, on transports with one connection for many messages."""
    async with raw(make_server()) as client:
        *_, pong = await client.exchange(
            sent,
            notification("notifications/initialized"),
            modern(9, "server/discover"),
        )
    assert (pong["id"], "result" in pong) == (9, True)


# The libraries below

SETUP = PROJECT / "setup.cfg"
PINS = {"h11": ("CVE-2025-43859", (0, 16)), "h2": ("CVE-2025-57804", (4, 3))}


@pytest.mark.parametrize("library", PINS)
def test_installed_libraries_have_the_fixes(library: str) -> None:
    """CVE-2025-43859 (h11), CVE-2025-57804 (h2): requests could be hidden in others."""
    incident, least = PINS[library]
    settings = configparser.ConfigParser()
    settings.read(SETUP)
    extras = settings["options.extras_require"]
    required = {
        "h11": [settings["options"]["install_requires"]],
        "h2": [extras["http2"], extras["console"]],
    }
    for requirements in required[library]:
        pins = [
            line for line in requirements.splitlines() if line.startswith(library + " ")
        ]
        assert pins == [f"{library} >={'.'.join(map(str, least))}"]
    assert f"# {incident}\n    {pins[0]}\n" in SETUP.read_text(encoding="utf-8")
    assert (
        tuple(int(part) for part in version(library).split(".")[: len(least)]) >= least
    )


BAD_CHUNK = b"2\r\n{}xx0\r\n\r\n"
FRAMED = {
    "a length with chunks": (
        {"Content-Length": "12", "Transfer-Encoding": "chunked"},
        b"2\r\n{}\r\n0\r\n\r\n",
    ),
    "two lengths": ({"Content-Length": "2\r\nContent-Length: 12"}, b"{}"),
    "bad chunks": ({"Transfer-Encoding": "chunked"}, BAD_CHUNK),
}


@EVERY_HOST
@pytest.mark.parametrize("framed", FRAMED)
async def test_ambiguous_requests_are_refused(framed: str, host: str) -> None:
    """CVE-2025-43859: bytes after a chunk were ignored. test_smuggling.py has all
    cases.
    """
    headers, body = FRAMED[framed]
    async with site_on(host, make_server()) as there, there.wire() as wire:
        await wire.send(
            request("POST", "/mcp", {**modern_headers(LIST), **headers})
            + body
            + request("GET", "/healthz")
        )
        refused = await wire.response()
        assert refused.status == 400
        assert b"Bad request" in refused.body or (host, refused.body) == (
            "hypercorn",
            b"",
        )  # it is not part of the message
        assert await wire.ended()
