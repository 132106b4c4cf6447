"""Let the system detect clients that have disappeared (TCP keep-alive).

A client whose machine loses its power or its network does not close its connections.
The server notices this when it sends something, as event streams regularly do. A
request that only waits sends nothing, so the system has to probe the connection.
"""

import socket

# Seconds of silence before the first probe, seconds between probes, and the number of
# unanswered probes after which the connection is closed.
IDLE = 60
INTERVAL = 15
COUNT = 4


def enable_keep_alive(listener: socket.socket) -> None:
    """Enable keep-alive for all connections that a listener accepts."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # macOS has another name for the first of these, and some systems have none.
    for name, value in (
        ("TCP_KEEPIDLE", IDLE),
        ("TCP_KEEPALIVE", IDLE),
        ("TCP_KEEPINTVL", INTERVAL),
        ("TCP_KEEPCNT", COUNT),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
