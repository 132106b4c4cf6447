import socket
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest
import trio
import trio.testing
import trio_websocket

from mcp_trio import Context, Server
from mcp_trio.client.client import talk
from mcp_trio.client.errors import NotAMessage, RemoteError, ServerGone
from mcp_trio.client.http import HttpWire
from mcp_trio.client.http_connection import Connections
from mcp_trio.client.target import connect
from mcp_trio.client.websocket import open_websocket
from mcp_trio.transports.http.server import serve_http
from mcp_trio.transports.websocket import serve_websocket
from tests.support.ports import refusing_port

STREAMABLE = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
OLDEST = ["2024-10-07", "2024-11-05"]


def make_routing_server():
    server = Server("over HTTP")
    server.begun = trio.Event()
    server.ended = trio.Event()
    server.full = trio.Event()
    present = []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(seconds: float, context: Context) -> str:
        await context.progress(0, 1)
        server.begun.set()
        try:
            await trio.sleep(seconds)
        finally:
            server.ended.set()
        return "waited"

    @server.tool
    async def meet(people: int) -> str:
        """Wait until this many calls run at the same time."""
        present.append(people)
        if len(present) == people:
            server.full.set()
        await server.full.wait()
        return "met"

    header = {"type": "string", "x-mcp-header": "Region"}

    @server.tool(
        input_schema={
            "type": "object",
            "properties": {"region": header},
            "required": ["region"],
        }
    )
    async def routed(region: str) -> str:
        return region

    return server


@asynccontextmanager
async def serving(server=None):
    """Run a server on the native host. Yields its address."""
    server = server or make_routing_server()

    async def upgrade(stream, head, principal, token, address, headers):
        await serve_websocket(
            server, stream, head, trio.Event(), principal, token=token
        )

    async def serve(task_status):
        await serve_http(
            server,
            "127.0.0.1",
            0,
            stopping=trio.Event(),
            upgrade=upgrade,
            task_status=task_status,
        )

    async with server.running(), trio.open_nursery() as nursery:
        [(host, port)] = await nursery.start(serve)
        yield f"{host}:{port}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client_over(way, revision, server=None, **options):
    scheme, path = {
        "http": ("http", "/mcp"),
        "sse": ("http", "/sse"),
        "ws": ("ws", "/mcp"),
    }[way]
    with trio.fail_after(30):
        async with (
            serving(server) as address,
            connect(f"{scheme}://{address}{path}", revision, **options) as client,
        ):
            yield client


EVERY_WAY = [
    *[("http", revision) for revision in STREAMABLE],
    *[("sse", revision) for revision in OLDEST],
    *[("ws", revision) for revision in OLDEST + STREAMABLE],
]


@pytest.mark.parametrize(("way", "revision"), EVERY_WAY)
async def test_tools_are_listed_and_called(way, revision):
    async with client_over(way, revision) as client:
        assert {"add", "echo"} <= {tool["name"] for tool in await client.list_tools()}
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert "5" in str(result)


@pytest.mark.parametrize(("way", "revision"), EVERY_WAY)
async def test_an_error_is_raised_and_the_next_call_served(way, revision):
    async with client_over(way, revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.request("no/such/method")
        assert caught.value.code == -32601
        await client.call_tool("add", {"a": 2, "b": 3})


@pytest.mark.parametrize(("way", "revision"), EVERY_WAY)
async def test_progress_is_received(way, revision):
    async with client_over(way, revision) as client:
        await client.call_tool("wait", {"seconds": 0}, meta={"progressToken": "p"})
        assert len(await client.hear("notifications/progress")) == 1


@pytest.mark.parametrize(
    ("way", "revision"), [pair for pair in EVERY_WAY if pair[1] != "2024-10-07"]
)
async def test_a_cancelled_request_ends(way, revision):
    server = make_routing_server()
    async with client_over(way, revision, server) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "wait", {"seconds": 60})
            await server.begun.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(30):
            await server.ended.wait()
        await client.call_tool("add", {"a": 2, "b": 3})


@pytest.mark.parametrize(
    ("way", "revision"),
    [("http", "2025-06-18"), ("http", "2026-07-28"), ("ws", "2025-06-18")],
)
async def test_requests_run_beside_each_other(way, revision):
    async with client_over(way, revision) as client, trio.open_nursery() as nursery:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for _ in range(16):
                    nursery.start_soon(client.call_tool, "meet", {"people": 16})


async def test_arguments_that_belong_in_headers_are_sent_there():
    async with client_over("http", "2026-07-28") as client:
        await client.list_tools()
        assert (
            await client.call_tool("routed", {"region": "Москва "})
        ).text == "Москва "


