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
from .ledger import AccountEntry, Priority
from .limits import Limits
from .worker_threads import WorkerThreads

# How a request ended:
#
#     ok          with a result
#     tool_error  with an error that the function reported, or a failed question
#     refused     without running: because of its params, limits or scopes
#     error       with an exception whose message is hidden from the client
#     cancelled   by the client, by its disconnection, or because the server stopped
#     timeout     because the function took too long
#     task        with a task; the call in the task has an outcome of its own
Outcome = Literal[
    "ok", "tool_error", "refused", "error", "cancelled", "timeout", "task"
]


class Environment(Struct, eq=False):
    """The parts of a server that the functions that it runs depend on."""

    limits: Limits
    secret: bytes  # signs the state that clients carry between two calls
    worker_threads: WorkerThreads | None = None  # while the server runs
    lifespan_value: Any = None
    # Whether it was logged that a client has sent a state with an invalid signature.
    has_logged_unknown_state: bool = False


class Request(Struct, eq=False):
    """One request, from its start until its reply is sent.

    While it waits, its account is charged for it, so it has the attributes of a
    `Chargeable`.
    """

    call: Call
    conversation: Conversation
    channel: Channel
    environment: Environment
    principal: Principal | None
    scope: trio.CancelScope | None = None  # set when the request first waits
    # After a wait: when it began to encode its result.
    turn_began: float = 0.0
    ended: bool = False
    given_up: bool = False  # cancelled because its memory is needed for others
    error: ProtocolError | None = None  # the error in the reply, if any
    limited_tool: str | None = None  # the tool whose own limit counts this request
    outcome: Outcome = "ok"
    target: str = ""  # the tool or the prompt, once the server has found it
    state: dict[str, Any] | None = None  # the values of `Context.state`
    task: BackgroundTask | None = None  # set for tools whose calls may become tasks
    kind: str = "requests"
    size: int = 0
    priority: Priority = Priority.REQUEST
    entry: AccountEntry | None = None

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities of this request's client."""
        if self.call.revision.opens:
            return self.conversation.session.capabilities
        capabilities: ClientCapabilities = self.call.params.meta.capabilities
        return capabilities

    @property
    def is_over(self) -> bool:
        """Whether messages about this request may no longer be sent."""
        return self.ended or (self.scope is not None and self.scope.cancel_called)

    def give_up(self) -> bool:
        """Cancel this request and reply with an error. Returns True."""
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
    """Notified when a conversation of more than a single HTTP request ends."""

    def session_ended(self, conversation: Conversation) -> None:
        """Called when the client sends nothing more. May be called repeatedly."""


class RequestObserver(Protocol):
    """Notified when requests begin and end, on all transports.

    Both methods run in the request's own context, so context variables that `began`
    sets are visible in the functions of that request, and nowhere else.
    """

    def began(self, request: Request) -> None:
        """Called before a request runs."""

    def ended(self, request: Request, seconds: float) -> None:
        """Called after a request has ended, when its outcome is known."""
