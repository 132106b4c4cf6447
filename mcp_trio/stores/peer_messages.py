"""The messages between the processes of one server."""

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
    """Lists (a kind without a URI) or resources have changed at a process."""

    topics: list[tuple[str, str | None]]
    process: str


class SessionEnded(AboutSession, frozen=True):
    """A session has ended. Its requests must be cancelled."""


class SessionChanged(AboutSession, frozen=True):
    """A process has changed the record of a session."""

    process: str


class SessionClaimed(AboutSession, frozen=True):
    """A process has become the home of a session.

    The claims of a session are numbered. The process with the latest one is its home.
    """

    process: str
    number: int = 0


class RequestCancelled(AboutSession, frozen=True):
    """The client has cancelled a request, which may run in any process."""

    request: jsonrpc.Id


# To one process


class QuestionAnswered(AboutSession, frozen=True):
    """The client has answered a question that the process has asked."""

    question: str
    result: bytes | None
    error: bytes | None


class StreamFollowed(AboutSession, frozen=True):
    """A process serves a stream's client, and subscribes to `StreamGrew`."""

    stream: str
    process: str


class StreamGrew(AboutSession, frozen=True):
    """Events were appended to the log of a stream."""

    stream: str


class SseMessagePosted(PeerMessage, frozen=True):
    """A client of HTTP+SSE has posted a message for a stream of the receiving process.

    `query` is the request's query. `principal` and `scopes` are those of its token.
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
