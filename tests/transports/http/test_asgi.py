"""The ASGI application: under hypercorn, and mounted in Quart and Starlette."""

import asyncio
import itertools
import json
import logging
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from hypercorn.config import Config
from hypercorn.middleware.dispatcher import TrioDispatcherMiddleware
from hypercorn.trio import serve as hypercorn
from quart_trio import QuartTrio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from mcp_trio import Server
from mcp_trio.cli.main import main
from mcp_trio.serve import serve
from mcp_trio.transports.http import asgi, hypercorn_host
from mcp_trio.transports.http.settings import HttpSettings
from tests.support.http_wire import (
    HEADERS,
    MODERN,
    Signals,
    Site,
    make_server,
    message,
    modern_headers,
    request,
)


@asynccontextmanager
async def site(server: Server, **options: Any) -> AsyncIterator[Site]:
    """Serve only this server, under hypercorn."""
    stopping = trio.Event()
    async with server.running(), trio.open_nursery() as nursery:
        start = partial(
            hypercorn_host.serve_hypercorn,
            server,
            "127.0.0.1",
            0,
            stopping=stopping,
            settings=HttpSettings(**options),
        )
        ((_, port),) = await nursery.start(start)
        yield Site(server, port, stopping)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def hosted(application: Any, server: Server) -> AsyncIterator[Site]:
    """Serve an application under hypercorn, as its own command does."""
    config, stopping = Config(), trio.Event()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = logging.getLogger("hypercorn.error")
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(hypercorn, application, config, shutdown_trigger=stopping.wait)
        )
        yield Site(server, int(url.rpartition(":")[2]), stopping)
        stopping.set()


def sleeping(**options: Any) -> tuple[Server, Signals]:
    signals = Signals()
    return make_server(signals, **options), signals


def calling(tool: str, **more: Any) -> bytes:
    """Return the bytes of a request for a call that belongs to no session."""
    body = message(
        "tools/call", {"name": tool, "arguments": {}, "_meta": {**MODERN, **more}}
    )
    return request("POST", "/mcp", modern_headers(body), json.dumps(body).encode())


# Alone under hypercorn


async def test_a_call_is_answered() -> None:
    async with site(make_server()) as there:
        response = await there.modern(
            "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}
        )
        assert (response.status, response.headers["content-type"]) == (
            200,
            "application/json",
        )
        assert response.json["result"]["content"][0]["text"] == "3"


async def test_progress_makes_the_response_a_stream() -> None:
    async with site(make_server()) as there:
        response = await there.modern(
            "tools/call",
            {"name": "steps", "arguments": {}, "_meta": {"progressToken": "p"}},
        )
        assert response.headers["content-type"] == "text/event-stream"
        *progress, last = response.messages
        assert [heard["params"]["progress"] for heard in progress] == [0, 1, 2]
        assert last["result"]["content"][0]["text"] == "all"


async def test_a_connection_is_used_again_after_a_stream_and_ends_at_once_with_the_server() -> (
    None
):
    async with site(make_server()) as there, there.wire() as wire:
        for _ in range(3):
            await wire.send(calling("steps", progressToken="p"))
            assert len((await wire.response()).messages) == 4
        there.stopping.set()
        with trio.fail_after(4):  # less than the grace
            assert await wire.ended()


async def test_a_session_is_used_and_ended() -> None:
    async with site(make_server()) as there:
        headers = await there.open_session()
        response = await there.post(
            message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
            headers,
        )
        assert response.json["result"]["content"][0]["text"] == "3"
        assert (await there.send("DELETE", "/mcp", headers)).status == 204
        assert (await there.post(message("ping"), headers)).status == 404


async def test_a_body_with_two_lengths_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asgi, "LINGER_TIME", 0.05)
    headers = {**HEADERS, "Transfer-Encoding": "chunked", "Content-Length": "3"}
    async with site(make_server()) as there:
        assert (await there.send("POST", "/mcp", headers, b"{}")).status == 400


async def test_a_body_that_grows_too_large_is_refused_before_its_end() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        await wire.send(
            request("POST", "/mcp", {**HEADERS, "Transfer-Encoding": "chunked"})
        )
        for _ in range(41):
            await wire.send(b"19000\r\n" + b"x" * 0x19000 + b"\r\n")
        assert (await wire.response()).status == 413


async def test_a_body_that_never_arrives_is_408(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asgi, "BODY_TIME", 0.05)
    monkeypatch.setattr(asgi, "LINGER_TIME", 0.05)
    async with site(make_server()) as there, there.wire() as wire:
        await wire.send(
            request("POST", "/mcp", {**HEADERS, "Content-Length": "10"}, b"{")
        )
        assert (await wire.response()).status == 408


