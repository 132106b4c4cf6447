"""What can go wrong, and what each kind is on the wire.

A `ProtocolError` is answered as a JSON-RPC error. Each kind says its code, and the HTTP status of a reply that holds
nothing else; where a revision numbers a kind otherwise, that revision says so (`Revision.codes_of`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class ProtocolError(Exception):
    """An error that the client is told of, as a JSON-RPC error."""

    kind: ClassVar[
        type["ProtocolError"]
    ]  # one of those here: a user's own counts as the nearest that it derives from
    code: ClassVar[int]
    status: ClassVar[int]

    def __init_subclass__(cls, *, code: int | None = None, status: int = 200) -> None:
        if code is not None:
            cls.kind, cls.code, cls.status = cls, code, status

    def __init__(
        self,
        message: str,
        *,
        data: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        if not isinstance(message, str):
            raise TypeError(
                f"{type(self).__name__}(message) wants str, not {message!r}"
            )
        self.message = message
        self.data = data
        self.reason = (
            message if reason is None else reason
        )  # without the words that say where it was found


class ParseError(ProtocolError, code=-32700, status=400):
    """The bytes are no JSON."""


class InvalidRequest(ProtocolError, code=-32600, status=400):
    """JSON, but no JSON-RPC message; or a message out of turn."""


class MethodNotFound(ProtocolError, code=-32601, status=404):
    """A method that the revision, or this server, does not have."""


class InvalidParams(ProtocolError, code=-32602):
    """A request whose parameters cannot be used."""


class InvalidArguments(InvalidParams, code=-32602):
    """Arguments that do not fit the schema of what they were sent to; `of` says what that is."""

    def __init__(self, reason: str, *, of: str = "") -> None:
        super().__init__(
            f"Invalid arguments for {of}: {reason}" if of else reason, reason=reason
        )


class NotInMeta(InvalidParams, code=-32602, status=400):
    """A request without the `_meta` that its revision requires."""


class ResourceNotFound(ProtocolError, code=-32002):
    """No resource has this URI."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"Resource not found: {uri}", data={"uri": uri})


class InternalError(ProtocolError, code=-32603):
    """The server's own fault. What it was stands in the server's log, not here."""


class TooManyCalls(ProtocolError, code=-32603, status=429):
    """More than the server's limits allow; `retry_after` are the seconds after which it may be tried again.

    No revision has a code for it, and none but those that it names may go out.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message, data={"retryAfter": retry_after})


class HeaderMismatch(ProtocolError, code=-32020, status=400):
    """An HTTP header says other than the body."""


class MissingClientCapability(ProtocolError, code=-32021, status=400):
    """The request needs something of the client that the client did not offer."""

    def __init__(self, required: Mapping[str, Any]) -> None:
        wanted = " and ".join(
            ".".join([name, *inner]) for name, inner in required.items()
        )
        data = {"requiredCapabilities": required}
        super().__init__(
            f"This request needs a client with the capability {wanted}", data=data
        )


class UnsupportedVersion(ProtocolError, code=-32022, status=400):
    """A protocol revision that this server does not speak."""

    def __init__(self, requested: str, supported: list[str]) -> None:
        super().__init__(
            "Unsupported protocol version",
            data={"supported": supported, "requested": requested},
        )


class UrlElicitationRequired(ProtocolError, code=-32042):
    """The user has to visit the given addresses first; `elicitations` are the wire's own objects."""

    def __init__(self, message: str, elicitations: list[dict[str, Any]]) -> None:
        super().__init__(message, data={"elicitations": elicitations})


ProtocolError.kind = InternalError
