"""Bare httptools on trio: `native.py http|stateless PORT`.

Replies are JSON, so notifications are dropped.
"""

import sys
from functools import partial

import httptools
import trio
from answers import answer

JSON = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
NOT_ALLOWED = (
    b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\nContent-Length: 0\r\n\r\n"
)


class Connection:
    """The parser of one connection, and the responses to send on it."""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.out: list[bytes] = []
        self._body: list[bytes] = []

    def on_body(self, chunk: bytes) -> None:
        """Store a part of a body."""
        self._body.append(chunk)

    def on_message_complete(self) -> None:
        """Answer a request."""
        body = b"".join(self._body)
        self._body.clear()
        if self.parser.get_method() != b"POST":
            self.out.append(NOT_ALLOWED)
            return
        replies = answer(body)
        if replies:
            self.out.append(JSON % (len(replies[-1]), replies[-1]))
        else:
            self.out.append(ACCEPTED)


async def handle(stream: trio.SocketStream) -> None:
    """Serve one connection until it ends."""
    connection = Connection()
    try:
        async for chunk in stream:
            connection.parser.feed_data(bytes(chunk))
            await stream.send_all(b"".join(connection.out))
            connection.out.clear()
    except trio.BrokenResourceError:
        pass


if __name__ == "__main__":
    trio.run(partial(trio.serve_tcp, handle, int(sys.argv[2]), host="127.0.0.1"))
