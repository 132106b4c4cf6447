"""One request while the server works on it."""

from typing import Any, Literal, Protocol

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

# How a request ended:
#
#     ok          with a result
#     tool_error  with a failure that the function reported, or a failed question
#     refused     it was not carried out: its params, the limits or the scopes forbid it
#     error       with an exception whose message is hidden from the client
#     cancelled   by the client, or because the client or the server has gone
#     timeout     because the function took too long
#     task        with a task; the call that the task makes has an outcome of its own
Outcome = Literal[
    "ok", "tool_error", "refused", "error", "cancelled", "timeout", "task"
]


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
    given_up: bool = False  # because the memory is needed for others
    error: ProtocolError | None = None  # the error in the reply, if it is one
    limited_tool: str | None = None  # the tool whose own limit counts this request
    outcome: Outcome = "ok"
    target: str = ""  # the tool or the prompt, once the server has found it
    state: dict[str, Any] | None = None  # what middleware hands down, if there is any
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

    def give_up(self) -> bool:
        """Cancel this request, which is answered with an error. Returns True."""
        self.given_up = True
        if self.scope is not None:
            self.scope.cancel()
        return True

    def send(self, message: bytes) -> None:
        """Send a message about this request, unless it is over."""
        if not self.is_over:
            self.conversation.send(message, self.channel)

    def notify(self, method: str, params: Json) -> None:
        """Send a notification about this request, unless it is over."""
        if not self.is_over:
            self.conversation.notify(method, params, self.channel, self.call.revision)


class SessionObserver(Protocol):
    """Sees every conversation end that has lasted longer than a single HTTP request."""

    def session_ended(self, conversation: Conversation) -> None:
        """Note that the client sends no more. May be called more than once."""


class RequestObserver(Protocol):
    """Sees every request begin and end, on every transport.

    Both methods run in the request's own context, so a context variable that `began`
    sets is seen by the functions that the request calls, and by nothing else.
    """

    def began(self, request: Request) -> None:
        """Note that a request is about to run."""

    def ended(self, request: Request, seconds: float) -> None:
        """Note that a request has ended, with its outcome."""
