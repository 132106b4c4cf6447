"""The rules of the MCP endpoint: what is let in, what is refused with which status, what headers have to say. Pure."""

import re
from base64 import b64decode
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ...auth.resource_metadata import METADATA_PATH, sse_url
from ...protocol import jsonrpc
from ...protocol.errors import HeaderMismatch
from ...protocol.mirrored_headers import NAMED_BY, Mirror
from ...protocol.session import Call
from .messages import Fields, Head, Headers, Reply, refusal

MCP, HEALTH, METRICS, SSE, MESSAGES, METADATA = (
    "mcp",
    "health",
    "metrics",
    "sse",
    "messages",
    "metadata",
)
# The metadata for clients of HTTP+SSE, which use another URL.
SSE_METADATA = "sse metadata"
METHODS = {MCP: (b"POST", b"GET", b"DELETE"), SSE: (b"GET",), MESSAGES: (b"POST",)}
METHODS |= dict.fromkeys((HEALTH, METRICS, METADATA, SSE_METADATA), (b"GET", b"HEAD"))

SESSION, VERSION, LAST_EVENT = (
    b"mcp-session-id",
    b"mcp-protocol-version",
    b"last-event-id",
)
# Accept needs no permission.
ALLOWED = b"Content-Type, Authorization, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, Mcp-Method, Mcp-Name"


# Where a request goes


class Routes:
    """Path -> what is served there. `resource` is the endpoint's URL where clients have another one than we see."""

    def __init__(self, path: str, resource: str = "") -> None:
        mcp = ("/" + path.strip("/")).encode()
        self._exact = {mcp: MCP, mcp.rstrip(b"/") + b"/": MCP}
        self._exact |= {
            b"/healthz": HEALTH,
            b"/metrics": METRICS,
            b"/sse": SSE,
            b"/messages": MESSAGES,
        }
        sse = sse_url(resource or "http://localhost", mcp.decode().rstrip("/"))
        sse_metadata = METADATA_PATH + urlsplit(sse).path
        self._exact[sse_metadata.encode()] = SSE_METADATA
        paths = {"", mcp.decode().rstrip("/"), urlsplit(resource).path.rstrip("/")}
        self._exact |= {(METADATA_PATH + place).encode(): METADATA for place in paths}

    def find(self, head: Head) -> str | None:
        """The route of a request's target, which may be a path with a query, or a whole URL."""
        target = head.target
        # RFC 9112, section 3.2.2: it replaces Host
        if not target.startswith(b"/") and (
            whole := re.match(rb"(?i)https?://([^/?#]*)", target)
        ):
            head.headers[b"host"] = whole[1]
            target = target[whole.end() :] or b"/"
        path, _, head.query = target.partition(b"?")
        return self._exact.get(path)


# Who may come in


class Guard:
    """Refuses what a page of some other site makes a browser send: one check for every way in.

    A host is a name or an address, with a port or without; `*` is any. An origin is as browsers send it. With `cors`
    any origin may come: for development.
    """

    def __init__(
        self,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        *,
        cors: bool = False,
    ) -> None:
        self._hosts = {host.lower() for host in allowed_hosts}
        self._origins = (
            {"*"}
            if cors
            else {origin.lower().rstrip("/") for origin in allowed_origins}
        )
        self._serves = lru_cache(100)(self._is_served)  # most requests name the same

    def check(self, head: Head) -> Reply | None:
        """The refusal, where the request must not come in."""
        host, origin = head.headers.get(b"host", b""), head.headers.get(b"origin")
        if not self._serves(host, head.local):
            name = host.decode("latin-1")[:100]
            return refusal(
                421,
                f"Host {name!r} is not served here; --allowed-host (allowed_hosts) lets it in",
            )
        if origin is not None and not self._allows(origin, host):
            name = origin.decode("latin-1")[:100]
            return refusal(
                403,
                f"Origin {name!r} is not allowed; --allowed-origin (allowed_origins) lets it in",
            )
        return None

    def cors(self, head: Head) -> Fields:
        """What tells the browser of an allowed origin that its page may read the response."""
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
        text, own = host.decode("latin-1").lower(), local.lower() or "localhost"
        name = bare(text)
        return (
            name == own
            or is_loopback(name)
            or not self._hosts.isdisjoint((text, name, "*"))
        )

    def _allows(self, origin: bytes, host: bytes) -> bool:
        """Whether pages of this origin may talk to the server under this name."""
        text, name = origin.decode("latin-1").lower(), host.decode("latin-1").lower()
        if not self._origins.isdisjoint((text, "*")):
            return True
        scheme, _, place = text.partition("://")
        same = place == name or (is_loopback(bare(place)) and is_loopback(bare(name)))
        return same and scheme in ("http", "https")


def bare(host: str) -> str:
    """A host without its port, an address without its brackets; what is neither stays as it is."""
    parts = re.fullmatch(r"(?:\[([^]]*)\]|([^:]*))(?::\d*)?", host)
    return parts[1] or parts[2] or "" if parts else host


