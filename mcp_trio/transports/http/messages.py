"""HTTP requests and responses, as the modules of this package exchange them."""

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import msgspec

from ...auth.principal import Principal
from ...protocol import jsonrpc
from ...protocol.errors import (
    InvalidRequest,
    ParseError,
    ProtocolError,
    ServiceUnavailable,
)
from ...protocol.revisions import Revision

Headers = Mapping[bytes, bytes]
Fields = tuple[tuple[bytes, bytes], ...]

JSON: Fields = ((b"Content-Type", b"application/json"),)
PLAIN: Fields = ((b"Content-Type", b"text/plain; charset=utf-8"),)
EVENTS: Fields = (
    (b"Content-Type", b"text/event-stream"),
    (b"Cache-Control", b"no-store"),
    # Otherwise nginx would hold events back.
    (b"X-Accel-Buffering", b"no"),
)


class PostedRequests(NamedTuple):
    """The ids of the requests in one POST, to which its stream has the replies."""

    ids: tuple[jsonrpc.Id, ...]
    in_batch: bool = False


NO_REQUESTS = PostedRequests(())


class Reply(msgspec.Struct):
    """A whole response."""

    status: int
    body: bytes = b""
    headers: Fields = ()


class Accepted(NamedTuple):
    """Which responses a client accepts."""

    json: bool = True
    stream: bool = True
    prefers_stream: bool = False


ACCEPTS_ALL = Accepted()


class Head(msgspec.Struct):
    """A request without its body.

    Header names are in lower case, and the values of repeated headers are joined.
    """

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    local: str = ""  # the address that it was sent to
    route: str = ""  # set when it is admitted
    accepted: Accepted = ACCEPTS_ALL  # set when it is admitted
    query: bytes = b""
    scheme: str = "http"
    peer: str = "unknown"  # the address that it was sent from
    token: str = ""  # set when it is admitted, if access is controlled
    principal: Principal | None = None  # set when the token is verified


class Parsed(Head):
    """A request as it was parsed. `refused` is set if something is wrong with it."""

    # Not a list of chunks, as that would need too much memory if they are short.
    body: bytes | bytearray = bytearray()
    refused: Reply | None = None
    keeps_alive: bool = True
    chunked: bool = True  # whether the client can read a chunked response
    upgrade: bool = False
    is_identified: bool = False  # whether its principal is known, or it has none

    def encoded(self) -> bytes:
        """Return the head nearly as it was sent."""
        lines = b"".join([b"%b: %b\r\n" % header for header in self.headers.items()])
        start = b"%b %b HTTP/1.%d" % (self.method, self.target, self.chunked)
        return b"%b\r\n%b\r\n" % (start, lines)


class Refused(Exception):
    """Raised to refuse a request with this reply."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


def refusal(status: int, message: str, headers: Fields = ()) -> Reply:
    """Return a response whose body is a JSON-RPC error without a request id."""
    error = {"code": InvalidRequest.code, "message": message}
    return Reply(status, jsonrpc.encode_error(msgspec.UNSET, error), JSON + headers)


MAX_MIB = jsonrpc.MAX_MESSAGE // 2**20
TOO_LARGE = refusal(413, f"A body is larger than {MAX_MIB} MiB")
OUT_OF_MEMORY = refusal(
    503,
    "Busy: the server's memory is needed for other clients; try again in 1 s",
    ((b"Retry-After", b"1"),),
)
REQUEST_TIMEOUT = refusal(408, "The request took too long to arrive")


def reply(
    message: bytes, error: ProtocolError | None, revision: Revision | None
) -> Reply:
    """Return a message as a response, with the status of its error.

    Revisions with sessions reply to errors with status 200, unless the body was not a
    request at all, or the client should send it again later.
    """
    if error is None:
        return Reply(200, message, JSON)
    if isinstance(error, ServiceUnavailable):
        return Reply(error.kind.status, message, JSON + retry_after(error))
    is_request = not isinstance(error, ParseError | InvalidRequest)
    if revision and revision.opens and is_request:
        return Reply(200, message, JSON)
    return Reply(error.kind.status, message, JSON)


def retry_after(error: ServiceUnavailable) -> Fields:
    """Return the Retry-After header for an error."""
    return ((b"Retry-After", b"%d" % ceil(error.retry_after)),)


def error_reply(id: jsonrpc.Id, error: ProtocolError, revision: Revision) -> Reply:
    """Return a response that refuses a request with an error."""
    return reply(jsonrpc.encode_error(id, revision.error(error)), error, revision)
