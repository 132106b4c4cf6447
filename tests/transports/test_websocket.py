import gc
import json
import logging
import math
import socket
import struct
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, wrap_client_stream

from mcp_trio import Context, Server
from mcp_trio.protocol.params import VENDOR
from mcp_trio.server import serve_conversation as conversation_module
from mcp_trio.transports.websocket import SUBPROTOCOL, serve_websocket, text_frame
from tests.support.websocket import UPGRADE, masked

MODERN = {VENDOR + "protocolVersion": "2026-07-28", VENDOR + "clientCapabilities": {}}
LIMIT = 4 * 2**20
NEVER = trio.Event()


def make_waiting_server():
    server = Server("over websocket")
    server.ended = []
    server.has_ended = trio.Event()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def wait(seconds: float, context: Context) -> str:
        await context.progress(0, 1)
        try:
            await trio.sleep(seconds)
        finally:
            server.ended.append(seconds)
            server.has_ended.set()
        return f"waited {seconds}"

    return server


async def host(server, stream, stopping=NEVER):
    """Act as the HTTP host: read the head, and pass on the stream."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive_some()
    await serve_websocket(server, stream, head, stopping)


@asynccontextmanager
async def connected(server=None, *, subprotocols=(SUBPROTOCOL,), real=False):
    """Serve over memory or a real connection, to a client of another library."""
    server = server or make_waiting_server()
    async with server.running(), trio.open_nursery() as nursery:
        ours, theirs = await sockets() if real else trio.testing.memory_stream_pair()
        nursery.start_soon(host, server, theirs)
        client = await wrap_client_stream(
            nursery,
            ours,
            "localhost",
            "/mcp",
            subprotocols=subprotocols,
            max_message_size=2**24,
            message_queue_size=math.inf,
        )
        client.raw = ours
        yield client
        await trio.aclose_forcefully(ours)
        nursery.cancel_scope.cancel()


async def sockets():
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        ours = await trio.open_tcp_stream(*listener.socket.getsockname())
        return ours, await listener.accept()


@asynccontextmanager
async def raw(server):
    """Serve on a real connection. Yields the stream of a client that has upgraded."""
    async with server.running(), trio.open_nursery() as nursery:
        ours, theirs = await sockets()
        nursery.start_soon(host, server, theirs)
        await ours.send_all(UPGRADE)
        assert (await ours.receive_some()).startswith(b"HTTP/1.1 101 ")
        yield ours, nursery
        await trio.aclose_forcefully(ours)


def call(id, name, **arguments):
    params = {
        "name": name,
        "arguments": arguments,
        "_meta": {**MODERN, "progressToken": id},
    }
    return json.dumps(
        {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
    )


def initialize(revision):
    params = {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    return json.dumps(
        {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}
    )


async def hear(client):
    return json.loads(await client.get_message())


async def reply_to(client, id):
    while (message := await hear(client)).get("id") != id:
        pass
    return message


def text_of(reply):
    return reply["result"]["content"][0]["text"]


async def test_a_request_of_2026_needs_no_opening():
    async with connected() as client:
        assert client.subprotocol == "mcp"
        await client.send_message(call(1, "add", a=2, b=3))
        assert text_of(await hear(client)) == "5"


@pytest.mark.parametrize(
    "revision", ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
)
async def test_an_older_session_opens_with_initialize(revision):
    async with connected() as client:
        await client.send_message(initialize(revision))
        assert (await hear(client))["result"]["protocolVersion"] == revision
        await client.send_message('{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert await hear(client) == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_batch_is_answered_in_one_frame():
    async with connected() as client:
        await client.send_message(initialize("2025-03-26"))
        await hear(client)
        await client.send_message(
            '[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]'
        )
        assert [reply["id"] for reply in await hear(client)] == [1, 2]


async def test_a_client_that_offers_no_subprotocol_is_served():
    async with connected(subprotocols=()) as client:
        assert client.subprotocol is None
        await client.send_message(call(1, "add", a=2, b=3))
        assert text_of(await hear(client)) == "5"


async def test_mcp_is_chosen_among_several_subprotocols():
    async with connected(subprotocols=("graphql-ws", "mcp")) as client:
        assert client.subprotocol == "mcp"


async def test_a_client_that_offers_only_other_subprotocols_is_refused(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host, make_waiting_server(), theirs)
        await ours.send_all(
            UPGRADE.replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Protocol: chat\r\n\r\n")
        )
        heard = b""
        with trio.fail_after(1):
            while data := await ours.receive_some():
                heard += data
        assert heard.startswith(b"HTTP/1.1 400 ")
        assert b"mcp" in heard
        await ours.aclose()


async def test_a_head_that_is_not_an_upgrade_is_refused(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host, make_waiting_server(), theirs)
        await ours.send_all(
            b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n"
        )
        with trio.fail_after(1):
            assert (await ours.receive_some()).startswith(b"HTTP/1.1 400 ")
            await ours.aclose()


async def test_messages_sent_with_the_upgrade_are_served():
    server = make_waiting_server()
    async with server.running(), trio.open_nursery() as nursery:
        ours, theirs = await sockets()
        nursery.start_soon(host, server, theirs)
        await ours.send_all(UPGRADE + masked(1, call(1, "add", a=2, b=3).encode()))
        heard = b""
        while b'"5"' not in heard:
            heard += (await ours.receive_some()) or pytest.fail("closed")
        await ours.aclose()


async def test_calls_run_beside_each_other_and_reply_when_ready(autojump_clock):
    async with connected() as client:
        for id, seconds in enumerate([3, 1, 2]):
            await client.send_message(call(id, "wait", seconds=seconds))
        replies = [message for _ in range(6) if "id" in (message := await hear(client))]
        assert [reply["id"] for reply in replies] == [1, 2, 0]


async def test_progress_is_sent_before_the_result(autojump_clock):
    async with connected() as client:
        await client.send_message(call(7, "wait", seconds=1))
        first, second = await hear(client), await hear(client)
        assert (first["method"], first["params"]["progressToken"]) == (
            "notifications/progress",
            7,
        )
        assert text_of(second) == "waited 1.0"


async def test_a_cancelled_call_ends_without_a_reply(autojump_clock):
    server = make_waiting_server()
    async with connected(server) as client:
        await client.send_message(call(0, "wait", seconds=3600))
        await hear(client)
        notice = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 0},
        }
        await client.send_message(json.dumps(notice))
        await client.send_message(call(1, "add", a=1, b=1))
        assert (await hear(client))["id"] == 1
        assert server.ended == [3600]


@pytest.mark.parametrize("bad", ["", "x", "[]", "1", "[" * 100_000, '{"id":1}'])
async def test_bad_messages_are_answered_and_the_next_is_served(bad):
    async with connected() as client:
        await client.send_message(bad)
        assert (await hear(client))["error"]["code"] in (-32700, -32600)
        await client.send_message(call(1, "add", a=1, b=1))
        assert (await hear(client))["id"] == 1


async def test_a_message_of_the_largest_size_is_taken():
    async with connected() as client:
        message = call(1, "echo", text="")
        await client.send_message(message + " " * (LIMIT - len(message)))
        assert (await hear(client))["id"] == 1


@pytest.mark.parametrize(
    "filling", ["x" * (LIMIT + 1), "é" * (LIMIT // 2 + 1)], ids=["characters", "bytes"]
)
@pytest.mark.parametrize("real", [False, True])
async def test_a_larger_message_closes_with_1009(filling, real):
    async with connected(real=real) as client:
        await client.send_message(filling)
        with pytest.raises(ConnectionClosed) as caught:
            await client.get_message()
        assert caught.value.reason.code == 1009


async def test_a_message_that_never_ends_is_not_kept(monkeypatch):
    monkeypatch.setattr("mcp_trio.transports.websocket.MAX_MESSAGE", 2**14)
    async with raw(make_waiting_server()) as (client, _):
        await client.send_all(masked(1, b"", final=False))
        await client.send_all(masked(0, b"", final=False) * 2**13)
        with trio.fail_after(30):
            while await client.receive_some():
                pass


@pytest.mark.parametrize("real", [False, True])
async def test_binary_closes_with_1003_after_what_came_before(real):
    async with connected(real=real) as client:
        await client.send_message(call(1, "add", a=1, b=1))
        await client.send_message(b"{}")
        assert (await hear(client))["id"] == 1
        with pytest.raises(ConnectionClosed) as caught:
            await client.get_message()
        assert caught.value.reason.code == 1003


async def test_text_that_is_not_utf8_closes_with_1007():
    async with raw(make_waiting_server()) as (client, _):
        await client.send_all(masked(1, b"\xff"))
        assert (await client.receive_some())[2:4] == (1007).to_bytes(2)


async def test_a_ping_is_answered():
    async with connected() as client:
        with trio.fail_after(30):
            await client.ping(b"there?")


async def test_a_client_that_answers_pings_stays(autojump_clock):
    async with connected() as client:
        await trio.sleep(3600)
        await client.send_message(call(1, "add", a=1, b=1))
        assert (await hear(client))["id"] == 1


async def test_a_client_that_shows_no_sign_of_life_is_let_go(autojump_clock):
    server = make_waiting_server()
    ours, theirs = trio.testing.memory_stream_pair()
    async with server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(host, server, theirs)
        await ours.send_all(UPGRADE + masked(1, call(1, "wait", seconds=3600).encode()))
        with trio.fail_after(62):
            await server.has_ended.wait()


async def test_the_end_of_the_connection_ends_what_runs(autojump_clock):
    server = make_waiting_server()
    async with connected(server) as client:
        await client.send_message(call(1, "wait", seconds=3600))
        await hear(client)
        with trio.fail_after(1):
            await client.raw.aclose()
            await server.has_ended.wait()


async def test_a_close_ends_what_runs_and_is_answered(autojump_clock):
    server = make_waiting_server()
    async with connected(server) as client:
        await client.send_message(call(1, "wait", seconds=3600))
        await hear(client)
        with trio.fail_after(1):
            await client.aclose(4000, "enough")
            await server.has_ended.wait()


async def test_a_server_that_is_cancelled_closes_with_1001(autojump_clock):
    server = make_waiting_server()
    ours, theirs = trio.testing.memory_stream_pair()
    async with server.running(), trio.open_nursery() as nursery:
        serving = trio.CancelScope()

        async def serve():
            with serving:
                await host(server, theirs)

        nursery.start_soon(serve)
        client = await wrap_client_stream(nursery, ours, "localhost", "/mcp")
        await client.send_message(call(1, "wait", seconds=3600))
        await hear(client)
        serving.cancel()
        with trio.fail_after(1), pytest.raises(ConnectionClosed) as caught:
            await client.get_message()
        assert caught.value.reason.code == 1001
        assert server.ended == [3600]


async def test_a_client_that_reads_nothing_does_not_hold_up_the_stop():
    server = make_waiting_server()
    async with raw(server) as (client, nursery):
        with trio.move_on_after(0.3):
            await client.send_all(
                masked(1, call(1, "echo", text="x" * 2**20).encode()) * 40
            )
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < 2


async def test_a_slow_reader_gets_everything(autojump_clock):
    server = make_waiting_server()
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(host, server, theirs)
        await ours.send_all(
            UPGRADE + masked(1, call(1, "echo", text="x" * 2**20).encode())
        )
        heard = 0
        while heard < 2**20:
            await trio.sleep(1)
            heard += len(await ours.receive_some(2**14))
        await ours.aclose()


async def test_replies_of_one_turn_leave_in_one_write(monkeypatch):
    monkeypatch.setattr(
        conversation_module, "TURN", 60
    )  # also where the machine is busy
    writes = []
    server = make_waiting_server()
    ours, theirs = trio.testing.memory_stream_pair()
    send_all = theirs.send_all

    async def counted(data):
        writes.append(bytes(data))
        await send_all(data)

    theirs.send_all = counted
    async with server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(host, server, theirs)
        await ours.send_all(UPGRADE)
        await ours.receive_some()
        await ours.send_all(
            b"".join(masked(1, call(id, "add", a=1, b=1).encode()) for id in range(20))
        )
        await ours.receive_some()
        assert len(writes) == 2  # the handshake and the replies
        await ours.aclose()


@pytest.mark.parametrize(
    "after",
    [
        b"",
        masked(1, b'{"jsonrpc"')[:-3],
        masked(1, call(1, "wait", seconds=9).encode()),
    ],
)
async def test_resets_leave_no_trace(after, caplog):
    server = make_waiting_server()
    with caplog.at_level(logging.INFO):
        async with server.running(), trio.open_nursery() as nursery:
            for _ in range(20):
                ours, theirs = await sockets()
                nursery.start_soon(host, server, theirs)
                await ours.send_all(UPGRADE + after)
                await ours.receive_some(1)
                ours.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                await ours.aclose()
    assert not [record for record in caplog.records if record.name == "mcp_trio"]


async def test_equal_ids_of_different_clients_do_not_meet():
    server = make_waiting_server()
    async with connected(server) as one, connected(make_waiting_server()) as other:
        await one.send_message(call(1, "echo", text="one"))
        await other.send_message(call(1, "echo", text="other"))
        assert text_of(await hear(one)) == "one"
        assert text_of(await hear(other)) == "other"


@pytest.mark.parametrize("size", [0, 125, 126, 2**16 - 1, 2**16])
async def test_frames_of_every_length_are_read_by_the_library(size):
    from wsproto.frame_protocol import FrameProtocol

    reader = FrameProtocol(client=True, extensions=[])
    reader.receive_bytes(text_frame(b"x" * size))
    assert "".join(frame.payload for frame in reader.received_frames()) == "x" * size


@pytest.mark.slow
async def test_another_client_library_is_served():
    connect = pytest.importorskip("websockets.sync.client").connect
    server = make_waiting_server()
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]

    def serve_conversation(port):
        with connect(
            f"ws://127.0.0.1:{port}/mcp", subprotocols=["mcp"], max_size=None
        ) as client:
            client.send(call(1, "echo", text="x" * 2**20))
            large = json.loads(client.recv())
            client.send(
                [initialize("2025-06-18")[:20], initialize("2025-06-18")[20:]]
            )  # in fragments
            opened = json.loads(client.recv())
            assert client.ping().wait(5)
            return (
                client.subprotocol,
                len(text_of(large)),
                opened["result"]["protocolVersion"],
            )

    async with server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(
            trio.serve_listeners, lambda stream: host(server, stream), [listener]
        )
        port = listener.socket.getsockname()[1]
        assert await trio.to_thread.run_sync(serve_conversation, port) == (
            "mcp",
            2**20,
            "2025-06-18",
        )
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def stoppable(server):
    """Return a server's client, and the event that stops the server."""
    stopping = trio.Event()
    ours, theirs = trio.testing.memory_stream_pair()
    async with server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(host, server, theirs, stopping)
        yield await wrap_client_stream(nursery, ours, "localhost", "/mcp"), stopping
        await trio.aclose_forcefully(ours)
        nursery.cancel_scope.cancel()


