"""The rules of the HTTP endpoint: which requests are refused, and how.

Pure functions of a request's head and of its decoded body.
"""

import re
from base64 import b64decode
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...auth.resource_metadata import METADATA_PATH, sse_url
from ...protocol import jsonrpc
from ...protocol.errors import HeaderMismatch
from ...protocol.mirrored_headers import NAMED_BY, Mirror
from ...protocol.session import Call
from .messages import Accepted, Fields, Head, Headers, Reply, refusal

# Routes.
MCP = "mcp"
STATELESS = "mcp without sessions"
HEALTH = "health"
READY = "ready"
METRICS = "metrics"
SSE = "sse"
MESSAGES = "messages"
METADATA = "metadata"
SSE_METADATA = "sse metadata"  # for clients of HTTP+SSE, which use another URL

# Route -> the methods that it allows.
METHODS = {
    MCP: (b"POST", b"GET", b"DELETE"),
    STATELESS: (b"POST",),
    SSE: (b"GET",),
    MESSAGES: (b"POST",),
    HEALTH: (b"GET", b"HEAD"),
    READY: (b"GET", b"HEAD"),
    METRICS: (b"GET", b"HEAD"),
    METADATA: (b"GET", b"HEAD"),
    SSE_METADATA: (b"GET", b"HEAD"),
}

# Headers.
SESSION = b"mcp-session-id"
VERSION = b"mcp-protocol-version"
LAST_EVENT = b"last-event-id"

# The headers that a page of another origin may send. Accept needs no permission.
ALLOWED = b", ".join(
    [
        b"Content-Type",
        b"Authorization",
        b"Mcp-Session-Id",
        b"MCP-Protocol-Version",
        b"Last-Event-ID",
        b"Mcp-Method",
        b"Mcp-Name",
    ]
)
# The prefix of the headers that repeat a tool's arguments, in lower case.
_MIRRORED = b"mcp-param-"

_ABSOLUTE = re.compile(rb"(?i)https?://([^/?#]*)")
_HOST = re.compile(r"(?:\[([^]]*)\]|([^:]*))(?::\d*)?")
_NUMBER = re.compile(r"-?[0-9]{1,20}(\.[0-9]{0,20})?")
_QUALITY_ZERO = re.compile(rb";q=0(\.0*)?(;|$)")


# Routing


class Routes:
    """The routes by path.

    `resource` is the endpoint's URL for clients, if it differs from the one seen here.
    A stateless server has no HTTP+SSE.
    """

    def __init__(
        self, path: str, resource: str = "", *, stateless: bool = False
    ) -> None:
        mcp = "/" + path.strip("/")
        without_slash = mcp.rstrip("/")
        endpoint = STATELESS if stateless else MCP
        self._exact = {
            mcp.encode(): endpoint,
            without_slash.encode() + b"/": endpoint,
            b"/healthz": HEALTH,
            b"/readyz": READY,
            b"/metrics": METRICS,
        }
        if not stateless:
            sse = sse_url(resource or "http://localhost", without_slash)
            sse_metadata = METADATA_PATH + urlsplit(sse).path
            self._exact[b"/sse"] = SSE
            self._exact[b"/messages"] = MESSAGES
            self._exact[sse_metadata.encode()] = SSE_METADATA
        for place in ("", without_slash, urlsplit(resource).path.rstrip("/")):
            self._exact[(METADATA_PATH + place).encode()] = METADATA

    def find(self, head: Head) -> str | None:
        """Return the route of a request, and set its query.

        The target is a path with a query, or a whole URL, whose host replaces the
        header Host (RFC 9112, section 3.2.2).
        """
        target = head.target
        if not target.startswith(b"/"):
            whole = _ABSOLUTE.match(target)
            if whole is not None:
                head.headers[b"host"] = whole[1]
                target = target[whole.end() :] or b"/"
        path, _, head.query = target.partition(b"?")
        return self._exact.get(path)


# Hosts and origins


