"""Protocol errors, and how each kind is reported to the client.

A `ProtocolError` becomes a JSON-RPC error response. Each class declares its error code
and the HTTP status of a response with only this error. A protocol revision may use a
different code for a kind: see `Revision.codes_of`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class ProtocolError(Exception):
    """An error that is reported to the client as a JSON-RPC error.

    Args:
        message: What went wrong, for the client.
        data: More about it, for programs.
        reason: A shorter message, for places that already name the request.
    """

    # The class of this module that the error is treated as. A subclass that declares no
    # code, such as a user's own, is treated as its base class.
    kind: ClassVar[type["ProtocolError"]]
    code: ClassVar[int]
    status: ClassVar[int]

    def __init_subclass__(cls, *, code: int | None = None, status: int = 200) -> None:
        if code is not None:
            cls.kind = cls
            cls.code = code
            cls.status = status

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
                f"{type(self).__name__}(message): expected str, got {message!r}"
            )
        self.message = message
        self.data = data
        # The message without its prefix, such as "Invalid arguments for tool add: ".
        self.reason = message if reason is None else reason


class ParseError(ProtocolError, code=-32700, status=400):
    """The bytes are not valid JSON."""


class InvalidRequest(ProtocolError, code=-32600, status=400):
    """The JSON is not a JSON-RPC message, or the message is not allowed now."""


class MethodNotFound(ProtocolError, code=-32601, status=404):
    """The revision or this server does not have the method."""


class InvalidParams(ProtocolError, code=-32602):
    """The params of a request are invalid."""


class InvalidArguments(InvalidParams, code=-32602):
    """The arguments do not match the schema. `of` is the tool or prompt."""

    def __init__(self, reason: str, *, of: str = "") -> None:
        message = f"Invalid arguments for {of}: {reason}" if of else reason
        super().__init__(message, reason=reason)


class NotInMeta(InvalidParams, code=-32602, status=400):
    """A request lacks a part of `_meta` that its revision requires."""


class ResourceNotFound(ProtocolError, code=-32002):
    """No resource has this URI.

    Args:
        uri: The URI that the client asked for.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(f"Resource not found: {uri}", data={"uri": uri})


class InternalError(ProtocolError, code=-32603):
    """The server failed. The details are written to the server's log only."""


class TooManyCalls(ProtocolError, code=-32603, status=429):
    """A limit is exceeded. The client may retry after `retry_after` seconds.

    No revision has an error code for this, and servers may only use the codes that the
    revision defines, so it is sent as an internal error.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message, data={"retryAfter": retry_after})


class ServiceUnavailable(ProtocolError, code=-32603, status=503):
    """Something that the server depends on is unavailable. The client may retry.

    No revision has an error code for this, so it is sent as an internal error.
    """

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message, data={"retryAfter": retry_after})
        self.retry_after = retry_after


class HeaderMismatch(ProtocolError, code=-32020, status=400):
    """An HTTP header contradicts the body."""


class MissingClientCapability(ProtocolError, code=-32021, status=400):
    """The request needs a capability that the client did not declare.

    Args:
        required: The capability, as the client would declare it: `{"sampling": {}}`.
    """

    def __init__(self, required: Mapping[str, Any]) -> None:
        paths = [".".join([name, *inner]) for name, inner in required.items()]
        super().__init__(
            f"This request needs a client with the capability {' and '.join(paths)}",
            data={"requiredCapabilities": required},
        )


class UnsupportedVersion(ProtocolError, code=-32022, status=400):
    """The server does not support the requested protocol revision."""

    def __init__(self, requested: str, supported: list[str]) -> None:
        super().__init__(
            "Unsupported protocol version",
            data={"supported": supported, "requested": requested},
        )


class UrlElicitationRequired(ProtocolError, code=-32042):
    """The user has to visit some pages first.

    Args:
        message: What has to be done.
        elicitations: The pages, as objects that the protocol defines.
    """

    def __init__(self, message: str, elicitations: list[dict[str, Any]]) -> None:
        super().__init__(message, data={"elicitations": elicitations})


# A class of a user's that derives directly from ProtocolError is an internal error.
ProtocolError.kind = InternalError
