"""Clients that slow a server down: `python -m tests.support.slow_attackers PORT EACH`.

There are three kinds, with EACH clients of every kind: one sends its head a byte at a
time, one its body, and one reads its responses as slowly. A client that is disconnected
reconnects. The lines `on` and `off` on standard input start and stop all clients. Each
is answered by the number of open connections.
"""

import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import trio

from tests.support.http_wire import MODERN, message, modern_headers, request

# The seconds between two bytes.
PAUSE = 0.5
LIST = message("tools/list", {"_meta": MODERN})
LISTING = request("POST", "/mcp", modern_headers(LIST), json.dumps(LIST).encode())
ENDLESS = b"X-Slow: 1\r\n" * 1_000
# More lists of tools than fit into the buffers of a client that does not read.
UNREAD = 40


async def slow_header(stream: trio.SocketStream) -> None:
    await stream.send_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
    await trickle(stream, ENDLESS)


async def slow_body(stream: trio.SocketStream) -> None:
    await stream.send_all(
        request("POST", "/mcp", {**modern_headers(LIST), "Content-Length": "1000"})
    )
    await trickle(stream, b" " * 1_000)


async def slow_read(stream: trio.SocketStream) -> None:
    await stream.send_all(LISTING * UNREAD)
    while await stream.receive_some(1):
        await trio.sleep(PAUSE)


async def trickle(stream: trio.SocketStream, data: bytes) -> None:
    for at in range(len(data)):
        await stream.send_all(data[at : at + 1])
        await trio.sleep(PAUSE)


KINDS: list[Callable[[trio.SocketStream], Awaitable[None]]] = [
    slow_header,
    slow_body,
    slow_read,
]


async def attack(
    port: int,
    attacker: Callable[[trio.SocketStream], Awaitable[None]],
    held: set[object],
) -> None:
    while True:
        mine = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream = None
        with mine, suppress(OSError, trio.BrokenResourceError):
            await mine.connect(("127.0.0.1", port))
            stream = trio.SocketStream(mine)
            held.add(stream)
            await attacker(stream)
        held.discard(stream)
        await trio.sleep(PAUSE)


async def lines() -> AsyncIterator[str]:
    async with trio.wrap_file(sys.stdin) as asked:
        async for line in asked:
            yield line.strip()


async def main(port: int, each: int) -> None:
    held: set[object] = set()
    async with trio.open_nursery() as nursery:
        async for line in lines():
            if line == "on":
                attackers = await nursery.start(hold, port, each, held)
            else:
                attackers.cancel()
                held.clear()
            print(len(held), flush=True)
        nursery.cancel_scope.cancel()


async def hold(
    port: int,
    each: int,
    held: set[object],
    task_status: trio.TaskStatus[trio.CancelScope],
) -> None:
    async with trio.open_nursery() as nursery:
        for attacker in KINDS:
            for _ in range(each):
                nursery.start_soon(attack, port, attacker, held)
        with trio.move_on_after(20):
            while len(held) < each * len(KINDS):
                await trio.sleep(0.05)
            await trio.sleep(2 * PAUSE)
        task_status.started(nursery.cancel_scope)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
