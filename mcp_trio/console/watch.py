"""Every message that passes between a server and its clients, on any transport: the latest are kept to be looked at."""

from __future__ import annotations

import time
from collections import deque
from itertools import count, islice
from typing import Any

import trio
from msgspec import UNSET, Struct, UnsetType, field

from ..protocol.jsonrpc import MAX_MESSAGE
from ..protocol.model import Json
from ..protocol.params import NO_META, ClientInfo, Meta
from ..server.app import Server
from ..server.dispatch import Channel, Conversation, Wire
from ..trace.format import VERSION, Header, Sender, Trace, Transport, line, parsed, revision_in
from ..transports.http.endpoint import MCP, SESSION, Head, Headers, Reply
from ..transports.http.service import Exchange, Feed, Service
from ..transports.http.streams import HttpSession, Stream
from ..transports.memory import MemoryWire
from ..transports.stdio import StdioWire

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


class Watch:
    """What sees all messages. Nobody is waited for: who is too slow misses some."""

    def __init__(self) -> None:
        self.news = trio.lowlevel.ParkingLot()
        self.latest = 0  # the number of the last message
        self.said: bytes | None = None  # by the server, the last time
        self._kept: deque[Passed] = deque()
        self._size = 0
        self._talks = count(1)
        self._known: dict[str, Talk] = {}  # the clients without a session

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
        if sender == "server":
            self.said = data
        elif not talk.client:
            talk.client = client_of(data)
        self.news.unpark_all()

    def since(self, number: int, most: int) -> list[Passed]:
        """Messages behind one, in order: not all at once."""
        first = self.latest - len(self._kept)
        return list(islice(self._kept, max(0, number - first), max(0, number - first) + most))

    def trace(self, number: int, title: str, server: str) -> Trace | None:
        """What is kept of a conversation, as a trace that holds on any transport; None where there is nothing."""
        kept = [passed for passed in self._kept if passed.talk.number == number]
        if not kept:
            return None
        talk, began = kept[0].talk, kept[0].at
        over: Transport = "sse" if talk.transport == "sse" else "ws" if talk.transport == "ws" else "stdio"
        header = Header(
            mcp_trace=VERSION,
            title=title,
            revision=next(filter(None, (revision_in(parsed(passed.data)) for passed in reversed(kept))), ""),
            transport=over,
            server=server,
            client=talk.client,
            paced=True,
            notes=f"Saved in the console: the messages, without what carried them ({talk.transport}).",
        )
        return Trace(header, [line(passed.at - began, passed.sender, passed.data) for passed in kept])

    # What is watched

    def wire(self, wire: Wire, talk: Talk | None = None) -> Wire:
        """A wire whose messages are seen."""
        return wire if isinstance(wire, _Wire) else _Wire(wire, self, talk or self.talk(_transport(wire)))

    def service(self, server: Server, *path: str, **guarding: Any) -> Service:
        """The HTTP side of a server, whose messages are seen."""
        return _Service(self, server, *path, **guarding)

    def visitor(self, data: bytes) -> Talk:
        """The conversation of a message over HTTP that is of no session: a new one, or that of a client's name."""
        if b'"initialize"' in data:
            return self.talk("http")
        name = client_of(data)
        talk = self._known[name] = self._known.pop(name) if name in self._known else self.talk("http")
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


def _transport(wire: Any) -> str:
    if isinstance(wire, StdioWire | MemoryWire):
        return "stdio" if isinstance(wire, StdioWire) else "memory"
    return "sse" if isinstance(wire.outgoing, Stream) else "ws"


class _Channel:
    """The way to a client, whose messages are seen."""

    def __init__(self, channel: Channel, watch: Watch, talk: Talk) -> None:
        self.drained = channel.drained
        self._send, self._watch, self._talk = channel.send, watch, talk

    def send(self, message: bytes) -> None:
        """Put one message on its way."""
        self._watch.note(self._talk, "server", message)
        self._send(message)


class _Wire(_Channel):
    """Both ways."""

    def __init__(self, wire: Wire, watch: Watch, talk: Talk) -> None:
        super().__init__(wire, watch, talk)
        self.flush, self._receive = wire.flush, wire.receive

    async def receive(self) -> list[bytes | None]:
        """What has come; a message that was too large is not kept."""
        messages = await self._receive()
        for message in messages:
            if message is not None:
                self._watch.note(self._talk, "client", message)
        return messages


# Over HTTP


class _Session(HttpSession):
    """A conversation, with or without a session; what it announces is seen."""

    __slots__ = ("talk", "watch")
    talk: Talk
    watch: Watch

    def tell(self, method: str, params: Json, channel: Channel | None = None, revision: Any = None) -> None:
        """The same."""
        super().tell(method, params, channel or _Channel(self.news, self.watch, self.talk), revision)


class _Exchange(Exchange):
    """A POST; what is said before the result, and the result, are seen."""

    def __init__(self, service: Any, conversation: Conversation, headers: Headers) -> None:
        super().__init__(service, conversation, headers)
        self._talk, self._watch = service.talk, service.watch
        if isinstance(conversation, _Session):
            conversation.talk, conversation.watch = service.talk, service.watch

    def send(self, message: bytes) -> None:
        """Say something before the result."""
        self._watch.note(self._talk, "server", message)
        super().send(message)

    def _end(self, message: bytes | None) -> None:
        if message is not None:
            self._watch.note(self._talk, "server", message)
        super()._end(message)


class _Service(Service):
    """The HTTP side of a server, whose messages are seen."""

    session, exchange = _Session, _Exchange
    talk: Talk  # that the latest request belongs to

    def __init__(self, watch: Watch, server: Server, path: str = "/mcp", **guarding: Any) -> None:
        super().__init__(server, path, **guarding)
        self.watch = watch

    def answer(self, head: Head, body: bytes) -> Reply | Exchange | Feed:
        """The same."""
        if head.route != MCP or head.method != b"POST":
            return super().answer(head, body)
        session = self.sessions.get(head.headers.get(SESSION, b""))
        self.talk = session.talk if isinstance(session, _Session) else self.watch.visitor(body)
        self.watch.note(self.talk, "client", body)
        answer = super().answer(head, body)
        if isinstance(answer, Reply) and answer.body and answer.body is not self.watch.said:
            self.watch.note(self.talk, "server", answer.body)  # a refusal, or what was answered at once
        return answer
