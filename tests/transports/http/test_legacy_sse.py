"""HTTP+SSE, the transport of the first revisions."""

import json
import socket
import struct

import pytest
import trio

from mcp_trio.client.event_parser import EventParser
from tests.support.http_wire import (
    HEADERS,
    Signals,
    Site,
    Wire,
    make_server,
    message,
    request,
    site,
)
from tests.support.oracle import Oracle


async def opened(wire: Wire, version: str) -> tuple[EventParser, str]:
    """Open a session. Yields the parser of its stream, and the URL to post to."""
    parser = EventParser()
    await wire.send(request("GET", "/sse", {"Accept": "text/event-stream"}))
    assert (await wire.head()).headers["content-type"] == "text/event-stream"
    event = await wire.event(parser)
    assert event.name == "endpoint"
    return parser, event.data


async def post(there: Site, path: str, body: object) -> None:
    response = await there.send("POST", path, HEADERS, json.dumps(body).encode())
    assert (response.status, response.body) == (202, b"")


OPENING = {"capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.mark.parametrize("version", ["2024-10-07", "2024-11-05"])
async def test_replies_are_sent_on_the_stream(version: str) -> None:
    oracle = Oracle(version)
    async with site(make_server()) as there, there.wire() as wire:
        parser, path = await opened(wire, version)
        for body in (
            message("initialize", {**OPENING, "protocolVersion": version}, 1),
            message("tools/list", {}, 2),
            message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 3),
        ):
            oracle.sent_by_client(body)
            await post(there, path, body)
            reply = json.loads((await wire.event(parser)).data)
            assert reply["id"] == body["id"]
            assert oracle.check(reply) == []


async def test_bad_messages_are_answered_on_the_stream() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        parser, path = await opened(wire, "2024-11-05")
        assert (await there.send("POST", path, HEADERS, b"{")).status == 202
        assert json.loads((await wire.event(parser)).data)["error"]["code"] == -32700


async def test_a_client_that_leaves_while_its_stream_is_written_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, streams = make_server(), list[trio.SocketStream]()
    has_dropped, drops = trio.open_memory_channel[None](20)

    @server.tool
    async def drop() -> str:
        has_dropped.send_nowait(None)
        streams[-1].setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        streams[-1].socket.close()
        return "x" * 1000

    async with site(server) as there:
        for _ in range(20):  # whether the end is seen before is chance
            async with there.wire() as wire:
                assert isinstance(wire.stream, trio.SocketStream)
                streams.append(wire.stream)
                parser, path = await opened(wire, "2024-11-05")
                await post(
                    there,
                    path,
                    message(
                        "initialize", {**OPENING, "protocolVersion": "2024-11-05"}, 1
                    ),
                )
                await wire.event(parser)
                await post(
                    there,
                    path,
                    message("tools/call", {"name": "drop", "arguments": {}}, 2),
                )
                await drops.receive()
        while b"mcp_streams 0" not in (await there.send("GET", "/metrics")).body:
            pass
    assert caplog.records == []


async def test_an_unknown_stream_is_404() -> None:
    async with site(make_server()) as there:
        async with there.wire() as wire:
            _, path = await opened(wire, "2024-11-05")
        while b"mcp_streams 0" not in (await there.send("GET", "/metrics")).body:
            pass
        for unknown in (path, "/messages?session=x", "/messages"):
            assert (await there.send("POST", unknown, HEADERS, b"{}")).status == 404


async def test_two_clients_do_not_hear_each_other() -> None:
    async with site(make_server()) as there, there.wire() as one, there.wire() as other:
        (parser, path), (other_parser, other_path) = (
            await opened(one, ""),
            await opened(other, ""),
        )
        await post(there, path, message("ping", id="one"))
        await post(there, other_path, message("ping", id="other"))
        assert json.loads((await one.event(parser)).data)["id"] == "one"
        assert json.loads((await other.event(other_parser)).data)["id"] == "other"


async def test_closing_the_stream_ends_what_runs() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        async with there.wire() as wire:
            parser, path = await opened(wire, "2024-11-05")
            await post(
                there,
                path,
                message("initialize", {**OPENING, "protocolVersion": "2024-11-05"}),
            )
            await wire.event(parser)
            await post(there, path, message("tools/call", {"name": "wait"}))
            await signals.begun.wait()
        await signals.cleaned.wait()
