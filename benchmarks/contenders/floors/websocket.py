"""A bare trio-websocket echo, with no protocol above it: `websocket.py ws PORT`."""

import sys
from functools import partial

import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket


async def echo(request: WebSocketRequest) -> None:
    """Send back what comes, until the client goes."""
    wanted = request.proposed_subprotocols
    connection = await request.accept(subprotocol=wanted[0] if wanted else None)
    try:
        while True:
            await connection.send_message(await connection.get_message())
    except ConnectionClosed:
        pass


if __name__ == "__main__":
    trio.run(partial(serve_websocket, echo, "127.0.0.1", int(sys.argv[2]), None))
