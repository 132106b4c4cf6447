"""What can go wrong, and the one table of what each kind is on the wire.

A `ProtocolError` is answered as a JSON-RPC error. Its code and HTTP status stand in `TABLE`; where a revision
numbers a kind otherwise, that revision says so (`Revision.codes_of`).
"""

from collections.abc import Mapping
from typing import Any


class ProtocolError(Exception):
    """An error that the client is told of, as a JSON-RPC error."""

    def __init__(self, message: str, *, data: Mapping[str, Any] | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        if not isinstance(message, str):
            raise TypeError(f"{type(self).__name__}(message) wants str, not {message!r}")
        self.message = message
        self.data = data
        self.reason = message if reason is None else reason  # without the words that say where it was found


class ParseError(ProtocolError):
    """The bytes are no JSON."""


class InvalidRequest(ProtocolError):
    """JSON, but no JSON-RPC message; or a message out of turn."""


class MethodNotFound(ProtocolError):
    """A method that the revision, or this server, does not have."""


class InvalidParams(ProtocolError):
    """A request whose parameters cannot be used."""


class InvalidArguments(InvalidParams):
    """Arguments that do not fit the schema of what they were sent to; `of` says what that is."""

    def __init__(self, reason: str, *, of: str = "") -> None:
        super().__init__(f"Invalid arguments for {of}: {reason}" if of else reason, reason=reason)


class NotInMeta(InvalidParams):
    """A request without the `_meta` that its revision requires."""


class ResourceNotFound(ProtocolError):
    """No resource has this URI."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"Resource not found: {uri}", data={"uri": uri})


class InternalError(ProtocolError):
    """The server's own fault. What it was stands in the server's log, not here."""


class HeaderMismatch(ProtocolError):
    """An HTTP header says other than the body."""


class MissingClientCapability(ProtocolError):
    """The request needs something of the client that the client did not offer."""

    def __init__(self, required: Mapping[str, Any]) -> None:
        wanted = " and ".join(".".join([name, *inner]) for name, inner in required.items())
        message = f"This request needs a client with the capability {wanted}"
        super().__init__(message, data={"requiredCapabilities": required})


class UnsupportedVersion(ProtocolError):
    """A protocol revision that this server does not speak."""

    def __init__(self, requested: str, supported: list[str]) -> None:
        super().__init__("Unsupported protocol version", data={"supported": supported, "requested": requested})


class UrlElicitationRequired(ProtocolError):
    """The user has to visit the given addresses first; `elicitations` are the wire's own objects."""

    def __init__(self, message: str, elicitations: list[dict[str, Any]]) -> None:
        super().__init__(message, data={"elicitations": elicitations})


# Kind of error -> its JSON-RPC code, and the HTTP status of a reply that holds nothing else.
TABLE: dict[type[ProtocolError], tuple[int, int]] = {
    ParseError: (-32700, 400),
    InvalidRequest: (-32600, 400),
    MethodNotFound: (-32601, 404),
    InvalidParams: (-32602, 200),
    InvalidArguments: (-32602, 200),
    NotInMeta: (-32602, 400),
    ResourceNotFound: (-32002, 200),
    InternalError: (-32603, 200),
    HeaderMismatch: (-32020, 400),
    MissingClientCapability: (-32021, 400),
    UnsupportedVersion: (-32022, 400),
    UrlElicitationRequired: (-32042, 200),
}


def kind_of(error: ProtocolError) -> type[ProtocolError]:
    """The kind in TABLE that an error is: a user's own counts as the nearest that it derives from."""
    return next((kind for kind in type(error).__mro__ if kind in TABLE), InternalError)
