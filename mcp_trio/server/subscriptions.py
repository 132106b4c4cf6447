"""Notifies clients of changed lists and changed resources.

Clients with a session are notified of changes to every list, and to the resources that
they subscribed to. Others choose in their `subscriptions/listen` request.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeVar

import trio
from msgspec import Struct, to_builtins

from ..auth.principal import NO_SCOPES, has_scopes
from ..protocol.errors import InvalidParams, InvalidRequest
from ..protocol.params import VENDOR, Filter
from ..protocol.types import Json
from .accounts import account_of
from .conversation import Conversation
from .ledger import Holding, Ledger, Priority
from .request import Request

K = TypeVar("K")
V = TypeVar("V")

# The maximum number of resources that one session may subscribe to. A template matches
# any number of URIs.
MOST_SUBSCRIPTIONS = 1_000

# The size of a subscription in bytes, without the characters of its URI.
SUBSCRIPTION_SIZE = 256

KINDS = ("tools", "resources", "prompts")
# Something that can change: the list of a kind if the URI is None, or a resource.
Topic = tuple[str, str | None]


class Audience(Enum):
    """The clients to notify of a change."""

    ALL = "all"
    # Clients that only this process has. It notifies them of its own changes at once.
    OWN = "own"
    # Sessions that all processes share. Each is notified by one of the processes, so
    # that it gets the changes of all processes in the same order.
    SHARED = "shared"


class ChangeRelay(Protocol):
    """Publishes the changes at this process to all processes of the server."""

    def publish(self, topics: list[Topic]) -> None:
        """Let every process, including this one, call `notify_clients`."""


class Listener:
    """An open `subscriptions/listen` request."""

    def __init__(self, request: Request, wanted: Filter) -> None:
        self.request = request
        self.ended = trio.Event()
        self.topics: set[Topic] = set()
        for kind in KINDS:
            if getattr(wanted, f"{kind}_list_changed"):
                self.topics.add((kind, None))
        for uri in wanted.resource_subscriptions:
            self.topics.add(("resources", uri))

    def notify(self, method: str, params: Json) -> None:
        """Send a notification that names this subscription."""
        meta = {VENDOR + "subscriptionId": self.request.call.id}
        self.request.notify(method, {"_meta": meta, **params})


class Subscriptions(Struct, eq=False):
    """The sessions and listeners of one server, and what they subscribe to.

    `note_change` may be called from any thread. `scopes_of` returns the scopes that the
    resource at a URI requires; only principals that have them are notified. `token` is
    that of the running event loop, and None while the server does not run.

    There may be very many listeners, so they are indexed by topic. The dicts without
    values are ordered sets.
    """

    scopes_of: Callable[[str], frozenset[str]]
    ledger: Ledger | None = None
    token: trio.lowlevel.TrioToken | None = None
    # None if this is the only process.
    relay: ChangeRelay | None = None
    # Conversation -> the URIs that it subscribes to, and the reverse.
    _conversations: dict[Conversation, dict[str, None]] = {}
    _subscribers: dict[str, dict[Conversation, None]] = {}
    # The listeners, by topic and by conversation.
    _listeners: dict[Topic, dict[Listener, None]] = {}
    _listeners_of: dict[Conversation, dict[Listener, None]] = {}
    # The charge for each conversation's subscriptions.
    _holdings: dict[Conversation, Holding] = {}
    # Changes that no client has been notified of.
    _pending: dict[Topic, None] = {}

    def add_session(self, conversation: Conversation) -> None:
        """Notify a client that has opened a session from now on."""
        self._conversations.setdefault(conversation, {})

    def remove(self, conversation: Conversation) -> None:
        """Remove a client that has disconnected, with its subscriptions."""
        self._end_subscriptions(conversation)
        self._conversations.pop(conversation, None)
        for listener in self._listeners_of.get(conversation, ()):
            listener.ended.set()

    def subscribe(self, conversation: Conversation, uri: str) -> None:
        """Notify a session of changes to a resource from now on."""
        if conversation.session.revision is None:
            raise InvalidRequest(
                "Invalid request: subscribing needs a session, to send notifications "
                "in; begin with initialize"
            )
        uris = self._conversations.setdefault(conversation, {})
        if len(uris) >= MOST_SUBSCRIPTIONS:
            raise InvalidParams(
                f"Too many subscriptions: this session has {MOST_SUBSCRIPTIONS}, which "
                "is the maximum; unsubscribe from some first"
            )
        if uri in uris:
            return
        uris[uri] = None
        self._subscribers.setdefault(uri, {})[conversation] = None
        self._charge(conversation, len(uri) + SUBSCRIPTION_SIZE)

    def has_session(self, conversation: Conversation) -> bool:
        """Return whether a client has opened a session, and so is notified."""
        return conversation in self._conversations

    def subscribed(self, conversation: Conversation) -> list[str]:
        """Return the URIs that a session subscribes to."""
        return list(self._conversations.get(conversation, ()))

    def unsubscribe(self, conversation: Conversation, uri: str) -> None:
        """Stop notifying a session of changes to a resource."""
        uris = self._conversations.get(conversation, {})
        if uri in uris:
            del uris[uri]
            _discard(self._subscribers, uri, conversation)
            self._charge(conversation, -len(uri) - SUBSCRIPTION_SIZE)

    def _charge(self, conversation: Conversation, change: int) -> None:
        """Change what a conversation is charged for its subscriptions, by `change`."""
        holding = self._holdings.get(conversation)
        if holding is not None:
            holding.resize(holding.size + change)
        elif self.ledger is not None:

            def give_up() -> bool:
                self._end_subscriptions(conversation)
                return True

            account = account_of(conversation, conversation.principal)
            holding = self.ledger.hold(
                account, "subscriptions", change, Priority.IDLE, give_up
            )
            if not holding.is_released:
                self._holdings[conversation] = holding

    def _end_subscriptions(self, conversation: Conversation) -> None:
        """Remove a session's subscriptions: it has ended, or memory is needed."""
        uris = self._conversations.get(conversation, {})
        for uri in uris:
            _discard(self._subscribers, uri, conversation)
        uris.clear()
        holding = self._holdings.pop(conversation, None)
        if holding is not None:
            holding.release()

    def end_all(self) -> None:
        """Let every listener return its result, because the server is stopping."""
        for listeners in self._listeners_of.values():
            for listener in listeners:
                listener.ended.set()

    async def listen(
        self,
        request: Request,
        wanted: Filter,
        of_extensions: Json | None = None,
        acknowledged: Callable[[], None] | None = None,
    ) -> None:
        """Serve a listener until either side ends it.

        The acknowledgment contains the filter and `of_extensions`. `acknowledged` is
        called after it was sent.
        """
        listener = Listener(request, wanted)
        honored = {**to_builtins(wanted), **(of_extensions or {})}
        listener.notify(
            "notifications/subscriptions/acknowledged", {"notifications": honored}
        )
        self._add(listener)
        if acknowledged is not None:
            acknowledged()
        try:
            await listener.ended.wait()
        finally:
            self._remove(listener)

    def _add(self, listener: Listener) -> None:
        for topic in listener.topics:
            self._listeners.setdefault(topic, {})[listener] = None
        conversation = listener.request.conversation
        self._listeners_of.setdefault(conversation, {})[listener] = None

    def _remove(self, listener: Listener) -> None:
        for topic in listener.topics:
            _discard(self._listeners, topic, listener)
        _discard(self._listeners_of, listener.request.conversation, listener)

    def note_change(self, kind: str, uri: str | None = None) -> None:
        """Notify clients that a list, or the resource at a URI, has changed.

        Repeated changes in a short time are combined.
        """
        token = self.token
        if token is None:  # The server does not run, so there is nobody to notify.
            return
        self._pending[kind, uri] = None
        try:
            token.run_sync_soon(self._send_changes, idempotent=True)
        except trio.RunFinishedError:
            self.token = None

    def _send_changes(self) -> None:
        pending = self._pending
        self._pending = {}
        topics = list(pending)  # a copy, because another thread may still add to it
        if self.relay is None:
            self.notify_clients(topics, Audience.ALL)
        else:
            self.notify_clients(topics, Audience.OWN)
            self.relay.publish(topics)

    def notify_clients(self, topics: list[Topic], audience: Audience) -> None:
        """Notify the clients of an audience that these lists or resources changed."""
        for kind, uri in topics:
            if uri is None:
                self._notify_of_list(kind, audience)
            else:
                self._notify_of_resource(uri, audience)

    def _notify_of_list(self, kind: str, audience: Audience) -> None:
        method = f"notifications/{kind}/list_changed"
        for conversation in list(self._conversations):
            if not _is_in(audience, conversation):
                continue
            if kind in conversation.session.offered.split():
                conversation.notify(method, {})
        self._notify_listeners((kind, None), audience, method, {})

    def _notify_of_resource(self, uri: str, audience: Audience) -> None:
        method = "notifications/resources/updated"
        params: dict[str, Any] = {"uri": uri}
        scopes = self.scopes_of(uri)
        for conversation in list(self._subscribers.get(uri, ())):
            if not _is_in(audience, conversation):
                continue
            if has_scopes(conversation.principal, scopes):
                conversation.notify(method, params)
        self._notify_listeners(("resources", uri), audience, method, params, scopes)

    def _notify_listeners(
        self,
        topic: Topic,
        audience: Audience,
        method: str,
        params: Json,
        scopes: frozenset[str] = NO_SCOPES,
    ) -> None:
        for listener in list(self._listeners.get(topic, ())):
            if not _is_in(audience, listener.request.conversation):
                continue
            if has_scopes(listener.request.principal, scopes):
                listener.notify(method, params)


def _is_in(audience: Audience, conversation: Conversation) -> bool:
    """Return whether a client belongs to an audience."""
    if audience is Audience.ALL:
        return True
    return conversation.is_shared is (audience is Audience.SHARED)


def _discard(sets: dict[K, dict[V, None]], key: K, member: V) -> None:
    """Remove a member from the set under a key, and the set if it becomes empty."""
    members = sets.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del sets[key]
