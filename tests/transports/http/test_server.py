"""The native host: refusals, upgrades, resets, timeouts and stopping."""

import json
import logging
import shutil
import signal
import socket
import ssl
import struct
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from mcp_trio import Limits
from mcp_trio.serve import serve
from mcp_trio.transports.address import parse_address
from mcp_trio.transports.http import connection
from mcp_trio.transports.http.parser import BODY, HEAD, IDLE
from tests.support.http_wire import (
    HEADERS,
    MODERN,
    Signals,
    Site,
    Wire,
    make_server,
    message,
    modern_headers,
    request,
    site,
)
from tests.support.oracle import Oracle

EVIL = "https://evil.example"


async def test_the_health_check_needs_neither_accept_nor_an_allowed_host() -> None:
    async with site(make_server()) as there:
        response = await there.send("GET", "/healthz", {"Host": "probe.example"})
        assert (response.status, response.body) == (200, b"ok\n")
        assert (await there.send("HEAD", "/healthz")).status == 200
        assert "mcp-session-id" not in response.headers


async def test_an_expectation_that_is_unknown_is_refused() -> None:
    async with site(make_server()) as there:
        headers = {**HEADERS, "Expect": "200-ok"}
        assert (await there.send("POST", "/mcp", headers, b"{}")).status == 417


async def test_nobody_is_upgraded_past_the_guard() -> None:
    async def upgrade(
        stream: trio.abc.Stream,
        head: bytes,
        principal: object,
        token: str,
        address: str,
        headers: object,
    ) -> None:
        pytest.fail("upgraded")

    async with site(make_server(), upgrade=upgrade) as there:
        asking = {"Connection": "Upgrade", "Upgrade": "websocket", "Origin": EVIL}
        assert (await there.send("GET", "/mcp", asking)).status == 403
        assert (
            await there.send("GET", "/mcp", {**asking, "Origin": "null"})
        ).status == 403
        assert (
            await there.send("GET", "/sse", {**asking, "Origin": "http://localhost"})
        ).status == 400


async def test_an_upgrade_gets_the_stream_and_all_that_was_read() -> None:
    async def upgrade(
        stream: trio.abc.Stream,
        head: bytes,
        principal: object,
        token: str,
        address: str,
        headers: object,
    ) -> None:
        assert head.startswith(b"GET /mcp HTTP/1.1\r\n")
        assert head.endswith(b"\r\n\r\nbehind")
        await stream.send_all(b"hello")
        await stream.aclose()

    async with site(make_server(), upgrade=upgrade) as there, there.wire() as wire:
        await wire.send(
            request("GET", "/mcp", {"Connection": "Upgrade", "Upgrade": "websocket"})
            + b"behind"
        )
        assert await wire.to_end() == b"hello"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_there_is_no_redirect(path: str) -> None:
    async with site(make_server()) as there:
        body = json.dumps(message("tools/list", {"_meta": MODERN}))
        response = await there.send(
            "POST", path, modern_headers(json.loads(body)), body.encode()
        )
        assert response.status == 200


async def test_metrics_count_only_known_methods_by_name() -> None:
    async with site(make_server()) as there:
        await there.modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        await there.modern("tools/call", {"name": "nosuch"})
        await there.modern('evil"} 1\n')
        await there.open_session()
        await there.send("GET", "/nowhere")
        lines = (await there.send("GET", "/metrics")).body.decode().splitlines()
        assert (
            'mcp_requests_total{method="tools/call",tool="add",outcome="ok"} 1' in lines
        )
        assert 'mcp_requests_total{method="tools/call",outcome="refused"} 1' in lines
        assert 'mcp_request_seconds_count{method="tools/call",tool="add"} 1' in lines
        assert "mcp_sessions 1" in lines
        assert 'mcp_http_refused_total{status="404"} 1' in lines
        assert not any("evil" in line for line in lines)


