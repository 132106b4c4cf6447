"""A bare trio-websocket echo, without a protocol: `websocket.py ws PORT`."""

import sys
from functools import partial

import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket


async def echo(request: WebSocketRequest) -> None:
    """Return each message to the client, until it disconnects."""
    subprotocol = None
    if request.proposed_subprotocols:
        subprotocol = request.proposed_subprotocols[0]
    connection = await request.accept(subprotocol=subprotocol)
    try:
        while True:
            await connection.send_message(await connection.get_message())
    except ConnectionClosed:
        pass


if __name__ == "__main__":
    trio.run(partial(serve_websocket, echo, "127.0.0.1", int(sys.argv[2]), None))
