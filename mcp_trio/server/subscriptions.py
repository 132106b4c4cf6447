"""Who hears of what: changed lists and changed resources, in both eras."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from msgspec import to_builtins

from ..protocol.model import Json
from ..protocol.params import VENDOR, Filter
from ..protocol.session import Phase

if TYPE_CHECKING:
    from .dispatch import Conversation, Request

_KINDS = ("tools", "resources", "prompts")
UPDATED = "notifications/resources/updated"
Topic = tuple[str, str]
"""What can be heard of: the URI of a resource, or "" for a list, and the notification that tells of it."""


def _list_of(kind: str) -> Topic:
    return "", f"notifications/{kind}/list_changed"


class Listener:
    """One `subscriptions/listen` request, while it lasts."""

    def __init__(self, request: Request, wanted: Filter) -> None:
        self.request = request
        self.ended = trio.Event()
        lists = {_list_of(kind) for kind in _KINDS if getattr(wanted, f"{kind}_list_changed")}
        self.topics = lists | {(uri, UPDATED) for uri in wanted.resource_subscriptions}

    def tell(self, method: str, params: Json) -> None:
        """Send a notification that names this subscription."""
        meta = {VENDOR + "subscriptionId": self.request.call.id}
        self.request.tell(method, {"_meta": meta, **params})


class Subscriptions:
    """All that listen to one server. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._conversations: dict[Conversation, None] = {}  # in the order in which they came
        self._listeners: dict[Listener, None] = {}
        self.token: trio.lowlevel.TrioToken | None = None  # of the loop in which the conversations run
        self._changed: set[Topic] = set()

    def opened(self, conversation: Conversation) -> None:
        """A client that opened a session is ready to hear."""
        self._conversations[conversation] = None

    def closed(self, conversation: Conversation) -> None:
        """A client is gone, or sends no more: what it listens to ends."""
        self._conversations.pop(conversation, None)
        for listener in self._listeners:
            if listener.request.conversation is conversation:
                listener.ended.set()

    def end_all(self) -> None:
        """The server stops: each listener is told that its subscription has ended."""
        for listener in self._listeners:
            listener.ended.set()

    async def listen(self, request: Request, wanted: Filter) -> None:
        """Be a listener until it is ended or cancelled."""
        listener = Listener(request, wanted)
        listener.tell("notifications/subscriptions/acknowledged", {"notifications": to_builtins(wanted)})
        self._listeners[listener] = None
        try:
            await listener.ended.wait()
        finally:
            del self._listeners[listener]

    def list_changed(self, kind: str) -> None:
        """A list has changed. Several changes in a row are told as one."""
        self._tell_soon(_list_of(kind))

    def resource_updated(self, uri: str) -> None:
        """A resource's contents have changed."""
        self._tell_soon((uri, UPDATED))

    def _tell_soon(self, topic: Topic) -> None:
        self._changed.add(topic)
        if (token := self.token) is None:  # nobody can have heard of it before
            self._changed.clear()
            return
        try:
            token.run_sync_soon(self._tell, idempotent=True)
        except trio.RunFinishedError:
            self.token = None

    def _tell(self) -> None:
        changed, self._changed = self._changed, set()
        for topic in sorted(changed):
            uri, method = topic
            of_resource = method == UPDATED
            params = {"uri": uri} if of_resource else {}
            for conversation in list(self._conversations):
                is_open = conversation.session.phase is Phase.OPEN
                if uri in conversation.subscribed if of_resource else is_open:
                    conversation.announce(method, params)
            for listener in list(self._listeners):
                if topic in listener.topics:
                    listener.tell(method, params)
