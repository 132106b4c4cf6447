"""The reader of the native host: idle connections have no task."""

import itertools
import json
import os
import select
import socket
import sys
import time
from contextlib import AsyncExitStack, closing
from contextvars import ContextVar
from functools import partial

import pytest
import trio
import trio.testing

from mcp_trio import Access, Server
from mcp_trio.transports.http import reader as reader_module
from mcp_trio.transports.http.connection import Connection, Host
from mcp_trio.transports.http.reader import Reader
from mcp_trio.transports.http.server import OtherWork
from mcp_trio.transports.http.service import Service
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
from tests.support.websocket import UPGRADE

HAS_EPOLL = hasattr(select, "epoll")


def call(tool: str, token: str = "", **arguments: object) -> bytes:
    body = message(
        "tools/call", {"name": tool, "arguments": arguments, "_meta": MODERN}
    )
    headers = modern_headers(body) | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    return request("POST", "/mcp", headers, json.dumps(body).encode())


ADD = call("add", a=1, b=2)


async def answered(wire: Wire) -> str:
    response = await wire.response()
    assert response.status == 200, response.body
    return str(response.json["result"]["content"][0]["text"])


async def added(wire: Wire) -> None:
    await wire.send(ADD)
    assert await answered(wire) == "3"


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


@pytest.mark.skipif(
    not HAS_EPOLL, reason="where there is no epoll each connection has a task"
)
async def test_connections_that_wait_for_their_clients_have_no_tasks() -> None:
    async with site(make_server()) as there, AsyncExitStack() as wires:
        before = tasks()
        for _ in range(20):
            await added(await wires.enter_async_context(there.wire()))
        await trio.testing.wait_all_tasks_blocked()
        assert tasks() == before


@pytest.mark.skipif(
    not HAS_EPOLL, reason="where there is no epoll each connection has a task"
)
async def test_a_connection_whose_request_waited_needs_no_task_again_after_one_that_did_not() -> (
    None
):
    signals = Signals()
    async with site(make_server(signals)) as there, there.wire() as wire:
        await added(wire)
        before = tasks()
        await wire.send(call("wait"))
        await signals.begun.wait()
        assert tasks() > before
        signals.go.set()
        assert await answered(wire) == "went"
        await added(wire)
        with trio.fail_after(30):
            while tasks() != before:
                await trio.sleep(0.01)


async def test_other_connections_are_served_while_requests_wait() -> None:
    signals = Signals()
    async with (
        site(make_server(signals)) as there,
        there.wire() as waiting,
        there.wire() as other,
    ):
        await waiting.send(call("wait") + ADD)
        await signals.begun.wait()
        for _ in range(3):
            await added(other)
        signals.go.set()
        assert await answered(waiting) == "went"
        assert await answered(waiting) == "3"


async def test_requests_that_arrive_together_are_all_answered_though_some_wait() -> (
    None
):
    signals = Signals()
    async with site(make_server(signals)) as there, AsyncExitStack() as wires:
        some = [await wires.enter_async_context(there.wire()) for _ in range(12)]
        for number, wire in enumerate(some):
            await wire.send(call("wait") if number % 3 == 0 else ADD)
        for number, wire in enumerate(some):
            if number % 3:
                assert await answered(wire) == "3"
        signals.go.set()
        for wire in some[::3]:
            assert await answered(wire) == "went"


class Answering:
    """A connection with a client that sends on other connections when it has a reply."""

    client = "127.0.0.1"

    def __init__(self, reader: Reader) -> None:
        self.replies = 0
        self.seconds = 0.0  # how long it takes to answer
        self.others: list[Answering] = []
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.descriptor = self._ours.fileno()
        reader.watch(self)

    def send(self) -> None:
        """Let the client send something."""
        self._theirs.send(b"x")

    def take_turn(self, scope: trio.CancelScope) -> None:
        """Read what the client has sent, and be busy for a while."""
        self._ours.recv(100)
        ends = time.perf_counter() + self.seconds
        while time.perf_counter() < ends:
            pass

    def flush_at_once(self) -> bool:
        """Reply."""
        self.replies += 1
        for other in self.others:
            other.send()
        return True

    def close(self) -> None:
        """Close both sides."""
        self._ours.close()
        self._theirs.close()


@pytest.mark.skipif(
    not HAS_EPOLL, reason="where there is no epoll each connection has a task"
)
@pytest.mark.parametrize(
    ("others_wait", "seconds", "replies"),
    [(False, 0.0, 5), (False, 0.1, 1), (True, 0.0, 1)],
)
async def test_requests_that_arrive_during_a_turn_are_served_in_it_unless_others_wait(
    monkeypatch: pytest.MonkeyPatch, seconds: float, replies: int, *, others_wait: bool
) -> None:
    monkeypatch.setattr(reader_module, "TURN", 0.05)
    with closing(Reader(busy_wait=False)) as reader:
        reader.others_wait = lambda: others_wait
        connections = [Answering(reader) for _ in range(5)]
        for one, following in itertools.pairwise(connections):
            one.others.append(following)
        connections[0].seconds = seconds
        connections[0].send()
        await reader.wait()
        assert reader.take_turn(trio.CancelScope()) is None
        assert sum(connection.replies for connection in connections) == replies
        if replies < len(connections):
            with trio.fail_after(30):
                await reader.wait()


