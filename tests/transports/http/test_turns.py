"""Slow requests of one client, on any number of connections, do not delay others."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from mcp_trio import Access, Limits, Server
from mcp_trio.server.accounts import Account
from mcp_trio.server.request import Request
from mcp_trio.server.turns import Turns
from mcp_trio.transports.http import server as native
from tests.support.http_wire import (
    MODERN,
    Site,
    Wire,
    message,
    modern_headers,
    request,
    site_on,
)
from tests.support.websocket import UPGRADE, masked

# Longer than a turn.
SLOW = 0.003
CONNECTIONS = 8
# Bytes of a large request.
SIZE = 300_000
PROXIES = ["127.0.0.1"]
BUSY = "192.0.2.1"
OTHER = "192.0.2.2"


def post(client: str, text: str) -> bytes:
    """Return a call of the slow tool, as a proxy passes it on for a client."""
    body = slow_call(text)
    headers = modern_headers(body) | {"X-Forwarded-For": client}
    return request("POST", "/mcp", headers, json.dumps(body).encode())


def frame(client: str, text: str) -> bytes:
    """Return a call of the slow tool in a frame of a WebSocket."""
    return masked(1, json.dumps(slow_call(text)).encode())


def slow_call(text: str) -> dict[str, object]:
    params = {"name": "compute", "arguments": {"text": text}, "_meta": MODERN}
    return message("tools/call", params)


def upgrade(client: str) -> bytes:
    host = b"Host: localhost\r\n"
    return UPGRADE.replace(host, host + f"X-Forwarded-For: {client}\r\n".encode())


class Slow:
    """A server with a slow tool, and what its first call makes happen."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.server = Server("slow", limits=limits)
        self.served: list[str] = []
        self.seconds = SLOW
        self.meanwhile: Callable[[], object] = list
        self.server.tool(self.compute)

    async def compute(self, text: str) -> str:
        """Hold the event loop, by default for longer than a turn."""
        self.meanwhile()
        self.meanwhile = list
        begun = time.perf_counter()
        while time.perf_counter() < begun + self.seconds:
            pass
        self.served.append(text[:5])
        return "done"


