"""Clients that send or read a byte at a time do not slow down others."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    suppress,
)
from statistics import median

import pytest
import trio
import trio.testing

from mcp_trio.transports.http import server as native
from tests.support.command_line import ROOT, started
from tests.support.http_wire import (
    MODERN,
    Signals,
    Wire,
    make_server,
    message,
    modern_headers,
    request,
    site,
    site_on,
)
from tests.support.paths import PROJECT

EACH = 500
ROUNDS, CALLS = 5, 400
# The seconds between two calls, so that a round is long enough to show an effect.
PAUSE = 0.002
# Below this many seconds, a 99th percentile shows the machine rather than the server:
# another process may use the core for some milliseconds between two calls.
NOISE = 0.005

SUM = message(
    "tools/call",
    {"name": "calculate_sum", "arguments": {"a": 1, "b": 2}, "_meta": MODERN},
)
CALL = request("POST", "/mcp", modern_headers(SUM), json.dumps(SUM).encode())


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Allow as many descriptors as possible, for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def process_of(
    *words: str, **options: int
) -> AbstractContextManager[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{PROJECT}"}
    return started([sys.executable, *words], env=environment, text=True, **options)


@contextmanager
def serving(descriptors: int = 0) -> Iterator[int]:
    """Run the server as users start it. Yields its port."""
    command = ["-m", "mcp_trio", "--http", "0"]
    if descriptors:
        limit = (descriptors, descriptors)
        program = f"""
import resource
from mcp_trio.cli.main import main