@pytest.mark.skipif(
    not HAS_EPOLL, reason="where there is no epoll each connection has a task"
)
@pytest.mark.parametrize("work", ["none", "a connection", "a task"])
async def test_a_turn_ends_when_another_task_has_something_to_do(
    monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    monkeypatch.setattr(reader_module, "TURN", 10)
    server = Server("x")
    with (
        closing(Reader(busy_wait=False)) as reader,
        closing(Service(server)) as service,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.socket()) as client,
    ):
        async with server.running(), trio.open_nursery() as nursery:
            host = Host(service, nursery, reader, None)
            reader.others_wait = OtherWork(host, [listener]).may_wait
            connections = [Answering(reader) for _ in range(5)]
            for one, following in itertools.pairwise(connections):
                one.others.append(following)
            if work == "a connection":
                client.connect(listener.getsockname())
            elif work == "a task":
                for _ in range(6):
                    with socket.create_connection(listener.getsockname()):
                        accepted, _ = listener.accept()
                    host.connections.add(Connection(host, accepted, "127.0.0.1", None))
            connections[0].send()
            await reader.wait()
            assert reader.take_turn(trio.CancelScope()) is None
            replies = sum(connection.replies for connection in connections)
            assert replies == (5 if work == "none" else 1)
            for connection in list(host.connections):
                connection.close()