class Client(Wire):
    """A connection that can also be written to without a checkpoint."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        super().__init__(trio.SocketStream(trio.socket.from_stdlib_socket(connection)))
        self.connection = connection


async def connect(
    there: Site, stack: AsyncExitStack, address: str = "127.0.0.1"
) -> Client:
    """Connect from an address of this machine."""
    connection = socket.create_connection(
        ("127.0.0.1", there.port), source_address=(address, 0)
    )
    client = Client(connection)
    await stack.enter_async_context(client.stream)
    return client


async def upgrade_all(clients: list[Client], address: str) -> None:
    for client in clients:
        await client.send(upgrade(address))
        await client.head()


@pytest.mark.parametrize("connections", ["fresh", "used before", "WebSockets"])
async def test_slow_requests_on_many_connections_let_another_client_go_first(
    connections: str,
) -> None:
    slow = Slow()
    call = frame if connections == "WebSockets" else post
    async with (
        site_on("native", slow.server, trusted_proxies=PROXIES) as there,
        AsyncExitStack() as stack,
    ):
        busy = [await connect(there, stack) for _ in range(CONNECTIONS)]
        other = await connect(there, stack)
        if connections == "used before":
            for client in [*busy, other]:
                await client.send(post("192.0.2.3", "before"))
                await client.response()
        elif connections == "WebSockets":
            await upgrade_all(busy, BUSY)
            await upgrade_all([other], OTHER)
        await trio.testing.wait_all_tasks_blocked()
        slow.served.clear()
        slow.meanwhile = lambda: other.connection.send(call(OTHER, "other"))
        # All of them arrive before the server looks.
        for client in busy:
            client.connection.send(call(BUSY, "busy"))
        for client in [*busy, other]:
            await client.until(b'"done"')
    assert slow.served.index("other") <= 2


async def test_slow_requests_that_arrive_together_let_another_client_go_first() -> None:
    slow = Slow()
    async with (
        site_on("native", slow.server, trusted_proxies=PROXIES) as there,
        AsyncExitStack() as stack,
    ):
        busy, other = [await connect(there, stack) for _ in range(2)]
        slow.meanwhile = lambda: other.connection.send(post(OTHER, "other"))
        await busy.send(post(BUSY, "busy") * 8)
        await other.until(b'"done"')
        for _ in range(8):
            await busy.until(b'"done"')
    assert slow.served.index("other") <= 2


@pytest.mark.parametrize("connections", ["fresh", "used before", "with a request"])
async def test_parsing_many_requests_lets_another_client_go_first(
    connections: str,
) -> None:
    quick = Slow()
    quick.seconds = 0
    is_done = trio.Event()

    @quick.server.tool
    async def wait() -> str:
        await is_done.wait()
        return "waited"

    waiting = message("tools/call", {"name": "wait", "_meta": MODERN})
    many = request("GET", "/healthz") * 1500
    async with site_on("native", quick.server) as there, AsyncExitStack() as stack:
        busy = [await connect(there, stack) for _ in range(CONNECTIONS)]
        other = await connect(there, stack, "127.0.0.2")
        for client in busy:
            if connections == "used before":
                await client.send(post(BUSY, "before"))
                await client.response()
            elif connections == "with a request":
                data = json.dumps(waiting).encode()
                headers = modern_headers(waiting)
                await client.send(request("POST", "/mcp", headers, data))
        await trio.testing.wait_all_tasks_blocked()
        quick.served.clear()
        quick.meanwhile = lambda: other.connection.send(post(OTHER, "other"))
        for client in busy:
            client.connection.send(post(BUSY, "busy") + many)
        await trio.testing.wait_all_tasks_blocked()
        is_done.set()
        for client in [*busy, other]:
            await client.until(b'"done"')
    assert quick.served.index("other") <= 2


async def test_requests_that_follow_on_the_connection_are_answered_after_the_wait() -> (
    None
):
    slow = Slow()
    size = 100_000
    async with (
        site_on("native", slow.server, trusted_proxies=PROXIES) as there,
        AsyncExitStack() as stack,
        trio.open_nursery() as nursery,
    ):
        busy = [await connect(there, stack) for _ in range(2)]
        for client in busy:
            nursery.start_soon(client.send, post(BUSY, "x" * size) * 6)
        for client in busy:
            for _ in range(6):
                await client.until(b'"done"')


async def prevent_turns(
    turns: Turns,
    account: Account,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Let the requests of a client wait for as long as this runs."""
    turns.end(account)
    task_status.started()
    while True:
        turns.end(account)
        await trio.lowlevel.checkpoint()


