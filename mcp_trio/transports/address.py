"""Parse the addresses that users give, and listen on them."""

import re
import socket

import trio

# A name, an IPv4 address, or an IPv6 address with brackets or without.
_HOST = r"\[[^\[\]\s]*\]|[^\[\]\s/@]*"


def parse_address(text: str | int) -> tuple[str, int]:
    """Parse `[HOST:]PORT`. The host defaults to 127.0.0.1.

    Raises ValueError.
    """
    host, _, port = str(text).rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) < 6
    if not is_port or not re.fullmatch(_HOST, host):
        raise ValueError(
            f"expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got {text!r}"
        )
    if int(port) > 65535:
        raise ValueError(f"expected a port between 0 and 65535, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host. Returns the sockets."""
    return [
        socket.socket(fileno=listener.socket.detach())
        for listener in await trio.open_tcp_listeners(port, host=host)
    ]
