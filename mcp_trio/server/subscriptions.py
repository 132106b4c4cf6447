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

KINDS = ("tools", "resources", "prompts")


class Listener:
    """One `subscriptions/listen` request, while it lasts."""

    def __init__(self, request: Request, wanted: Filter) -> None:
        self.request = request
        self.wanted = wanted
        self._uris = frozenset(wanted.resource_subscriptions)
        self._ended = trio.Event()

    def hears_list(self, kind: str) -> bool:
        """Whether it asked for changes of that list."""
        wanted: bool = getattr(self.wanted, f"{kind}_list_changed")
        return wanted

    def hears_resource(self, uri: str) -> bool:
        """Whether it asked for changes of that resource."""
        return uri in self._uris

    def tell(self, method: str, params: Json) -> None:
        """Send a notification that names this subscription."""
        meta = {VENDOR + "subscriptionId": self.request.call.id}
        self.request.tell(method, {"_meta": meta, **params})

    def end(self) -> None:
        """Let the request return."""
        self._ended.set()

    async def last(self) -> None:
        """Return when it has ended."""
        await self._ended.wait()


class Subscriptions:
    """All that listen to one server. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._conversations: dict[Conversation, None] = {}  # in the order in which they came
        self._listeners: dict[Listener, None] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        self._changed: set[str] = set()
        self._updated: set[str] = set()

    def start(self, token: trio.lowlevel.TrioToken | None) -> None:
        """Say in which loop the conversations run; None: in none any more."""
        self._token = token

    def opened(self, conversation: Conversation) -> None:
        """A client that opened a session is ready to hear."""
        self._conversations[conversation] = None

    def closed(self, conversation: Conversation) -> None:
        """A client is gone, or sends no more: what it listens to ends."""
        self._conversations.pop(conversation, None)
        for listener in list(self._listeners):
            if listener.request.conversation is conversation:
                listener.end()

    def end_all(self) -> None:
        """The server stops: each listener is told that its subscription has ended."""
        for listener in list(self._listeners):
            listener.end()

    async def listen(self, request: Request, wanted: Filter) -> None:
        """Be a listener until it is ended or cancelled."""
        listener = Listener(request, wanted)
        listener.tell("notifications/subscriptions/acknowledged", {"notifications": to_builtins(wanted)})
        self._listeners[listener] = None
        try:
            await listener.last()
        finally:
            del self._listeners[listener]

    def list_changed(self, kind: str) -> None:
        """A list has changed. Several changes in a row are told as one."""
        self._changed.add(kind)
        self._tell_soon()

    def resource_updated(self, uri: str) -> None:
        """A resource's contents have changed."""
        self._updated.add(uri)
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._token is None:  # nobody can have heard of it before
            self._changed.clear()
            self._updated.clear()
            return
        try:
            self._token.run_sync_soon(self._tell, idempotent=True)
        except trio.RunFinishedError:
            self._token = None

    def _tell(self) -> None:
        changed, self._changed = self._changed, set()
        updated, self._updated = self._updated, set()
        for kind in sorted(changed):
            self._tell_list(kind)
        for uri in sorted(updated):
            self._tell_resource(uri)

    def _tell_list(self, kind: str) -> None:
        method = f"notifications/{kind}/list_changed"
        for conversation in list(self._conversations):
            if conversation.session.phase is Phase.OPEN:
                conversation.announce(method, {})
        for listener in list(self._listeners):
            if listener.hears_list(kind):
                listener.tell(method, {})

    def _tell_resource(self, uri: str) -> None:
        method = "notifications/resources/updated"
        for conversation in list(self._conversations):
            if uri in conversation.subscribed:
                conversation.announce(method, {"uri": uri})
        for listener in list(self._listeners):
            if listener.hears_resource(uri):
                listener.tell(method, {"uri": uri})
