"""A bare ASGI application under hypercorn, on trio: `asgi.py http|stateless PORT`.

Replies are JSON.
"""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from answers import answer
from hypercorn.config import Config
from hypercorn.trio import serve

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve one request."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = b""
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body"):
            break
    status, reply = reply_to(scope["method"], body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(reply)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


def reply_to(method: str, body: bytes) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    if method != "POST":
        return 405, b""
    replies = answer(body)
    return (200, replies[-1]) if replies else (202, b"")


if __name__ == "__main__":
    config = Config.from_mapping(bind=[f"127.0.0.1:{sys.argv[2]}"], loglevel="WARNING")
    trio.run(partial(serve, app, config))  # type: ignore[arg-type]