class Guard:
    """Refuses requests that pages of other sites make a browser send.

    A host is a name or an address, with or without a port; `*` allows any host. An
    origin is written as browsers send it. With `cors`, every origin is allowed, which
    is meant for development.
    """

    def __init__(
        self,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        *,
        cors: bool = False,
    ) -> None:
        self._hosts = {host.lower() for host in allowed_hosts}
        self._origins = {origin.lower().rstrip("/") for origin in allowed_origins}
        if cors:
            self._origins = {"*"}
        # Most requests name the same host.
        self._serves = lru_cache(100)(self._is_served)

    def check(self, head: Head) -> Reply | None:
        """Return the refusal, if the host or the origin is not allowed."""
        host = head.headers.get(b"host", b"")
        if not self._serves(host, head.local):
            problem = f"Host {_shown(host)} is not served here"
            advice = "--allowed-host (allowed_hosts) lets it in"
            return refusal(421, f"{problem}; {advice}")
        origin = head.headers.get(b"origin")
        if origin is not None and not self._allows(origin, host):
            problem = f"Origin {_shown(origin)} is not allowed"
            advice = "--allowed-origin (allowed_origins) lets it in"
            return refusal(403, f"{problem}; {advice}")
        return None

    def cors(self, head: Head) -> Fields:
        """Return the headers that let a page of an allowed origin read the response."""
        origin = head.headers.get(b"origin")
        if origin is None or not self._allows(origin, head.headers.get(b"host", b"")):
            return ()
        return (
            (b"Access-Control-Allow-Origin", origin),
            (
                b"Access-Control-Expose-Headers",
                b"Mcp-Session-Id, WWW-Authenticate, Retry-After",
            ),
            (b"Vary", b"Origin"),
        )

    def _is_served(self, host: bytes, local: str) -> bool:
        """Return whether a Host names this server, at the address `local`."""
        text = host.decode("latin-1").lower()
        name = bare(text)
        local_name = local.lower() or "localhost"
        if name == local_name or is_loopback(name):
            return True
        return not self._hosts.isdisjoint((text, name, "*"))

    def _allows(self, origin: bytes, host: bytes) -> bool:
        """Return whether pages of an origin may use the server under this host."""
        text = origin.decode("latin-1").lower()
        if not self._origins.isdisjoint((text, "*")):
            return True
        scheme, _, place = text.partition("://")
        if scheme not in ("http", "https"):
            return False
        name = host.decode("latin-1").lower()
        if place == name:
            return True
        return is_loopback(bare(place)) and is_loopback(bare(name))


def _shown(value: bytes) -> str:
    """Return the value of a header for an error message."""
    return repr(value.decode("latin-1")[:100])


def bare(host: str) -> str:
    """Return a host without its port, or an address without its brackets.

    Anything else is returned unchanged.
    """
    parts = _HOST.fullmatch(host)
    if parts is None:
        return host
    return parts[1] or parts[2] or ""


def is_loopback(name: str) -> bool:
    """Return whether a host is a loopback address or localhost.

    No page of another site can have such an origin.
    """
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def preflight(head: Head) -> Reply:
    """Answer OPTIONS, which browsers send without a token."""
    methods = b", ".join(METHODS[head.route]) + b", OPTIONS"
    requested = head.headers.get(b"access-control-request-headers", b"")
    names = [name.strip() for name in requested.split(b",")]
    mirrored = [name for name in names if name.lower().startswith(_MIRRORED)]
    headers = (
        (b"Allow", methods),
        (b"Access-Control-Allow-Methods", methods),
        (b"Access-Control-Allow-Headers", b", ".join([ALLOWED, *mirrored])),
        (b"Access-Control-Max-Age", b"600"),
    )
    return Reply(204, b"", headers)


# Methods and content types


def accepted(headers: Headers) -> Accepted:
    """Return which responses a client accepts. Without an Accept header, it is all."""
    return _accepted(headers.get(b"accept", b"*/*"))


@lru_cache(100)  # Most requests have the same header.
def _accepted(header: bytes) -> Accepted:
    ranges = set()
    for part in header.lower().replace(b" ", b"").split(b","):
        if not _QUALITY_ZERO.search(part):
            ranges.add(part.partition(b";")[0])
    json = not ranges.isdisjoint((b"application/json", b"application/*", b"*/*"))
    stream = not ranges.isdisjoint((b"text/event-stream", b"text/*", b"*/*"))
    return Accepted(json, stream, stream and _names_stream_first(header))


