"""What the processes of one server tell one another."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from ..protocol import jsonrpc


class PeerMessage(Struct, array_like=True, tag=True, frozen=True):
    """The base of all messages."""


class AboutSession(PeerMessage, frozen=True):
    """The base of messages about one session."""

    session: str  # its id


# To all processes


class Changed(PeerMessage, frozen=True):
    """Lists (a kind without a URI) and resources have changed at a process."""

    topics: list[tuple[str, str | None]]
    process: str


class SessionEnded(AboutSession, frozen=True):
    """A session has ended. Everything that runs in it is to be canceled."""


class SessionChanged(AboutSession, frozen=True):
    """The record of a session was changed by a process."""

    process: str


class SessionClaimed(AboutSession, frozen=True):
    """A process is the home of a session from now on, unless a later one is.

    The claims of one session are numbered, in the order in which they were stored.
    """

    process: str
    number: int = 0


class RequestCancelled(AboutSession, frozen=True):
    """The client cancels a request, wherever it runs."""

    request: jsonrpc.Id


# To one process


class QuestionAnswered(AboutSession, frozen=True):
    """The client has answered a question that the process has asked."""

    question: str
    result: bytes | None
    error: bytes | None


class StreamFollowed(AboutSession, frozen=True):
    """A process serves the client of a stream, and wants to know when it grows."""

    stream: str
    process: str


class StreamGrew(AboutSession, frozen=True):
    """There are new events in the log of a stream."""

    stream: str


class SseMessagePosted(PeerMessage, frozen=True):
    """A client of HTTP+SSE has posted a message for a stream that the process serves.

    `query` is that of the request. The principal is the one of its token.
    """

    query: bytes
    body: bytes
    principal: str | None
    scopes: list[str]


AnyMessage: TypeAlias = (
    Changed
    | SseMessagePosted
    | SessionEnded
    | SessionChanged
    | SessionClaimed
    | RequestCancelled
    | QuestionAnswered
    | StreamFollowed
    | StreamGrew
)

encode_message = msgspec.msgpack.Encoder().encode
decode_message = msgspec.msgpack.Decoder(AnyMessage).decode
