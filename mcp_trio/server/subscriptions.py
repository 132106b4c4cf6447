"""Who hears of what: changed lists and changed resources, in both eras."""

from typing import TYPE_CHECKING

import trio
from msgspec import to_builtins

from ..protocol.model import Json
from ..protocol.params import VENDOR, Filter

if TYPE_CHECKING:
    from .dispatch import Conversation, Request

KINDS = ("tools", "resources", "prompts")
# What can be heard of: a kind, and the URI of a resource, or None for the list.
Topic = tuple[str, str | None]


class Listener:
    """One `subscriptions/listen` request, while it lasts."""

    def __init__(self, request: "Request", wanted: Filter) -> None:
        self.request = request
        self.ended = trio.Event()
        self.topics: set[Topic] = {(kind, None) for kind in KINDS if getattr(wanted, f"{kind}_list_changed")}
        self.topics |= {("resources", uri) for uri in wanted.resource_subscriptions}

    def tell(self, method: str, params: Json) -> None:
        """Send a notification that names this subscription."""
        self.request.tell(method, {"_meta": {VENDOR + "subscriptionId": self.request.call.id}, **params})


class Subscriptions:
    """All that listen to one server. `changed` may be called from any thread."""

    def __init__(self) -> None:
        self._conversations: dict[Conversation, None] = {}  # in the order in which they came
        self._listeners: dict[Listener, None] = {}
        self.token: trio.lowlevel.TrioToken | None = None  # of the loop in which the conversations run
        self._changed: dict[Topic, None] = {}

    def opened(self, conversation: "Conversation") -> None:
        """A client that opened a session is ready to hear."""
        self._conversations[conversation] = None

    def closed(self, conversation: "Conversation") -> None:
        """A client is gone, or sends no more: what it listens to ends."""
        self._conversations.pop(conversation, None)
        for listener in self._listeners:
            if listener.request.conversation is conversation:
                listener.ended.set()

    def end_all(self) -> None:
        """The server stops: each listener is told that its subscription has ended."""
        for listener in self._listeners:
            listener.ended.set()

    async def listen(self, request: "Request", wanted: Filter) -> None:
        """Be a listener until it is ended or cancelled."""
        listener = Listener(request, wanted)
        listener.tell("notifications/subscriptions/acknowledged", {"notifications": to_builtins(wanted)})
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
            method = "notifications/resources/updated" if uri is not None else f"notifications/{kind}/list_changed"
            params = {} if uri is None else {"uri": uri}
            for conversation in list(self._conversations):
                is_open = conversation.session.ready and kind in conversation.session.offered
                if is_open if uri is None else uri in conversation.subscribed:
                    conversation.tell(method, params)
            for listener in list(self._listeners):
                if (kind, uri) in listener.topics:
                    listener.tell(method, params)