async def test_resets_leave_no_trace_and_no_descriptor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    signals = Signals()
    async with site(make_server(signals)) as there:
        before = (
            len(list(Path("/proc/self/fd").iterdir()))
            if Path("/proc/self/fd").exists()
            else 0
        )
        body = message(
            "tools/call",
            {"name": "step_and_wait", "_meta": {**MODERN, "progressToken": 1}},
        )
        in_stream = request(
            "POST", "/mcp", modern_headers(body), json.dumps(body).encode()
        )
        for number in range(200):
            stream = await trio.open_tcp_stream("127.0.0.1", there.port)
            stream.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            await stream.send_all(in_stream if number % 2 else in_stream[:-20])
            if number % 2:
                await stream.receive_some(10)
            await stream.aclose()
        assert (await there.modern("tools/list")).status == 200
        if before:
            with trio.fail_after(30):
                while len(list(Path("/proc/self/fd").iterdir())) > before:
                    await trio.lowlevel.checkpoint()
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


# Time


async def test_a_slow_client_gets_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_trio.transports.http.server.TICK", 0.01)
    async with site(make_server()) as there:
        for begun in (
            b"POST /mcp HT",
            request("POST", "/mcp", {**HEADERS, "Content-Length": "5"}) + b"{",
        ):
            async with there.wire() as wire:
                # After a request, the connection may be idle until it sends the next.
                assert (await wire.request("GET", "/healthz", {})).status == 200
                with monkeypatch.context() as impatient:
                    impatient.setitem(connection.PATIENCE, HEAD, 0.0)
                    impatient.setitem(connection.PATIENCE, BODY, 0.0)
                    await wire.send(begun)
                    response = await wire.response()
                    assert response.status == 408
                    assert await wire.ended()


async def test_idle_connections_end_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.PATIENCE, IDLE, 0.0)
    monkeypatch.setattr("mcp_trio.transports.http.server.TICK", 0.01)
    async with site(make_server()) as there, there.wire() as wire:
        assert (await wire.request("GET", "/healthz", {})).status == 200
        assert await wire.ended()


async def test_a_client_that_does_not_read_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "WRITE_TIME", 0.0)
    monkeypatch.setattr("mcp_trio.transports.http.server.TICK", 0.01)
    async with site(make_server()) as there, there.wire() as wire:
        body = message(
            "tools/call",
            {"name": "echo", "arguments": {"text": "x" * 3 * 2**20}, "_meta": MODERN},
        )
        sent = request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
        with pytest.raises(trio.BrokenResourceError):
            await wire.send(sent * 10)


# Stopping


async def write(wire: Wire, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):
        await wire.stream.send_all(data)


async def stopped(there: Site) -> None:
    there.stopping.set()
    with trio.fail_after(30):
        while True:
            try:
                async with there.wire():
                    await trio.lowlevel.checkpoint()
            except OSError:
                return


async def test_stopping_ends_idle_connections_and_streams_cleanly() -> None:
    async with site(make_server()) as there:
        session = await there.open_session()
        async with (
            there.wire() as idle,
            there.wire() as stream,
            there.wire() as listening,
            there.wire() as sse,
        ):
            assert (await idle.request("GET", "/healthz", {})).status == 200
            await stream.send(request("GET", "/mcp", session))
            await sse.send(request("GET", "/sse"))
            body = message(
                "subscriptions/listen",
                {"notifications": {"toolsListChanged": True}, "_meta": MODERN},
            )
            await listening.send(
                request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
            )
            for wire in (stream, sse, listening):
                await wire.head()
            await listening.chunk()
            there.stopping.set()
            assert await idle.ended()
            assert b"resultType" in await listening.chunk()
            for wire in (stream, sse, listening):
                assert (await wire.to_end()).endswith(b"0\r\n\r\n")
        await stopped(there)


async def test_no_connection_is_accepted_while_a_running_call_finishes() -> None:
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        body = message("tools/call", {"name": "wait", "_meta": MODERN})
        await wire.send(
            request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
        )
        await signals.begun.wait()
        there.stopping.set()
        await stopped(there)
        signals.go.set()
        response = await wire.response()
        assert response.json["result"]["content"][0]["text"] == "went"
        assert response.headers["connection"] == "close"
        assert await wire.ended()