async def test_connections_that_wait_for_their_turn_give_way_to_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MOST_CONNECTIONS", CONNECTIONS)
    slow = Slow()
    turns = slow.server.turns
    account = Account("address", BUSY)
    async with (
        site_on("native", slow.server, trusted_proxies=PROXIES) as there,
        AsyncExitStack() as stack,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(prevent_turns, turns, account)
        for _ in range(CONNECTIONS):
            client = await connect(there, stack)
            await client.send(post(BUSY, "busy"))
        while len(turns.lines[account].waiting) < CONNECTIONS:
            await trio.lowlevel.checkpoint()
        other = await connect(there, stack)
        await other.send(post(OTHER, "other"))
        await other.until(b'"done"')
        assert slow.served == ["other"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("transport", ["HTTP", "WebSocket"])
async def test_requests_that_wait_for_their_turn_are_charged(transport: str) -> None:
    slow = Slow()
    account = Account("address", BUSY)
    turns = slow.server.turns
    ledger = slow.server.ledger
    call = frame if transport == "WebSocket" else post

    async with (
        site_on("native", slow.server, trusted_proxies=PROXIES) as there,
        AsyncExitStack() as stack,
    ):
        busy = [await connect(there, stack) for _ in range(CONNECTIONS)]
        if transport == "WebSocket":
            await upgrade_all(busy, BUSY)
        async with trio.open_nursery() as nursery:
            await nursery.start(prevent_turns, turns, account)
            for client in busy:
                nursery.start_soon(client.send, call(BUSY, "x" * SIZE))
            with trio.fail_after(30):
                while len(turns.lines[account].waiting) < CONNECTIONS:
                    await trio.lowlevel.checkpoint()
            assert ledger.by_kind["bodies"] >= CONNECTIONS * SIZE
            slow.server.use_limits(Limits(memory=CONNECTIONS * SIZE // 2))
            ledger.keep_budget()
            assert ledger.held <= ledger.budget
            nursery.cancel_scope.cancel()
        answers = [await answer_to(client) for client in busy]
    assert len(slow.served) == sum(b"done" in answer for answer in answers)
    assert 0 < len(slow.served) < CONNECTIONS
    if transport == "HTTP":
        assert sum(answer.startswith(b"HTTP/1.1 503") for answer in answers)


@pytest.mark.parametrize("connection", ["fresh", "used before"])
async def test_a_token_is_verified_once_for_a_request_that_waits_for_its_turn(
    connection: str,
) -> None:
    slow = Slow()
    turns = slow.server.turns
    verified: list[str] = []

    async def verify(token: str) -> str:
        verified.append(token)
        return "busy"

    slow.server.access = Access(verify, remember=0)
    account = Account("principal", "busy")
    body = slow_call("busy")
    headers = modern_headers(body) | {"Authorization": "Bearer token"}
    call = request("POST", "/mcp", headers, json.dumps(body).encode())
    async with (
        site_on("native", slow.server) as there,
        AsyncExitStack() as stack,
    ):
        client = await connect(there, stack)
        if connection == "used before":
            await client.send(call)
            await client.response()
            while turns.lines:
                await trio.lowlevel.checkpoint()
            verified.clear()
        async with trio.open_nursery() as nursery:
            await nursery.start(prevent_turns, turns, account)
            await client.send(call)
            with trio.fail_after(30):
                while not turns.lines[account].waiting:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert (await client.response()).status == 200
    assert verified == ["token"]


async def answer_to(client: Client) -> bytes:
    """Return what the server sends, up to the end of a result, or of all."""
    data = b""
    while b'"done"' not in data and b"memory" not in data:
        with trio.fail_after(30):
            piece = await client.stream.receive_some(65536)
        if not piece:
            break
        data += piece
    return data


class Ends:
    """Notes whose requests end, in which order. The first end makes something happen."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.clients: list[str] = []
        self.meanwhile = meanwhile

    def began(self, request: Request) -> None:
        """Note nothing."""

    def ended(self, request: Request, seconds: float) -> None:
        if not self.clients:
            self.meanwhile()
        self.clients.append(request.conversation.address)


@pytest.mark.parametrize("kind", ["text", "structured", "resource", "prompt"])
async def test_large_results_of_requests_that_waited_together_let_others_go_first(
    kind: str,
) -> None:
    server = Server("large")
    go = trio.Event()
    # It takes longer than a turn to write this as JSON.
    text = '"' * 2**20

    @server.tool(name="text")
    async def large_text() -> str:
        await go.wait()
        return text

    @server.tool(name="structured")
    async def large_structure() -> list[str]:
        await go.wait()
        return [text]

    @server.resource("large://resource")
    async def large_resource() -> str:
        await go.wait()
        return text

    @server.prompt(name="prompt")
    async def large_prompt() -> str:
        await go.wait()
        return text

    @server.tool
    async def quick() -> str:
        return "done"

    def ask(client: str, method: str, **params: object) -> bytes:
        body = message(method, {**params, "_meta": MODERN})
        headers = modern_headers(body) | {"X-Forwarded-For": client}
        return request("POST", "/mcp", headers, json.dumps(body).encode())

    requests = {
        "text": ask(BUSY, "tools/call", name="text"),
        "structured": ask(BUSY, "tools/call", name="structured"),
        "resource": ask(BUSY, "resources/read", uri="large://resource"),
        "prompt": ask(BUSY, "prompts/get", name="prompt"),
    }
    async with (
        site_on("native", server, trusted_proxies=PROXIES) as there,
        AsyncExitStack() as stack,
    ):
        busy = [await connect(there, stack) for _ in range(4)]
        other = await connect(there, stack)
        quickly = ask(OTHER, "tools/call", name="quick")
        ends = Ends(lambda: other.connection.send(quickly))
        server.observe_requests(ends)
        for client in busy:
            await client.send(requests[kind])
        while server.limiter.total < len(busy):
            await trio.lowlevel.checkpoint()
        go.set()
        for client in [*busy, other]:
            assert (await client.response()).status == 200
    assert ends.clients.index(OTHER) <= 2