@pytest.mark.parametrize(
    ("way", "revision"),
    [("http", "2025-11-25"), ("sse", "2024-11-05"), ("ws", "2025-11-25")],
)
async def test_a_message_that_belongs_to_no_request_is_received(way, revision):
    server = make_routing_server()
    async with client_over(way, revision, server) as client:
        await client.list_tools()
        server.add_tool(lambda: "new", name="new")
        await client.hear("notifications/tools/list_changed")


class Relay:
    """Stands between a client and a server, and can cut every connection."""

    def __init__(self, address):
        self.cut = trio.Event()
        self.connections = 0
        host, port = address.split(":")
        self._address = host, int(port)

    async def serve(self, task_status):
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(
                partial(trio.serve_tcp, self._relay, 0, host="127.0.0.1")
            )
            task_status.started(f"127.0.0.1:{listener.socket.getsockname()[1]}")

    async def _relay(self, client):
        self.connections += 1
        async with (
            client,
            await trio.open_tcp_stream(*self._address) as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._copy, client, server, nursery.cancel_scope)
            nursery.start_soon(self._copy, server, client, nursery.cancel_scope)
            await self.cut.wait()
            self.cut = trio.Event()
            nursery.cancel_scope.cancel()

    async def _copy(self, source, sink, scope):
        try:
            async for chunk in source:
                await sink.send_all(chunk)
        except trio.BrokenResourceError:
            pass
        scope.cancel()


@asynccontextmanager
async def through_relay(revision):
    async with serving() as address, trio.open_nursery() as nursery:
        relay = Relay(address)
        front = await nursery.start(relay.serve)
        with trio.fail_after(30):
            async with connect(f"http://{front}/mcp", revision) as client:
                yield relay, client
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_reply_is_resumed_on_another_connection_when_its_own_was_cut(revision):
    async with through_relay(revision) as (relay, client):

        async def cut():
            await client.hear("notifications/progress")
            relay.cut.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            result = await client.call_tool(
                "wait", {"seconds": 0.3}, meta={"progressToken": 1}
            )
        assert result.text == "waited"
        assert len(await client.hear("notifications/progress")) == 1


async def test_a_connection_serves_one_request_after_the_other():
    async with through_relay("2026-07-28") as (relay, client):
        for _ in range(20):
            await client.call_tool("add", {"a": 1, "b": 2})
        assert relay.connections == 1


async def test_an_idle_connection_that_the_server_closed_is_replaced():
    async with through_relay("2026-07-28") as (relay, client):
        await client.call_tool("add", {"a": 1, "b": 2})
        relay.cut.set()
        await client.call_tool("add", {"a": 1, "b": 2})
        assert relay.connections == 2


async def test_an_answer_that_is_not_of_the_protocol_is_an_error():
    async with (
        serving() as address,
        connect(f"http://{address}/elsewhere", "2026-07-28") as client,
    ):
        with pytest.raises(RemoteError):
            await client.call_tool("add", {"a": 1, "b": 2})


async def test_a_server_that_is_not_there_is_an_error():
    with refusing_port() as port:
        async with connect(f"http://127.0.0.1:{port}/mcp", "2026-07-28") as client:
            with trio.fail_after(30), pytest.raises(RemoteError):
                await client.call_tool("add", {"a": 1, "b": 2})


async def test_bytes_in_place_of_a_text_frame_are_handed_on(nursery):
    async def speak(request):
        connection = await request.accept(subprotocol="mcp")
        await connection.send_message(b"[]")
        with pytest.raises(trio_websocket.ConnectionClosed):
            await connection.get_message()
        ended.set()

    ended = trio.Event()
    server = await nursery.start(
        trio_websocket.serve_websocket, speak, "127.0.0.1", 0, None
    )
    async with open_websocket(f"ws://127.0.0.1:{server.port}/") as wire:
        assert await wire.receive() == [b"[]"]
    await ended.wait()


async def test_an_evil_origin_never_gets_a_websocket():
    async with serving() as address:
        host, port = address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        await stream.send_all(
            f"GET /mcp HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            "Origin: https://evil.example\r\n\r\n".encode()
        )
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 403 ")
        await stream.aclose()


# Servers that do not keep to the protocol


@asynccontextmanager
async def saying(*answers):
    """Run a server that answers each connection with the next bytes, and closes it.

    Yields its address, and the heads of the requests.
    """
    heads = []

    async def answer(stream):
        async with stream:
            head = bytes(await stream.receive_some())
            while b"\r\n\r\n" not in head:
                head += bytes(await stream.receive_some())
            heads.append(head)
            await stream.send_all(answers[min(len(heads), len(answers)) - 1])

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(
            partial(trio.serve_tcp, answer, 0, host="127.0.0.1")
        )
        with trio.fail_after(30):
            yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}", heads
        nursery.cancel_scope.cancel()