async def test_websocket_is_refused() -> None:
    async with site(make_server()) as there:
        asking = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
        }
        response = await there.send(
            "GET", "/mcp", {**asking, "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}
        )
        assert response.status == 403


@pytest.mark.parametrize("tool", ["wait", "step_and_wait"])
async def test_the_end_of_the_connection_cancels_a_call_without_session(
    tool: str,
) -> None:
    server, signals = sleeping()
    async with site(server) as there:
        async with there.wire() as wire:
            await wire.send(calling(tool))
            await signals.begun.wait()
        with trio.fail_after(30):
            await signals.cleaned.wait()


async def test_a_call_in_a_session_outlives_its_connection() -> None:
    server, signals = sleeping()
    async with site(server) as there:
        headers = await there.open_session()
        async with there.wire() as wire:
            body = json.dumps(message("tools/call", {"name": "wait"})).encode()
            await wire.send(request("POST", "/mcp", headers, body))
            await signals.begun.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not signals.cleaned.is_set()
        signals.go.set()
        with trio.fail_after(30):
            await signals.cleaned.wait()


async def test_resets_leave_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    server, _ = sleeping()
    async with site(server) as there:
        for sent in [
            calling("wait"),
            calling("wait")[:-10],
            calling("step_and_wait", progressToken=1),
        ] * 10:
            stream = await trio.open_tcp_stream("127.0.0.1", there.port)
            stream.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            await stream.send_all(sent)
            await trio.testing.wait_all_tasks_blocked(0.002)
            await stream.aclose()
        assert (await there.modern("tools/list")).status == 200
    assert [
        record for record in caplog.records if record.levelno >= logging.WARNING
    ] == []


# Stopping


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops such a client")
async def test_a_client_that_does_not_read_delays_the_end_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hypercorn_host, "UNREAD_TIME", 0.1)
    server, stopping = make_server(grace=0.1), trio.Event()

    @server.tool
    async def flood() -> str:
        return "x" * 20_000_000

    with trio.fail_after(20):  # less than the usual UNREAD_TIME
        async with trio.open_nursery() as nursery:
            start = partial(
                hypercorn_host.serve_hypercorn,
                server,
                "127.0.0.1",
                0,
                stopping=stopping,
            )
            ((_, port),) = await nursery.start(start)
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(calling("flood"))
            await stream.receive_some(1)
            stopping.set()
        await stream.aclose()


async def failing(
    hypercorn: Any, monkeypatch: pytest.MonkeyPatch, stopping: trio.Event
) -> None:
    """Serve by something that fails instead of hypercorn."""
    monkeypatch.setattr(hypercorn_host, "serve", hypercorn)
    async with trio.open_nursery() as nursery:
        start = partial(
            hypercorn_host.serve_hypercorn,
            make_server(),
            "127.0.0.1",
            0,
            stopping=stopping,
        )
        await nursery.start(start)


async def test_hypercorn_is_started_again_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    stopping, starts = trio.Event(), list[float]()

    async def fails_ten_times(
        app: Any, config: Config, *, shutdown_trigger: Any, task_status: Any
    ) -> None:
        for bound in config.create_sockets().insecure_sockets:
            bound.close()
        starts.append(trio.current_time())
        task_status.started([])
        if len(starts) <= 10:
            raise ExceptionGroup("", [ExceptionGroup("", [OSError("one client")])])
        stopping.set()
        await shutdown_trigger()

    await failing(fails_ten_times, monkeypatch, stopping)
    assert [record.message for record in caplog.records] == [
        "hypercorn failed and is restarted: OSError('one client')"
    ] * 10
    pauses = [round(later - one, 3) for one, later in itertools.pairwise(starts)]
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1, 1, 1]


async def test_hypercorn_is_not_started_again_where_it_cannot_begin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(app: Any, config: Config, **options: Any) -> None:
        for bound in config.create_sockets().insecure_sockets:
            bound.close()
        raise OSError("no certificate")

    with pytest.raises(ExceptionGroup) as raised:
        await failing(fails, monkeypatch, trio.Event())
    assert raised.group_contains(OSError, match="no certificate")
    assert caplog.records == []


