"""TODO"""

from __future__ import annotations

from collections.abc import (
    Callable,
)
from contextlib import (
    AbstractAsyncContextManager,
)

from .http import HttpWire, open_http
from .queued_wire import QueuedWire
from .sse import open_sse
from .websocket import open_websocket

# What a URL is reached over -> what opens a wire there.
WIRES: dict[
    str, Callable[[str, str], AbstractAsyncContextManager[HttpWire | QueuedWire]]
]
WIRES = {"http": open_http, "sse": open_sse, "ws": open_websocket}