resource.setrlimit(resource.RLIMIT_NOFILE, {limit})
main(["--http", "0"])
"""
        command = ["-c", program]
    with process_of(*command, stderr=subprocess.PIPE) as server:
        line = ""
        while "/mcp" not in line:
            line = server.stderr.readline()
            assert line, "the server did not start"
        yield int(line.rpartition(":")[2].partition("/")[0])


def open_connection(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def call(connection: socket.socket) -> None:
    """Make a call, and check the reply."""
    connection.sendall(CALL)
    answer = b""
    while True:
        head, _, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)\r\n", head + b"\r\n")
        if length and len(body) == int(length[1]):
            break
        piece = connection.recv(65536)
        assert piece, f"the connection has ended: {answer!r}"
        answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["result"]["structuredContent"] == 3


def p99(port: int) -> float:
    """Return the 99th percentile of honest calls.

    Most use a kept connection, and each tenth a new one.
    """
    seconds = []
    with open_connection(port) as kept:
        for number in range(CALLS):
            begun = time.perf_counter()
            if number % 10:
                call(kept)
            else:
                with open_connection(port) as fresh:
                    call(fresh)
            seconds.append(time.perf_counter() - begun)
            time.sleep(PAUSE)
    return sorted(seconds)[CALLS * 99 // 100]


@pytest.mark.load
@pytest.mark.slow
def test_honest_calls_do_not_wait_for_slow_attackers(descriptors: None) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        serving() as port,
        process_of(
            "-m",
            "tests.support.slow_attackers",
            str(port),
            str(EACH),
            **pipes,
        ) as attackers,
    ):

        def tell(word: str) -> int:
            attackers.stdin.write(f"{word}\n")
            attackers.stdin.flush()
            return int(attackers.stdout.readline())

        # The first calls import modules.
        p99(port)
        quiet, attacked = [], []
        for _ in range(ROUNDS):
            quiet.append(p99(port))
            assert tell("on") == 3 * EACH
            attacked.append(p99(port))
            assert tell("off") == 0
    medians = [f"{1000 * median(rounds):.2f} ms" for rounds in (quiet, attacked)]
    rounds = [round(1000 * seconds, 2) for seconds in (*quiet, *attacked)]
    print("p99 without and with attackers:", *medians, rounds)
    assert median(attacked) <= max(2 * median(quiet), NOISE), (
        f"p99 without and with attackers: {medians}"
    )


# The number of connections


async def test_beyond_the_bound_the_longest_waiting_connections_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", 10)
    monkeypatch.setattr(native, "ROOM", 2)
    monkeypatch.setattr(native, "TICK", 0.01)
    async with site(make_server()) as there, AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(there.wire()) for _ in range(10)]
        for wire in wires:
            assert (await wire.request("GET", "/healthz", {})).status == 200
            await trio.sleep(0.02)  # so that their times differ
        for wire in wires[:3]:
            assert (await wire.request("GET", "/healthz", {})).status == 200
        # A part of a request does not count as a use of the connection.
        await wires[4].send(b"GET /hea")
        assert (await there.send("GET", "/healthz")).status == 200
        assert await wires[3].ended()
        for wire in wires[6:] + wires[:3]:
            assert (await wire.request("GET", "/healthz", {})).status == 200


async def test_a_new_connection_waits_while_all_others_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", 5)
    signals = Signals()
    waiting = message("tools/call", {"name": "wait", "_meta": MODERN})
    async with site(make_server(signals)) as there, AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(there.wire()) for _ in range(5)]
        for wire in wires:
            await wire.send(
                request(
                    "POST",
                    "/mcp",
                    modern_headers(waiting),
                    json.dumps(waiting).encode(),
                )
            )
        await signals.begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        async with there.wire() as late:
            await late.send(request("GET", "/healthz"))
            with trio.move_on_after(0.1) as patience:
                await late.more()
            assert patience.cancelled_caught
            signals.go.set()
            assert (await late.response()).status == 200
            for wire in wires:
                assert (await wire.response()).status == 200


@pytest.mark.parametrize("path", ["/sse", "/mcp"])
async def test_the_client_with_the_most_streams_takes_no_place_from_others(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(native, "ROOM", 2)
    signals = Signals()
    waiting = message("tools/call", {"name": "wait", "_meta": MODERN})
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
    }
    upgrade["Sec-WebSocket-Key"] = "MDEyMzQ1Njc4OWFiY2RlZg=="
    async with (
        site_on("native", make_server(signals)) as there,
        AsyncExitStack() as stack,
    ):
        other = await trio.open_tcp_stream(
            "127.0.0.1", there.port, local_address="127.0.0.2"
        )
        honest, busy, *hogs = [
            Wire(other),
            *[await stack.enter_async_context(there.wire()) for _ in range(7)],
        ]
        await stack.enter_async_context(other)
        await honest.send(request("GET", "/sse", {"Accept": "text/event-stream"}))
        assert (await honest.head()).status == 200
        await busy.send(
            request(
                "POST", "/mcp", modern_headers(waiting), json.dumps(waiting).encode()
            )
        )
        await signals.begun.wait()
        for hog in hogs:
            await hog.send(
                request(
                    "GET",
                    path,
                    upgrade if path == "/mcp" else {"Accept": "text/event-stream"},
                )
            )
            assert (await hog.head()).status == (101 if path == "/mcp" else 200)
        assert (await there.send("GET", "/healthz")).status == 200
        await hogs[0].to_end()
        signals.go.set()
        assert (await busy.response()).status == 200
        assert b"/messages" in await honest.chunk()
        assert (
            b"mcp_streams 1" in (await there.send("GET", "/metrics")).body
            or path == "/sse"
        )


@pytest.mark.slow
def test_a_server_without_descriptors_makes_room(descriptors: None) -> None:
    with serving(descriptors=60) as port, ExitStack() as stack:
        attackers = [stack.enter_context(open_connection(port)) for _ in range(200)]
        for attacker in attackers:
            attacker.sendall(b"POST /mcp HTTP/1.1\r\n")
        for _ in range(20):
            with open_connection(port) as honest:
                call(honest)
        with suppress(ConnectionResetError):  # this also ends it
            # On a slow machine it may have taken too long for a head, which ends it too.
            assert attackers[0].makefile("rb").read()[:12] in (b"", b"HTTP/1.1 408")