async def test_a_client_that_does_not_read_does_not_prolong_the_grace() -> None:
    signals = Signals()
    async with site(make_server(signals, grace=0.05)) as there:
        session = await there.open_session()
        async with (
            there.wire() as wire,
            there.wire() as deaf,
            trio.open_nursery() as nursery,
        ):
            big = message(
                "tools/call", {"name": "echo", "arguments": {"text": "x" * 3 * 2**20}}
            )
            nursery.start_soon(
                write,
                deaf,
                request("POST", "/mcp", session, json.dumps(big).encode()) * 9,
            )
            body = message(
                "tools/call", {"name": "step_and_wait", "_meta": {"progressToken": 1}}
            )
            await wire.send(request("POST", "/mcp", session, json.dumps(body).encode()))
            await signals.begun.wait()
            there.stopping.set()
            assert (await wire.to_end()).endswith(b"0\r\n\r\n")
            assert signals.cleaned.is_set()
            await stopped(there)
            nursery.cancel_scope.cancel()


# Bodies


async def test_bodies_fit_the_official_schemas() -> None:
    async with site(make_server()) as there:
        session = await there.open_session()
        oracle = Oracle("2025-11-25")
        for method, params in (
            ("tools/list", {}),
            ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
        ):
            sent = message(method, params)
            oracle.sent_by_client(sent)
            assert oracle.check((await there.post(sent, session)).json) == []


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("there is no openssl to make a certificate with")
    files = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    made = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    subprocess.run(
        [*made, "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]],
        check=True,
        stderr=-3,
    )
    return files


async def test_replies_and_streams_pass_over_tls(
    certificate: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    signals = Signals()
    async with site(make_server(signals), tls=certificate) as there:
        async with there.wire() as plain:
            await plain.send(request("GET", "/healthz"))
            await plain.to_end()
        stream = await trio.open_tcp_stream("127.0.0.1", there.port)
        secure = Wire(trio.SSLStream(stream, context, https_compatible=True))
        assert (await secure.request("GET", "/healthz", {})).status == 200
        body = message(
            "tools/call", {"name": "steps", "_meta": {**MODERN, "progressToken": 1}}
        )
        assert (
            len(
                (
                    await secure.request(
                        "POST", "/mcp", modern_headers(body), json.dumps(body).encode()
                    )
                ).messages
            )
            == 4
        )
        body = message("tools/call", {"name": "wait", "_meta": MODERN})
        await secure.send(
            request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
        )
        await signals.begun.wait()
        await stream.aclose()
        with trio.fail_after(30):
            await signals.cleaned.wait()
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_small_requests_with_large_replies_do_not_pile_up() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        there.server.add_tool(lambda: "x" * 2**20, name="large")
        body = message("tools/call", {"name": "large", "_meta": MODERN})
        await wire.send(
            request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
            * 20
        )
        for _ in range(20):
            assert len((await wire.response()).body) > 2**20


@pytest.mark.slow
async def test_what_waits_behind_a_reply_that_nobody_reads_may_go_on_before_it_is_read() -> (
    None
):
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        there.server.use_limits(Limits(max_result=2**25))
        there.server.add_tool(lambda: "x" * 2**24, name="huge")
        calls = [
            message("tools/call", {"name": name, "arguments": {}, "_meta": MODERN})
            for name in ("huge", "wait")
        ]
        pipelined = [
            request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())
            for body in calls
        ]
        await wire.send(b"".join(pipelined))
        with trio.fail_after(30):
            await signals.begun.wait()
        signals.go.set()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len((await wire.response()).body) > 2**24
        assert (await wire.response()).json["result"]["content"]


async def test_serve_says_where_it_serves_and_stops_in_order() -> None:
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(serve, make_server(), http="127.0.0.1:0", path="/tools")
        )
        port = int(url.removesuffix("/tools").rpartition(":")[2])
        async with Site(make_server(), port, trio.Event()).wire() as wire:
            assert (await wire.request("GET", "/tools", {})).status == 400
            signal.raise_signal(signal.SIGTERM)
            assert await wire.ended()


@pytest.mark.parametrize("text", ["", "x", "1:2:x", "70000", "host:"])
def test_an_address_is_a_port_with_or_without_a_host(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected (.HOST:.PORT|a port)"):
        parse_address(text)
    assert parse_address("8000") == ("127.0.0.1", 8000)
    assert parse_address("[::1]:8000") == ("::1", 8000)
