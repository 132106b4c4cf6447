"""One request while the server works on it."""

from typing import Any

import trio
from msgspec import Struct

from ..auth.principal import Principal
from ..protocol.errors import ProtocolError
from ..protocol.params import ClientCapabilities
from ..protocol.session import Call
from ..protocol.types import Json
from .background import BackgroundTask
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
    task: BackgroundTask | None = None  # set for tools whose calls may become tasks

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the client of this request can do."""
        if self.call.revision.opens:
            return self.conversation.session.capabilities
        capabilities: ClientCapabilities = self.call.params.meta.capabilities
        return capabilities

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be sent about this request."""
        return self.ended or (self.scope is not None and self.scope.cancel_called)

    def tell(self, method: str, params: Json) -> None:
        """Send a notification about this request, unless it is over."""
        if not self.is_over:
            self.conversation.tell(method, params, self.channel, self.call.revision)
