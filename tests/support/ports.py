"""Ports of this machine for servers that must be told one."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

# Systems take the ports that they choose themselves from above this range, so nothing
# else gets one of these between being found free and being listened on.
CHOSEN_HERE = range(20_000, 32_000)


def free_port() -> int:
    """Return a port on which nobody listens now."""
    for port in random.sample(CHOSEN_HERE, 100):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise OSError(f"expected a free port in {CHOSEN_HERE}, found none")


@contextmanager
def refusing_port() -> Iterator[int]:
    """Reserve a port that refuses connections, because nobody listens on it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
