"""Who hears of what: changed lists and changed resources, in both eras."""

import trio
from msgspec import Struct, to_builtins

from ..protocol.errors import InvalidParams, InvalidRequest
from ..protocol.params import VENDOR, Filter
from ..protocol.types import Json
from .conversation import Conversation
from .request import Request

# Resources that one session may subscribe to: a template matches as many URIs as a client can think of.
MOST_SUBSCRIPTIONS = 1_000

KINDS = ("tools", "resources", "prompts")
# What can be heard of: a kind, and the URI of a resource, or None for the list.
Topic = tuple[str, str | None]


class Listener:
    """One `subscriptions/listen` request, while it lasts."""

    def __init__(self, request: Request, wanted: Filter) -> None:
        self.request = request
        self.ended = trio.Event()
        self.topics: set[Topic] = {
            (kind, None) for kind in KINDS if getattr(wanted, f"{kind}_list_changed")
        }
        self.topics |= {("resources", uri) for uri in wanted.resource_subscriptions}

    def tell(self, method: str, params: Json) -> None:
        """Send a notification that names this subscription."""
        self.request.tell(
            method,
            {"_meta": {VENDOR + "subscriptionId": self.request.call.id}, **params},
        )


class Subscriptions(Struct, eq=False):
    """All that listen to one server. `changed` may be called from any thread."""

    token: trio.lowlevel.TrioToken | None = (
        None  # of the loop in which the conversations run
    )
    _conversations: dict[
        Conversation, dict[str, None]
    ] = {}  # in order; what each subscribes to
    _listeners: dict[Listener, None] = {}
    _changed: dict[Topic, None] = {}

    def opened(self, conversation: Conversation) -> None:
        """A client that opened a session is ready to hear."""
        self._conversations.setdefault(conversation, {})

    def closed(self, conversation: Conversation) -> None:
        """A client is gone, or sends no more: what it listens to ends."""
        self._conversations.pop(conversation, None)
        for listener in self._listeners:
            if listener.request.conversation is conversation:
                listener.ended.set()

    def subscribe(self, conversation: Conversation, uri: str) -> None:
        """A client that opened a session wants to hear of a resource."""
        if conversation.session.revision is None:
            raise InvalidRequest(
                "Invalid request: a session is wanted, to be told in that a resource has changed"
            )
        uris = self._conversations.setdefault(conversation, {})
        if len(uris) >= MOST_SUBSCRIPTIONS:
            raise InvalidParams(
                f"{MOST_SUBSCRIPTIONS} resources are subscribed to; unsubscribe from some first"
            )
        uris[uri] = None

    def unsubscribe(self, conversation: Conversation, uri: str) -> None:
        """It wants to hear no more."""
        self._conversations.get(conversation, {}).pop(uri, None)

    def end_all(self) -> None:
        """The server stops: each listener is told that its subscription has ended."""
        for listener in self._listeners:
            listener.ended.set()

    async def listen(self, request: Request, wanted: Filter) -> None:
        """Be a listener until it is ended or cancelled."""
        listener = Listener(request, wanted)
        listener.tell(
            "notifications/subscriptions/acknowledged",
            {"notifications": to_builtins(wanted)},
        )
        self._listeners[listener] = None
        try:
            await listener.ended.wait()
        finally:
            del self._listeners[listener]

    def changed(self, kind: str, uri: str | None = None) -> None:
        """A list of a kind has changed, or what a URI reads as. Several changes in a row are told as one."""
        if (token := self.token) is None:  # nobody can have heard of it before
            return
        self._changed[kind, uri] = None
        try:
            token.run_sync_soon(self._tell, idempotent=True)
        except trio.RunFinishedError:
            self.token = None

    def _tell(self) -> None:
        changed, self._changed = self._changed, {}
        for kind, uri in list(changed):  # another thread may add to it still
            method = (
                "notifications/resources/updated"
                if uri is not None
                else f"notifications/{kind}/list_changed"
            )
            params = {} if uri is None else {"uri": uri}
            for conversation, uris in list(self._conversations.items()):
                is_open = kind in conversation.session.offered.split()
                if is_open if uri is None else uri in uris:
                    conversation.tell(method, params)
            for listener in list(self._listeners):
                if (kind, uri) in listener.topics:
                    listener.tell(method, params)
