"""One request while the server works on it."""

from typing import Any

import trio
from msgspec import Struct

from ..auth.principal import Principal
from ..protocol.errors import ProtocolError
from ..protocol.session import Call
from ..protocol.types import Json
from .channel import Channel
from .conversation import Conversation
from .limits import Limits
from .worker_threads import WorkerThreads


class Environment(Struct, eq=False):
    """What a server provides to every function that it runs."""

    limits: Limits
    secret: bytes  # seals what clients carry between two calls
    worker_threads: WorkerThreads | None = None  # while the server runs
    lifespan_value: Any = None


class Request(Struct, eq=False):
    """One request, from when it begins to run until its reply is sent."""

    call: Call
    conversation: Conversation
    channel: Channel
    environment: Environment
    principal: Principal | None
    scope: trio.CancelScope | None = None  # set when the request first waits
    ended: bool = False
    error: ProtocolError | None = None  # the error in the reply, if it is one
    limited_tool: str | None = None  # the tool whose own limit counts this request

    def tell(self, method: str, params: Json) -> None:
        """Send a notification about this request, unless it has ended."""
        is_cancelled = self.scope is not None and self.scope.cancel_called
        if not self.ended and not is_cancelled:
            self.conversation.tell(method, params, self.channel, self.call.revision)
