"""Have the system find out which clients have disappeared.

A client whose machine loses its power or its network does not close its connections.
While the server sends something now and then, as in a stream of events, it notices. A
request that only waits sends nothing, so the system has to ask whether the other side
is still there.
"""

import socket

# Seconds of silence after which the system asks, seconds between two questions, and
# questions without an answer after which the connection ends.
IDLE = 60
INTERVAL = 15
COUNT = 4


def watch_clients(listener: socket.socket) -> None:
    """Set this for all connections that a listener accepts."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # macOS has the first of these under another name, and some systems have none.
    for name, value in (
        ("TCP_KEEPIDLE", IDLE),
        ("TCP_KEEPALIVE", IDLE),
        ("TCP_KEEPINTVL", INTERVAL),
        ("TCP_KEEPCNT", COUNT),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