async def closes_with(client, code):
    with pytest.raises(ConnectionClosed) as caught:
        await client.get_message()
    return caught.value.reason.code == code


async def test_a_stop_closes_an_idle_connection_at_once_with_1001(autojump_clock):
    async with stoppable(make_waiting_server()) as (client, stopping):
        await client.send_message(call(1, "add", a=1, b=1))
        await hear(client)
        stopping.set()
        with trio.fail_after(0.1):
            assert await closes_with(client, 1001)


async def test_a_stop_lets_what_runs_finish_and_takes_no_more(autojump_clock):
    server = make_waiting_server()
    async with stoppable(server) as (client, stopping):
        await client.send_message(call(1, "wait", seconds=2))
        await hear(client)
        stopping.set()
        await trio.testing.wait_all_tasks_blocked()
        await client.send_message(call(2, "add", a=1, b=1))
        assert text_of(await hear(client)) == "waited 2.0"
        assert await closes_with(client, 1001)


async def test_a_stop_waits_no_longer_than_the_grace(autojump_clock):
    server = make_waiting_server()
    async with stoppable(server) as (client, stopping):
        await client.send_message(call(1, "wait", seconds=3600))
        await hear(client)
        stopping.set()
        with trio.fail_after(server.grace + 0.1):
            assert await closes_with(client, 1001)
        assert server.ended == [3600]


async def test_a_client_that_goes_while_the_server_stops_is_not_waited_for(
    autojump_clock,
):
    server = make_waiting_server()
    async with stoppable(server) as (client, stopping):
        await client.send_message(call(1, "wait", seconds=3600))
        await hear(client)
        stopping.set()
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(0.1):
            await client.aclose()
            await server.has_ended.wait()


async def test_bytes_that_are_no_frame_close_with_1002():
    async with raw(make_waiting_server()) as (client, _):
        await client.send_all(b"\xff\xff")
        assert (await client.receive_some())[:4] == b"\x88\x02" + (1002).to_bytes(2)


async def test_nothing_is_held_for_a_client_that_has_left_before_its_message_ended():
    server = make_waiting_server()
    gc.disable()
    try:
        async with raw(server) as (client, _):
            with trio.fail_after(30):
                await client.send_all(masked(1, b"x" * 100_000, final=False))
                while server.ledger.by_kind["bodies"] < 100_000:
                    await trio.lowlevel.checkpoint()
                await client.aclose()
                while server.ledger.held:
                    await trio.lowlevel.checkpoint()
    finally:
        gc.enable()