def answered(body, kind="application/json", more="", length=None):
    length = len(body) if length is None else length
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}Content-Length: {length}\r\n\r\n{body}".encode()


def events(*data, **options):
    return answered(
        "".join(f"data: {one}\n\n" for one in data), "text/event-stream", **options
    )


REPLY = '{"jsonrpc":"2.0","id":0,"result":{"tools":[]}}'
NO_MESSAGES = {
    "an event": (events("hello"), "expected a JSON-RPC message, got: hello"),
    "a later event": (
        events('{"jsonrpc":"2.0","method":"a"}', "<p>\\n</p>"),
        "expected a JSON-RPC message, got: <p>",
    ),
    "a body": (
        answered("<html>\n\n<p>"),
        "expected a JSON-RPC message, got: <html> <p>",
    ),
    "a number": (answered("5"), "expected a JSON-RPC message, got: 5"),
    "numbers": (answered("[5]"), "expected a JSON-RPC message, got: [5]"),
    "depth": (answered("[" * 100_000), "expected a JSON-RPC message, got: [[["),
    "no text": (
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n"\xff"',
        "expected a JSON-RPC message, got: ",
    ),
    "a body cut off": (
        answered(REPLY, length=1000),
        "the stream ended before the reply",
    ),
}


@pytest.mark.parametrize(("answer", "says"), NO_MESSAGES.values(), ids=NO_MESSAGES)
async def test_invalid_bytes_are_an_error_for_the_request_that_waits(answer, says):
    async with (
        saying(answer) as (url, _),
        connect(f"{url}/mcp", "2026-07-28") as client,
    ):
        with pytest.raises(RemoteError) as caught:
            await client.list_tools()
        assert says in caught.value.message
        assert "\n" not in caught.value.message


@pytest.mark.parametrize("result", ["5", "null", "[]"])
async def test_an_invalid_result_is_not_a_message(result):
    reply = answered(f'{{"jsonrpc":"2.0","id":0,"result":{result}}}')
    async with saying(reply) as (url, _), connect(f"{url}/mcp", "2026-07-28") as client:
        with pytest.raises(NotAMessage, match="this is not an MCP server: it wrote"):
            await client.list_tools()


async def test_a_body_without_a_length_is_as_long_as_its_connection():
    answer = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{REPLY}".encode()
    )
    async with (
        saying(answer) as (url, _),
        connect(f"{url}/mcp", "2026-07-28") as client,
    ):
        assert await client.list_tools() == []


async def test_how_long_to_wait_before_coming_back_is_remembered(autojump_clock):
    session = "Mcp-Session-Id: s\r\n"
    opened = '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}}'
    first = answered("retry: 60000\nid: 1\ndata: {}\n\n", "text/event-stream")
    then = answered("id: 2\ndata: {}\n\n", "text/event-stream")
    times = []

    async with memory_server(
        times, POST=[answered(opened, more=session)], GET=[first, then, then]
    ):
        await trio.sleep(150)
        gets = [at for at, method in times if method == "GET"]
        assert [round(later - at) for at, later in pairwise(gets)] == [60, 60]


@asynccontextmanager
async def memory_server(times, **answers):
    """Return a client whose server has fixed answers for each method, and records
    times.
    """

    class InMemory(Connections):
        async def connect(self):
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(serve, theirs)
            return ours

    async def serve(stream):
        head = bytes(await stream.receive_some())
        method = head.split()[0].decode()
        times.append((trio.current_time(), method))
        await stream.send_all(
            answers[method].pop(0) if answers.get(method) else answered("")
        )
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        async with (
            aclosing(HttpWire("http://there/mcp")) as wire,
            trio.open_nursery() as wire.nursery,
        ):
            wire.connections = InMemory("http://there/mcp")
            async with talk(wire, "2025-11-25") as client:
                yield client
            wire.nursery.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def test_an_end_of_http_and_sse_in_the_middle_is_an_end_of_the_conversation():
    opening = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    event = "event: endpoint\ndata: /messages\n\n"
    answer = f"{opening}{len(event):x}\r\n{event}\r\n".encode()
    async with saying(answer, answered("")) as (url, _):
        with pytest.raises(ServerGone):
            async with connect(f"{url}/sse", "2024-11-05"):
                pytest.fail("it has opened")


async def test_a_server_that_accepts_and_never_answers_is_given_up(autojump_clock):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        with pytest.raises(OSError, match="no reply from the server within 30 s"):
            async with connect(url, "2025-11-25"):
                pass