async def test_serve_has_it_as_an_engine() -> None:
    server = make_server()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(serve, server, http=0, http_engine="hypercorn")
        )
        assert url.startswith("http://127.0.0.1:")
        port = int(url.rpartition(":")[2].removesuffix("/mcp"))
        assert (
            await Site(server, port, trio.Event()).modern("tools/list")
        ).status == 200
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flag", [True, False])
def test_an_unknown_engine_is_refused(
    flag: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    if flag:
        with pytest.raises(SystemExit, match="2"):
            main(["run", "--http", "0", "--http-engine", "apache"])
    else:
        monkeypatch.setenv("MCP_TRIO_HTTP_ENGINE", "apache")
        assert main(["run", "--http", "0"]) == 2
    assert "expected one of native, hypercorn, got 'apache'" in capsys.readouterr().err


@pytest.mark.slow
async def test_the_command_stops_in_order() -> None:
    command = [
        sys.executable,
        "-m",
        "mcp_trio",
        "run",
        "--http",
        "0",
        "--http-engine",
        "hypercorn",
        "--grace",
        "1",
    ]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            partial(trio.run_process, command, stderr=subprocess.PIPE)
        )
        told = b""
        while not told.endswith(b"/mcp\n"):
            told += await process.stderr.receive_some()
        there = Site(
            make_server(),
            int(told.rpartition(b":")[2].partition(b"/")[0]),
            trio.Event(),
        )
        async with there.wire() as idle:
            await idle.send(request("GET", "/mcp", await there.open_session()))
            await idle.head()
            process.terminate()
            with trio.fail_after(20):
                while await idle.chunk():
                    pass
                assert await process.wait() == 0


@pytest.mark.integration
@pytest.mark.slow
async def test_http_2_is_served() -> None:
    if not (curl := shutil.which("curl")):
        pytest.skip("there is no curl")
    server, _ = sleeping()
    async with site(server) as there:
        body = message(
            "tools/call",
            {"name": "steps", "arguments": {}, "_meta": {**MODERN, "progressToken": 1}},
        )
        lines = [
            part
            for name, value in modern_headers(body).items()
            for part in ("-H", f"{name}: {value}")
        ]
        command = [
            curl,
            "-sS",
            "--http2-prior-knowledge",
            "-w",
            "%{http_version} %{http_code}",
            *lines,
        ]
        url = f"http://127.0.0.1:{there.port}/mcp"
        done = await trio.run_process(
            [*command, "-d", json.dumps(body), url], capture_stdout=True
        )
        assert b'"text":"all"' in done.stdout
        assert done.stdout.endswith(b"2 200")


# Mounted


def with_lifespan(entered: list[str]) -> Server:
    server = make_server()

    @server.lifespan
    async def lifespan() -> AsyncIterator[str]:
        entered.append("in")
        yield "here"
        entered.append("out")

    return server


async def test_it_can_be_mounted_in_quart() -> None:
    app = QuartTrio("beside")
    app.add_url_rule("/hello", view_func=lambda: "hello")
    entered: list[str] = []
    server = with_lifespan(entered)
    both = TrioDispatcherMiddleware({"/mcp": server.asgi(), "": app})
    async with hosted(both, server) as there:
        assert entered == ["in"]
        assert (await there.modern("tools/list")).status == 200
        assert (await there.send("POST", "/mcp/", HEADERS, b"{")).status == 400
        assert (await there.send("GET", "/hello")).body == b"hello"
    assert entered == ["in", "out"]


def starlette(server: Server, routes: list[Any]) -> Starlette:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with server.running():
            yield

    return Starlette(routes=routes, lifespan=lifespan)


async def test_it_can_be_mounted_in_starlette() -> None:
    entered: list[str] = []
    server = with_lifespan(entered)
    hello = Route("/hello", lambda _: PlainTextResponse("hello"))
    async with hosted(
        starlette(server, [hello, Mount("/", server.asgi())]), server
    ) as there:
        assert entered == ["in"]
        assert (await there.send("GET", "/hello")).body == b"hello"
        response = await there.modern(
            "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}
        )
        assert response.json["result"]["content"][0]["text"] == "3"
        assert (await there.send("POST", "/mcp/", HEADERS, b"{")).status == 400
    assert entered == ["in", "out"]


@pytest.mark.parametrize(
    ("mount", "path"), [("/mcp", "/mcp"), ("/tools", "/tools/mcp")]
)
async def test_below_a_mount_the_path_is_the_one_that_clients_see(
    mount: str, path: str
) -> None:
    server = make_server()
    async with hosted(
        starlette(server, [Mount(mount, server.asgi(path))]), server
    ) as there:
        assert (await there.send("POST", f"{path}/", HEADERS, b"{")).status == 400


NO_HEAD = {"method": "GET", "path": "/healthz", "query_string": b"", "headers": []}
REQUEST = {"type": "http", "http_version": "1.1", **NO_HEAD}


async def never(*_: Any) -> Any:
    pytest.fail("served")


async def test_a_lifespan_that_is_forgotten_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"enter server\.running\(\)"):
        await make_server().asgi()(REQUEST, never, never)


@pytest.mark.parametrize("kind", ["http", "lifespan"])
def test_asyncio_is_refused_in_plain_words(kind: str) -> None:
    with pytest.raises(RuntimeError, match="runs on trio"):
        asyncio.run(make_server().asgi()({"type": kind}, never, never))
