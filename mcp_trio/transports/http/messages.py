"""TODO"""

from collections.abc import Mapping
from math import ceil

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
    (b"X-Accel-Buffering", b"no"),  # nginx keeps back what it buffers
)


class Head(msgspec.Struct):
    """A request without its body. Names of headers are in lower case, values of equal names are joined."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    local: str = ""  # the address that it came to
    route: str = ""  # filled in when it is admitted
    query: bytes = b""
    scheme: str = "http"
    peer: str = "unknown"  # the address that it came from
    token: str = ""  # filled in when it is admitted, where access is controlled
    principal: Principal | None = None  # filled in when the token is verified


class Reply(msgspec.Struct):
    """A whole response."""

    status: int
    body: bytes = b""
    headers: Fields = ()


class Refused(Exception):
    """Ends the handling of a request: this is what it gets."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


def refusal(status: int, message: str, headers: Fields = ()) -> Reply:
    """A response that says what is wrong, as a JSON-RPC error that belongs to no request."""
    error = {"code": InvalidRequest.code, "message": message}
    return Reply(status, jsonrpc.encode_error(msgspec.UNSET, error), JSON + headers)


TOO_LARGE = refusal(413, f"A body is larger than {jsonrpc.MAX_MESSAGE // 2**20} MiB")
TOO_SLOW = refusal(408, "The request took too long to come")


def reply(
    message: bytes, error: ProtocolError | None, revision: Revision | None
) -> Reply:
    """A message, by the status of the error in it: what was no request at all is a bad one in every revision."""
    if error is None or (
        revision
        and revision.opens
        and not isinstance(error, ParseError | InvalidRequest)
    ):
        return Reply(200, message, JSON)
    headers = JSON
    if isinstance(error, ServiceUnavailable):
        headers += ((b"Retry-After", b"%d" % ceil(error.retry_after)),)
    return Reply(error.kind.status, message, headers)


def error_reply(id: jsonrpc.Id, error: ProtocolError, revision: Revision) -> Reply:
    """A request's error as a whole response."""
    return reply(jsonrpc.encode_error(id, revision.error(error)), error, revision)