def is_loopback(name: str) -> bool:
    """Whether this is a name of the machine itself, which no foreign page can come under."""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def preflight(head: Head) -> Reply:
    """The answer to OPTIONS. Browsers send no token with it."""
    methods = b", ".join(METHODS[head.route]) + b", OPTIONS"
    requested = head.headers.get(b"access-control-request-headers", b"").split(b",")
    mirrored = [
        name.strip()
        for name in requested
        if name.strip().lower().startswith(b"mcp-param-")
    ]
    headers = (
        (b"Allow", methods),
        (b"Access-Control-Allow-Methods", methods),
        (b"Access-Control-Allow-Headers", b", ".join([ALLOWED, *mirrored])),
        (b"Access-Control-Max-Age", b"600"),
    )
    return Reply(204, b"", headers)


# What it has to bring


class Accepted(NamedTuple):
    """What a client takes: JSON, a stream of events, and whether it would rather have the stream."""

    json: bool = True
    stream: bool = True
    prefers_stream: bool = False


def accepted(headers: Headers) -> Accepted:
    """What Accept says. Saying nothing, a client takes both."""
    return _accepted(headers.get(b"accept", b"*/*"))


@lru_cache(100)  # most requests say the same
def _accepted(header: bytes) -> Accepted:
    parts = header.lower().replace(b" ", b"").split(b",")
    ranges = {
        part.partition(b";")[0]
        for part in parts
        if not re.search(rb";q=0(\.0*)?(;|$)", part)
    }
    json = not ranges.isdisjoint((b"application/json", b"application/*", b"*/*"))
    stream = not ranges.isdisjoint((b"text/event-stream", b"text/*", b"*/*"))
    stream_at, json_at = (
        header.find(b"text/event-stream"),
        header.find(b"application/json"),
    )
    return Accepted(
        json, stream, stream and stream_at >= 0 and (stream_at < json_at or json_at < 0)
    )


def is_json(headers: Headers) -> bool:
    """Whether the body says that it is JSON."""
    return (
        headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        == b"application/json"
    )


def check_request(head: Head) -> Reply | None:
    """Method, type and Accept: the refusal, where they do not fit the route."""
    if head.method not in METHODS[head.route]:
        return not_allowed(*METHODS[head.route])
    if head.method == b"POST":
        if not is_json(head.headers):
            return refusal(415, "Content-Type: application/json is wanted")
        if head.route == MCP and not any(accepted(head.headers)):
            return refusal(
                406,
                "Accept: application/json and text/event-stream are what this endpoint answers with",
            )
    elif (
        head.method == b"GET"
        and head.route in (MCP, SSE)
        and not accepted(head.headers).stream
    ):
        return refusal(406, "Accept: text/event-stream is what GET answers with here")
    return None


def not_allowed(*right: bytes) -> Reply:
    """A wrong method, and the right ones."""
    methods = b", ".join(right)
    return refusal(
        405, f"Method not allowed; allowed: {methods.decode()}", ((b"Allow", methods),)
    )


def check_mirrored(call: Call, headers: Headers) -> None:
    """Headers that repeat what a stateless request says in its body. Raises HeaderMismatch."""
    _check(headers, b"MCP-Protocol-Version", call.params.meta.version)
    _check(headers, b"Mcp-Method", call.method)
    if key := NAMED_BY.get(call.method):
        _check(headers, b"Mcp-Name", getattr(call.params, key), encodable=True)


def _check(
    headers: Headers, name: bytes, value: Any, *, encodable: bool = False
) -> None:
    """Compare a header with the body's value; where that has none, there is to be no header."""
    given = headers.get(name.lower())
    if given is None and value is not None:
        raise HeaderMismatch(f"Header mismatch: the header {name.decode()} is missing")
    if given is None or (
        type(value) is str and given == value.encode() and given[:2] != b"=?"
    ):
        return
    if not _equal(
        header_text(name, given) if encodable else given.decode("latin-1"), value
    ):
        expected = jsonrpc.encode(value).decode()[:100]
        raise HeaderMismatch(
            f"Header mismatch: {name.decode()} does not say what is in the body, {expected}"
        )


def header_text(name: bytes, given: bytes) -> str:
    """The value of a header that may be encoded. Raises HeaderMismatch."""
    with suppress(ValueError):
        if given.startswith(b"=?base64?") and given.endswith(b"?="):
            return b64decode(given[9:-2], validate=True).decode()
        if (
            given.isascii()
            and (text := given.decode()).replace("\t", " ").isprintable()
        ):
            return text
    raise HeaderMismatch(
        f"Header mismatch: {name.decode()} holds what a header cannot, and is not encoded as base64"
    )


def check_arguments(wanted: Iterable[Mirror], call: Call, headers: Headers) -> None:
    """Headers that repeat arguments. Raises HeaderMismatch."""
    try:
        arguments = msgspec.json.decode(call.params.arguments)
    except (
        msgspec.DecodeError,
        RecursionError,
    ):  # the tool's own decoding says it better
        return
    for header, path in wanted:
        value = arguments
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        _check(headers, header, value, encodable=True)


def _equal(text: str, value: Any) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        return (
            re.fullmatch(r"-?[0-9]{1,20}(\.[0-9]{0,20})?", text) is not None
            and float(text) == value
        )
    return bool(text == value)