def _names_stream_first(header: bytes) -> bool:
    """Return whether event streams are named, and before JSON."""
    stream_at = header.find(b"text/event-stream")
    json_at = header.find(b"application/json")
    if stream_at < 0:
        return False
    return json_at < 0 or stream_at < json_at


def is_json(headers: Headers) -> bool:
    """Return whether a body is JSON, according to its Content-Type."""
    content_type = headers.get(b"content-type", b"").partition(b";")[0]
    return content_type.strip().lower() == b"application/json"


def check_request(head: Head) -> Reply | None:
    """Check the method, Content-Type and Accept. Returns the refusal, if any."""
    if head.method not in METHODS[head.route]:
        return not_allowed(*METHODS[head.route])
    if head.method == b"POST":
        if not is_json(head.headers):
            return refusal(415, "Content-Type: application/json is wanted")
        if head.route in (MCP, STATELESS) and not any(accepted(head.headers)):
            types = "application/json and text/event-stream"
            return refusal(406, f"Accept: {types} are what this endpoint answers with")
    opens_stream = head.method == b"GET" and head.route in (MCP, SSE)
    if opens_stream and not accepted(head.headers).stream:
        problem = "text/event-stream is what GET answers with here"
        return refusal(406, f"Accept: {problem}")
    return None


def not_allowed(*allowed: bytes) -> Reply:
    """Return the refusal of a method, which names the allowed ones."""
    methods = b", ".join(allowed)
    message = f"Method not allowed; allowed: {methods.decode()}"
    return refusal(405, message, ((b"Allow", methods),))


# Headers that repeat a part of the body


def check_version(call: Call, headers: Headers) -> None:
    """Check that a stateless request has the same revision in its header and body.

    Raises HeaderMismatch.
    """
    _check(headers, b"MCP-Protocol-Version", call.params.meta.version)


def check_mirrored(call: Call, headers: Headers, named_by: str | None = None) -> None:
    """Check the headers that repeat the method and the name in a stateless request.

    `named_by` is the attribute that `Mcp-Name` repeats if the method belongs to an
    extension. Raises HeaderMismatch.
    """
    _check(headers, b"Mcp-Method", call.method)
    key = NAMED_BY.get(call.method, named_by)
    if key:
        _check(headers, b"Mcp-Name", getattr(call.params, key), encodable=True)


def check_arguments(expected: Iterable[Mirror], call: Call, headers: Headers) -> None:
    """Check the headers that repeat a tool's arguments. Raises HeaderMismatch."""
    try:
        arguments = msgspec.json.decode(call.params.arguments)
    except (msgspec.DecodeError, RecursionError):
        # The tool decodes them too, and its error message is better.
        return
    for header, path in expected:
        value = arguments
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        _check(headers, header, value, encodable=True)


def _check(
    headers: Headers, name: bytes, value: Any, *, encodable: bool = False
) -> None:
    """Compare a header with the value in the body. Raises HeaderMismatch.

    If the value is None, the header must be missing.
    """
    given = headers.get(name.lower())
    if given is None:
        if value is not None:
            problem = f"the header {name.decode()} is missing"
            raise HeaderMismatch(f"Header mismatch: {problem}")
        return
    if type(value) is str and given == value.encode() and given[:2] != b"=?":
        return
    text = header_text(name, given) if encodable else given.decode("latin-1")
    if not _equal(text, value):
        expected = jsonrpc.encode(value).decode()[:100]
        problem = f"does not say what is in the body, {expected}"
        raise HeaderMismatch(f"Header mismatch: {name.decode()} {problem}")


def header_text(name: bytes, given: bytes) -> str:
    """Return the value of a header that may be encoded. Raises HeaderMismatch."""
    with suppress(ValueError):
        if given.startswith(b"=?base64?") and given.endswith(b"?="):
            return b64decode(given[9:-2], validate=True).decode()
        if given.isascii():
            text = given.decode()
            if text.replace("\t", " ").isprintable():
                return text
    problem = "holds what a header cannot, and is not encoded as base64"
    raise HeaderMismatch(f"Header mismatch: {name.decode()} {problem}")


def _equal(text: str, value: Any) -> bool:
    """Return whether the text of a header is equal to a value."""
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        return _NUMBER.fullmatch(text) is not None and float(text) == value
    return bool(text == value)