async def test_a_client_that_does_not_read_holds_up_nobody() -> None:
    async with (
        site(make_server()) as there,
        there.wire() as deaf,
        there.wire() as other,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(deaf.send, call("echo", text="x" * 2**20) * 12)
        await trio.testing.wait_all_tasks_blocked(0.02)
        for _ in range(3):
            await added(other)
        for _ in range(12):
            assert len(await answered(deaf)) == 2**20


async def test_without_epoll_all_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll", raising=False)
    signals = Signals()
    async with (
        site(make_server(signals)) as there,
        there.wire() as waiting,
        there.wire() as other,
    ):
        await waiting.send(call("wait") + ADD)
        await signals.begun.wait()
        await other.send(ADD * 3)
        assert [await answered(other) for _ in range(3)] == ["3"] * 3
        there.stopping.set()
        assert await other.ended()
        signals.go.set()
        assert await answered(waiting) == "went"
        assert await waiting.ended()


@pytest.mark.parametrize("waits", [0, 0.01])
@pytest.mark.parametrize("turn", ["its task's", "the reader's"])
async def test_a_tool_that_leaves_a_cancel_scope_open_spoils_no_other_request(
    waits: float, turn: str
) -> None:
    server = Server("leaky")

    @server.tool
    async def leaky(wait: float) -> str:
        await trio.sleep(wait) if wait else None
        trio.move_on_after(0.02).__enter__()
        return "ok"

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def slow() -> str:
        await trio.sleep(0.05)
        return "slow"

    async with site(server) as there, there.wire() as other:
        await added(other)
        async with there.wire() as wire:
            if turn == "the reader's":
                await added(wire)
            await wire.send(call("leaky", wait=waits))
            assert await answered(wire) == "ok"
            await other.send(call("slow"))
            assert (
                await answered(other) == "slow"
            )  # the scope that was left open has ended in the meantime
            await added(other)
        async with there.wire() as another:
            await added(another)


async def test_a_client_is_told_to_continue_in_the_readers_turn() -> None:
    head, mark, body = ADD.partition(b"\r\n\r\n")
    async with site(make_server()) as there, there.wire() as wire:
        await added(wire)
        await wire.send(head + b"\r\nExpect: 100-continue" + mark)
        assert await wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(body)
        assert await answered(wire) == "3"


async def test_a_connection_can_become_a_websocket_after_requests() -> None:
    async with site_on("native", make_server()) as there, there.wire() as wire:
        await added(wire)
        await wire.send(ADD + UPGRADE)
        assert await answered(wire) == "3"
        assert (await wire.head()).status == 101


async def test_a_connection_is_closed_after_the_last_request_of_its_client() -> None:
    async with site(make_server()) as there, there.wire() as wire:
        await added(wire)
        await wire.send(ADD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert await answered(wire) == "3"
        assert await wire.ended()


async def test_a_callback_that_fails_ends_only_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = make_server()

    def fail(*_: object) -> None:
        raise RuntimeError("the callback failed")

    async with site(server) as there, there.wire() as wire, there.wire() as other:
        await added(wire)
        await added(other)
        server.on_message = fail
        await wire.send(ADD)
        assert await wire.ended()
        server.on_message = None
        await added(other)
    assert "a connection failed" in caplog.text
    assert "the callback failed" in caplog.text


async def test_the_end_of_the_host_ends_a_connection_in_the_middle_of_a_head() -> None:
    async with site(make_server(grace=0.01)) as there, there.wire() as wire:
        await wire.send(b"POST /mcp HT")
        await trio.testing.wait_all_tasks_blocked()
        there.stopping.set()
        assert await wire.ended()


# Clients do not affect each other


# Sends requests without end, and reads the replies. In a process of its own it is ahead
# of the server always.
FLOOD = """
import socket, sys, threading
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def read():
    while connection.recv(1 << 20):
        pass
threading.Thread(target=read, daemon=True).start()
block = sys.stdin.buffer.read()
while True:
    connection.sendall(block)
"""


async def test_a_client_that_sends_without_end_starves_nobody() -> None:
    server, calls, is_flooded = make_server(), itertools.count(), trio.Event()

    @server.tool
    async def flooded() -> str:
        if next(calls) == 5_000:
            is_flooded.set()
        return "flooded"

    async with (
        site(server) as there,
        there.wire() as other,
        trio.open_nursery() as nursery,
    ):
        await added(other)
        flood = [sys.executable, "-c", FLOOD, str(there.port)]
        nursery.start_soon(
            partial(trio.run_process, flood, stdin=call("flooded") * 1_000, check=False)
        )
        await is_flooded.wait()
        for _ in range(10):
            await added(other)
        nursery.cancel_scope.cancel()


async def test_many_requests_in_one_piece_hold_up_nobody() -> None:
    server = make_server()
    begun: list[str] = []

    @server.tool
    async def busy() -> str:
        begun.append("busy")
        time.sleep(0.002)  # noqa: ASYNC251
        return "done"

    async with site(server) as there, there.wire() as hasty, there.wire() as other:
        await added(other)
        await added(hasty)
        await hasty.send(call("busy") * 50)
        await added(other)
        assert len(begun) < 25
        for _ in range(50):
            assert await answered(hasty) == "done"


async def test_what_a_verifier_sets_in_its_context_stays_with_its_client() -> None:
    role = ContextVar("role", default="unset")

    async def verify(token: str) -> str:
        if token == "admin":
            role.set("admin")
        return token

    server = Server("guarded", access=Access(verify))

    @server.tool
    async def who() -> str:
        return role.get()

    async with site(server) as there, there.wire() as admin, there.wire() as bob:
        for _ in range(3):
            await admin.send(call("who", token="admin"))
            assert await answered(admin) == "admin"
            await bob.send(call("who", token="bob"))
            assert await answered(bob) == "unset"


# The end


@pytest.mark.parametrize("tool", ["add", "wait"])
async def test_requests_received_before_the_server_stops_are_answered(
    tool: str,
) -> None:
    signals = Signals()
    asked, told = (ADD, "3") if tool == "add" else (call("wait"), "went")
    async with site(make_server(signals)) as there, AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(there.wire()) for _ in range(8)]
        for wire in wires:
            await added(wire)
        for wire in wires:
            assert isinstance(wire.stream, trio.SocketStream)
            os.write(
                wire.stream.socket.fileno(), asked
            )  # and nothing is read before the server stops
        there.stopping.set()
        await trio.testing.wait_all_tasks_blocked()
        signals.go.set()
        for wire in wires:
            assert await answered(wire) == told
            assert await wire.ended()


async def test_a_request_whose_token_is_verified_when_the_server_stops_is_answered() -> (
    None
):
    signals = Signals()

    async def verify(token: str) -> str:
        signals.begun.set()
        await signals.go.wait()
        return token

    server = Server("guarded", access=Access(verify))

    @server.tool
    async def slow() -> str:
        await trio.sleep(0.01)
        return "slow"

    async with site(server) as there, there.wire() as wire:
        await wire.send(call("slow", token="a"))
        await signals.begun.wait()
        there.stopping.set()
        await trio.testing.wait_all_tasks_blocked()
        signals.go.set()
        assert await answered(wire) == "slow"
        assert await wire.ended()


@pytest.mark.skipif(not HAS_EPOLL, reason="only there connections are watched")
async def test_slow_requests_of_one_client_do_not_queue_before_another_client() -> None:
    server = make_server()
    served: list[str] = []

    @server.tool
    async def compute(name: str) -> str:
        """Hold the loop for longer than a turn."""
        begun = time.perf_counter()
        while time.perf_counter() < begun + 0.004:
            pass
        served.append(name)
        return "done"

    async with site(server) as there, AsyncExitStack() as stack:

        async def connect_from(address: str) -> tuple[socket.socket, Wire]:
            own = socket.create_connection(
                ("127.0.0.1", there.port), source_address=(address, 0)
            )
            own.setblocking(False)
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(own))
            wire = Wire(await stack.enter_async_context(stream))
            for _ in range(2):  # from the second request on, the reader watches it
                await added(wire)
            return own, wire

        busy = [await connect_from("127.0.0.1") for _ in range(8)]
        other = await connect_from("127.0.0.2")
        await trio.testing.wait_all_tasks_blocked()
        # All of them arrive before the server has its next turn.
        for own, _ in busy:
            own.send(call("compute", name="busy"))
        other[0].send(call("compute", name="other"))
        for _, wire in [*busy, other]:
            assert await answered(wire) == "done"
    assert served.index("other") <= 1
