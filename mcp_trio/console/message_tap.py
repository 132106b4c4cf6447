"""Every message that passes between a server and its clients, on any transport: the latest are kept to be looked at."""

from __future__ import annotations

import time
from collections import deque
from itertools import count, islice
from weakref import WeakKeyDictionary

import trio
from msgspec import UNSET, Struct, UnsetType, field

from ..protocol.jsonrpc import MAX_MESSAGE
from ..protocol.params import NO_META, ClientInfo, Meta
from ..server.conversation import Conversation
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

MOST_MESSAGES, MOST_BYTES = 2_000, 8 * MAX_MESSAGE
# Clients without a session that are told from one another.
MOST_CLIENTS = 1_000


class Talk(Struct, eq=False):
    """One conversation: what it goes over, and with whom, as far as that is known."""

    number: int
    transport: str
    client: str = ""


class Passed(Struct, eq=False):
    """A message that has passed."""

    number: int
    at: float
    talk: Talk
    sender: Sender
    data: bytes


class _OpeningParams(Struct):
    meta: Meta = field(default=NO_META, name="_meta")
    client: ClientInfo | UnsetType = field(default=UNSET, name="clientInfo")


class _Opening(Struct):
    """What says who a client is: `initialize`, or any request without a session."""

    params: _OpeningParams


class MessageTap:
    """What sees all messages. Nobody is waited for: who is too slow misses some."""

    def __init__(self) -> None:
        self.news = trio.lowlevel.ParkingLot()
        self.latest = 0  # the number of the last message
        self._kept: deque[Passed] = deque()
        self._size = 0
        self._talks = count(1)
        self._talks_of = WeakKeyDictionary[Conversation, Talk]()
        self._known: dict[str, Talk] = {}  # the clients without a session

    def observe(self, conversation: Conversation, sender: Sender, data: bytes) -> None:
        """Note a message that passes in a conversation."""
        talk = self._talks_of.get(conversation)
        if talk is None:
            is_http = conversation.transport == "http"
            talk = self.visitor(data) if is_http else self.talk(conversation.transport)
            self._talks_of[conversation] = talk
        self.note(talk, sender, data)

    def talk(self, transport: str) -> Talk:
        """A conversation begins."""
        return Talk(next(self._talks), transport)

    def note(self, talk: Talk, sender: Sender, data: bytes) -> None:
        """A message passes."""
        self.latest += 1
        self._kept.append(Passed(self.latest, time.time(), talk, sender, data))
        self._size += len(data)
        while len(self._kept) > MOST_MESSAGES or self._size > MOST_BYTES:
            self._size -= len(self._kept.popleft().data)
        if sender == "client" and not talk.client:
            talk.client = client_of(data)
        self.news.unpark_all()

    def since(self, number: int, most: int) -> list[Passed]:
        """Messages behind one, in order: not all at once."""
        first = self.latest - len(self._kept)
        return list(
            islice(self._kept, max(0, number - first), max(0, number - first) + most)
        )

    def trace(self, number: int, title: str, server: str) -> Trace | None:
        """What is kept of a conversation, as a trace that holds on any transport; None where there is nothing."""
        kept = [passed for passed in self._kept if passed.talk.number == number]
        if not kept:
            return None
        talk, began = kept[0].talk, kept[0].at
        over: Transport = (
            "sse"
            if talk.transport == "sse"
            else "ws"
            if talk.transport == "ws"
            else "stdio"
        )
        header = Header(
            mcp_trace=VERSION,
            title=title,
            revision=next(
                filter(
                    None,
                    (revision_in(parsed(passed.data)) for passed in reversed(kept)),
                ),
                "",
            ),
            transport=over,
            server=server,
            client=talk.client,
            paced=True,
            notes=f"Saved in the console: the messages, without what carried them ({talk.transport}).",
        )
        return Trace(
            header,
            [line(passed.at - began, passed.sender, passed.data) for passed in kept],
        )

    def visitor(self, data: bytes) -> Talk:
        """The conversation of a message over HTTP that is of no session: a new one, or that of a client's name."""
        if b'"initialize"' in data:
            return self.talk("http")
        name = client_of(data)
        talk = self._known[name] = (
            self._known.pop(name) if name in self._known else self.talk("http")
        )
        if len(self._known) > MOST_CLIENTS:
            del self._known[next(iter(self._known))]
        return talk


def client_of(data: bytes) -> str:
    """The name and version that a client's message gives; nothing where it gives none."""
    opening: _Opening | None = parsed(data, _Opening) if b"clientInfo" in data else None
    if opening is None:
        return ""
    info = opening.params.client or opening.params.meta.client
    return f"{info.name} {info.version}".strip() if info else ""
