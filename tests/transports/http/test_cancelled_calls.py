"""What a client gets that resumes the stream of a call it has cancelled."""

import json

import pytest

from mcp_trio.client.event_parser import EventParser
from tests.support.http_wire import (
    Signals,
    Site,
    Wire,
    make_server,
    message,
    request,
    site,
)

NEWEST_WITH_SESSIONS = "2025-11-25"
WITH_STREAMS = ["2025-03-26", "2025-06-18", NEWEST_WITH_SESSIONS]


async def call(wire: Wire, session: dict[str, str], name: str, id: int = 7) -> None:
    params = {"name": name, "_meta": {"progressToken": "p"}}
    body = json.dumps(message("tools/call", params, id)).encode()
    await wire.send(request("POST", "/mcp", session, body))


async def cancel(there: Site, session: dict[str, str], id: int = 7) -> None:
    notification = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": id},
    }
    assert (await there.post(notification, session)).status == 202


@pytest.mark.parametrize("revision", WITH_STREAMS)
async def test_a_call_cancelled_before_anything_was_sent_gives_no_event_id(
    revision: str,
) -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session(revision)
        async with there.wire() as wire:
            await call(wire, session, "wait")
            await signals.begun.wait()
            await cancel(there, session)
            response = await wire.response()
            assert response.status == 200
            assert response.headers["content-type"] == "text/event-stream"
            assert response.body == b""
        assert (await there.post(message("ping"), session)).status == 200


@pytest.mark.parametrize("revision", WITH_STREAMS)
async def test_the_event_ids_of_a_cancelled_call_are_refused_and_the_session_lives(
    revision: str,
) -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session(revision)
        async with there.wire() as wire:
            await call(wire, session, "step_and_wait")
            await wire.head()
            first = await wire.event(EventParser())
            await cancel(there, session)
            assert await wire.chunk() == b""
        last_event = {"Last-Event-ID": str(first.id)}
        resumed = await there.send("GET", "/mcp", {**session, **last_event})
        assert resumed.status == 400
        assert "Last-Event-ID" in resumed.json["error"]["message"]
        assert (await there.post(message("ping"), session)).status == 200


async def test_a_client_that_reads_a_resumed_stream_sees_it_end_when_it_cancels() -> (
    None
):
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session()
        async with there.wire() as wire:
            await call(wire, session, "step_and_wait")
            await wire.head()
            first = await wire.event(EventParser())
        last_event = {"Last-Event-ID": str(first.id)}
        async with there.wire() as again:
            await again.send(request("GET", "/mcp", {**session, **last_event}))
            await again.head()
            assert (await again.chunk()).startswith(b"id: 0-1")
            await cancel(there, session)
            assert await again.chunk() == b""
        refused = await there.send("GET", "/mcp", {**session, **last_event})
        assert refused.status == 400


async def test_the_event_ids_of_a_cancelled_call_are_never_given_again() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session()
        async with there.wire() as wire:
            await call(wire, session, "step_and_wait")
            await wire.head()
            cancelled = await wire.event(EventParser())
            await cancel(there, session)
            assert await wire.chunk() == b""
        params = {"name": "steps", "_meta": {"progressToken": "p"}}
        answered = await there.post(message("tools/call", params, 8), session)
        ids = [event.id for event in answered.events]
        assert cancelled.id not in ids
        last_event = {"Last-Event-ID": str(cancelled.id)}
        assert (
            await there.send("GET", "/mcp", {**session, **last_event})
        ).status == 400


async def test_cancelled_calls_do_not_push_replies_out_of_the_history() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        session = await there.open_session()
        params = {"name": "steps", "_meta": {"progressToken": "p"}}
        answered = await there.post(message("tools/call", params, 1), session)
        for id in range(10, 30):
            async with there.wire() as wire:
                await call(wire, session, "step_and_wait", id)
                await wire.head()
                await wire.event(EventParser())
                await cancel(there, session, id)
                assert await wire.chunk() == b""
        last_event = {"Last-Event-ID": str(answered.events[0].id)}
        resumed = await there.send("GET", "/mcp", {**session, **last_event})
        assert resumed.messages[-1]["id"] == 1
