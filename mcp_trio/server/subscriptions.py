"""Tells clients about changed lists and changed resources.

Clients with a session are notified of every list, and of the resources that they
subscribed to. Others choose in their `subscriptions/listen` request.
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

# Resources that one session may subscribe to. A bound is needed because a template
# matches any number of URIs.
MOST_SUBSCRIPTIONS = 1_000

# The bytes of a subscription without the characters of its URI.
SUBSCRIPTION_SIZE = 256

KINDS = ("tools", "resources", "prompts")
# What can change: the list of a kind, if the URI is None, or a resource.
Topic = tuple[str, str | None]


class Audience(Enum):
    """Who is told about a change."""

    ALL = "all"
    # Those that only this process knows of. It tells them of its own changes at once.
    OWN = "own"
    # Sessions that all processes share: each is told by one of the processes, about
    # the changes at any of them in the same order.
    SHARED = "shared"


class ChangeRelay(Protocol):
    """Tells all processes of the server what has changed at this one."""

    def publish(self, topics: list[Topic]) -> None:
        """Tell them. Each calls `Subscriptions.announce`, this one too."""


class Listener:
    """One `subscriptions/listen` request, as long as it is open."""

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
    """Everything that listens to one server. `changed` may be called from any thread.

    `scopes_of` returns the scopes that the resource at a URI requires; only principals
    that have them are told about it. `token` is that of the loop in which
    the conversations run, while the server runs.

    There may be very many listeners, so those that an event concerns are looked up, and
    no event looks at all of them. The dicts without values are ordered sets.
    """

    scopes_of: Callable[[str], frozenset[str]]
    ledger: Ledger | None = None
    token: trio.lowlevel.TrioToken | None = None
    # None if this is the only process.
    relay: ChangeRelay | None = None
    # Each conversation with the URIs that it subscribes to, and the other way round.
    _conversations: dict[Conversation, dict[str, None]] = {}
    _subscribers: dict[str, dict[Conversation, None]] = {}
    # The listeners, by what they listen to and by whose they are.
    _listeners: dict[Topic, dict[Listener, None]] = {}
    _listeners_of: dict[Conversation, dict[Listener, None]] = {}
    # What each conversation's subscriptions are charged.
    _holdings: dict[Conversation, Holding] = {}
    # Changes that have not been sent yet.
    _changed: dict[Topic, None] = {}

    def add_session(self, conversation: Conversation) -> None:
        """Start to tell a client that has opened a session."""
        self._conversations.setdefault(conversation, {})

    def remove(self, conversation: Conversation) -> None:
        """End everything a client listens to, because it has gone."""
        self._end_subscriptions(conversation)
        self._conversations.pop(conversation, None)
        for listener in self._listeners_of.get(conversation, ()):
            listener.ended.set()

    def subscribe(self, conversation: Conversation, uri: str) -> None:
        """Tell a session about a resource from now on."""
        if conversation.session.revision is None:
            raise InvalidRequest(
                "Invalid request: a session is wanted, to be told in that a resource "
                "has changed"
            )
        uris = self._conversations.setdefault(conversation, {})
        if len(uris) >= MOST_SUBSCRIPTIONS:
            raise InvalidParams(
                f"{MOST_SUBSCRIPTIONS} resources are subscribed to; unsubscribe from "
                "some first"
            )
        if uri in uris:
            return
        uris[uri] = None
        self._subscribers.setdefault(uri, {})[conversation] = None
        self._charge(conversation, len(uri) + SUBSCRIPTION_SIZE)

    def has_session(self, conversation: Conversation) -> bool:
        """Return whether a client that has opened a session is told of changes."""
        return conversation in self._conversations

    def subscribed(self, conversation: Conversation) -> list[str]:
        """Return the URIs that a session subscribes to."""
        return list(self._conversations.get(conversation, ()))

    def unsubscribe(self, conversation: Conversation, uri: str) -> None:
        """Stop telling a session about a resource."""
        uris = self._conversations.get(conversation, {})
        if uri in uris:
            del uris[uri]
            _discard(self._subscribers, uri, conversation)
            self._charge(conversation, -len(uri) - SUBSCRIPTION_SIZE)

    def _charge(self, conversation: Conversation, change: int) -> None:
        """Charge a conversation for more subscriptions, or for fewer."""
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
        """End what a session subscribes to: it has gone, or its memory is needed."""
        uris = self._conversations.get(conversation, {})
        for uri in uris:
            _discard(self._subscribers, uri, conversation)
        uris.clear()
        holding = self._holdings.pop(conversation, None)
        if holding is not None:
            holding.release()

    def end_all(self) -> None:
        """End every listener with a result, because the server stops."""
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
        """Listen until either side ends it.

        `of_extensions` is acknowledged beside the filter. `acknowledged` is called as
        soon as that is done.
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
        """Announce that a list, or the resource at a URI, has changed.

        Several changes in a row are announced as one.
        """
        token = self.token
        if (
            token is None
        ):  # the server does not run, so no client can know the old state
            return
        self._changed[kind, uri] = None
        try:
            token.run_sync_soon(self._send_changes, idempotent=True)
        except trio.RunFinishedError:
            self.token = None

    def _send_changes(self) -> None:
        changed = self._changed
        self._changed = {}
        topics = list(changed)  # another thread may still add to it
        if self.relay is None:
            self.notify_clients(topics, Audience.ALL)
        else:
            self.notify_clients(topics, Audience.OWN)
            self.relay.publish(topics)

    def notify_clients(self, topics: list[Topic], audience: Audience) -> None:
        """Tell clients what has changed."""
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
    """Remove a member from the set under a key, and the set if it is empty then."""
    members = sets.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del sets[key]
