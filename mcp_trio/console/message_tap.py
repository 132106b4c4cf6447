"""Observe the messages between a server and its clients, over any transport.

The latest ones are kept, so that they can be shown and saved as traces.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from weakref import WeakKeyDictionary

import trio
from msgspec import UNSET, Struct, UnsetType, field

from ..auth.principal import Owner
from ..protocol.jsonrpc import MAX_MESSAGE
from ..protocol.params import NO_META, ClientInfo, Meta
from ..server.app import Server
from ..server.conversation import Conversation, MessageObserver
from ..trace.format import (
    VERSION,
    Header,
    Sender,
    Trace,
    Transport,
    line,
    parsed,
    revision_in,
)

# The most messages that are kept, and the most bytes of them.
MAX_MESSAGES = 2_000
MAX_BYTES = 8 * MAX_MESSAGE
# The most clients without a session that are remembered, by name.
MAX_CLIENTS = 1_000


class ObservedConversation(Struct, eq=False):
    """One conversation.

    `client` is the client's name and version, if they are known. `is_owner` is whether
    the client acts for the owner of the process, as the console does.
    """

    number: int
    transport: str
    client: str = ""
    is_owner: bool = False


class ObservedMessage(Struct, eq=False):
    """One message of a conversation. Messages are numbered from 1."""

    number: int
    at: float
    conversation: ObservedConversation
    sender: Sender
    data: bytes


class _OpeningParams(Struct):
    meta: Meta = field(default=NO_META, name="_meta")
    client: ClientInfo | UnsetType = field(default=UNSET, name="clientInfo")


class _Opening(Struct):
    """A message that names the client: `initialize`, or a request without a session."""

    params: _OpeningParams


class MessageTap:
    """Observes and keeps the messages of a server.

    Nothing waits for readers: one that is too slow misses messages.
    """

    def __init__(self) -> None:
        # The number of the latest message.
        self.latest = 0
        self._readers = trio.lowlevel.ParkingLot()
        self._kept: deque[ObservedMessage] = deque()
        self._size = 0
        self._numbers = count(1)
        self._conversations = WeakKeyDictionary[Conversation, ObservedConversation]()
        # The clients without a session by name, the most recently active last.
        self._known: dict[str, ObservedConversation] = {}
        self._next_observer: MessageObserver | None = None

    @contextmanager
    def attached_to(self, server: Server) -> Iterator[None]:
        """Observe the conversations that begin inside this block.

        If the server already has an observer, it still receives all messages.
        """
        previous = server.on_message
        self._next_observer = previous
        server.on_message = self.observe
        try:
            yield
        finally:
            # Keep an observer that was set in the meantime.
            if server.on_message == self.observe:
                server.on_message = previous

    def observe(self, conversation: Conversation, sender: Sender, data: bytes) -> None:
        """Note a message of any conversation."""
        observed = self._conversations.get(conversation)
        if observed is None:
            if conversation.transport == "http":
                observed = self.http_conversation(data)
            else:
                is_owner = isinstance(conversation.principal, Owner)
                observed = self.begin_conversation(
                    conversation.transport, is_owner=is_owner
                )
            self._conversations[conversation] = observed
        self.note(observed, sender, data)
        self.pass_on(conversation, sender, data)

    def pass_on(self, conversation: Conversation, sender: Sender, data: bytes) -> None:
        """Call the previous observer of the server, if there is one."""
        if self._next_observer is not None:
            self._next_observer(conversation, sender, data)

    def begin_conversation(
        self, transport: str, *, is_owner: bool = False
    ) -> ObservedConversation:
        """Number a new conversation."""
        number = next(self._numbers)
        return ObservedConversation(number, transport, is_owner=is_owner)

    def note(
        self, conversation: ObservedConversation, sender: Sender, data: bytes
    ) -> None:
        """Keep a message, and forget the oldest ones if there are too many."""
        self.latest += 1
        message = ObservedMessage(self.latest, time.time(), conversation, sender, data)
        self._kept.append(message)
        self._size += len(data)
        while len(self._kept) > MAX_MESSAGES or self._size > MAX_BYTES:
            self._size -= len(self._kept.popleft().data)
        if sender == "client" and not conversation.client:
            conversation.client = client_of(data)
        self.wake_readers()

    async def wait(self) -> None:
        """Wait for a message, or for `wake_readers`."""
        await self._readers.park()

    def wake_readers(self) -> None:
        """Wake the tasks in `wait`, because of a message or any other event."""
        self._readers.unpark_all()

    def since(self, number: int, limit: int) -> list[ObservedMessage]:
        """Return the messages after a number, in order, and at most `limit` of them."""
        forgotten = self.latest - len(self._kept)
        start = max(0, number - forgotten)
        return list(islice(self._kept, start, start + limit))

    def trace(self, number: int, title: str, server: str) -> Trace | None:
        """Return a conversation as a trace that can be replayed over any transport.

        Returns None if no messages of the conversation are kept.
        """
        messages = [one for one in self._kept if one.conversation.number == number]
        if not messages:
            return None
        conversation = messages[0].conversation
        start = messages[0].at
        transport = conversation.transport
        header = Header(
            mcp_trace=VERSION,
            title=title,
            revision=_latest_revision(messages),
            transport=_trace_transport(transport),
            server=server,
            client=conversation.client,
            paced=True,
            notes=(
                "Saved in the console: only the messages, and not their transport "
                f"({transport})."
            ),
        )
        lines = [line(one.at - start, one.sender, one.data) for one in messages]
        return Trace(header, lines)

    def http_conversation(self, data: bytes) -> ObservedConversation:
        """Return the conversation of an HTTP message that belongs to no session.

        Messages that open a session begin a conversation. Others belong to the
        conversation of the client that they name.
        """
        if b'"initialize"' in data:
            return self.begin_conversation("http")
        name = client_of(data)
        conversation = self._known.pop(name, None)
        if conversation is None:
            conversation = self.begin_conversation("http")
        self._known[name] = conversation
        if len(self._known) > MAX_CLIENTS:
            oldest = next(iter(self._known))
            del self._known[oldest]
        return conversation


def client_of(data: bytes) -> str:
    """Return the name and version in a client's message, or an empty string."""
    # Most messages do not name the client, and need no decoding.
    if b"clientInfo" not in data:
        return ""
    opening: _Opening | None = parsed(data, _Opening)
    if opening is None:
        return ""
    info = opening.params.client or opening.params.meta.client
    if not info:
        return ""
    return f"{info.name} {info.version}".strip()


def _latest_revision(messages: Iterable[ObservedMessage]) -> str:
    """Return the revision in the latest message that names one, or an empty string."""
    latest = ""
    for message in messages:
        revision = revision_in(parsed(message.data))
        if revision:
            latest = revision
    return latest


def _trace_transport(transport: str) -> Transport:
    """Return the transport of a trace that has only messages, without HTTP."""
    if transport == "sse":
        return "sse"
    if transport == "ws":
        return "ws"
    return "stdio"
