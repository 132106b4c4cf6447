"""HTTP/1.1 requests out of bytes: httptools does the grammar, this the limits and what the grammar lets pass."""

from collections import deque
from collections.abc import Callable
from copy import copy

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from ...protocol.jsonrpc import MAX_MESSAGE
from .messages import TOO_LARGE, Head, Reply, refusal

MAX_HEAD = 32 * 1024
MAX_HEADERS = 128
# Headers that must not come twice: two readers of one request could each take another one.
SINGLE = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"origin",
        b"expect",
    }
)
LARGE_HEAD = refusal(
    431,
    f"The head of a request is larger than {MAX_HEAD} bytes or {MAX_HEADERS} headers",
)
# The stages of a connection: what of a request has begun to come.
IDLE, HEAD, BODY = range(3)
# No size: that of the head that is known, where none is.
NONE = -1


class Parsed(Head):
    """One request, or what is wrong with one."""

    body: bytes | bytearray = bytearray()  # not a list: chunks may be of one byte each
    refused: Reply | None = None
    keeps_alive: bool = True
    chunked: bool = True  # whether the client can read a chunked response
    upgrade: bool = False

    def encoded(self) -> bytes:
        """The head as it came, or nearly so."""
        lines = b"".join([b"%b: %b\r\n" % header for header in self.headers.items()])
        return b"%b %b HTTP/1.%d\r\n%b\r\n" % (
            self.method,
            self.target,
            self.chunked,
            lines,
        )


class RequestParser:
    """Takes a connection's bytes; requests come to `requests`, whole, or refused as the last that is read."""

    def __init__(
        self,
        admit: Callable[[Head], Reply | None],
        local: str,
        peer: str = "unknown",
        scheme: str = "http",
    ) -> None:
        self._parser = HttpRequestParser(self)
        self._admit = admit
        self._local, self._peer, self._scheme = local, peer, scheme
        self.requests: deque[Parsed] = deque()
        self.stage = IDLE
        self.stage_began = False  # is set whenever a stage begins
        self.failed = False
        self.expects = False  # the client waits for a word before it sends the body
        self.rest = b""  # what came behind an upgrade
        self._usual_head, self._usual = b"", Parsed(b"", b"", {})
        self._usual_size = NONE
        self._prepare()

    def _prepare(self) -> None:
        """Be ready for the next request."""
        self._current = Parsed(
            b"", b"", {}, self._local, scheme=self._scheme, peer=self._peer
        )
        self._repeated = 0  # headers whose names came before
        self._coming = 0  # bytes since the last of a body, or since the last request: of a head, or of what is no body

    def feed(self, data: bytes) -> None:
        """Read on."""
        if self.stage is not IDLE:
            self._read(data)
        elif len(data) == self._usual_size and data.startswith(self._usual_head):
            self._take_usual(data)
        else:
            behind = len(self.requests)
            self._read(data)
            if self.stage is IDLE and len(self.requests) == behind + 1:
                self._remember(data, self.requests[-1])

    def _take_usual(self, data: bytes) -> None:
        """Take a whole request whose head is, byte by byte, that of one that was let in: it reads as that did."""
        request = copy(self._usual)
        request.body = data[len(self._usual_head) :]
        request.refused = self._admit(request)
        self.requests.append(request)
        self.stage_began = True

    def _remember(self, data: bytes, request: Parsed) -> None:
        """Clients say the same of all their requests: know a head again behind which the whole body came.

        Where the head ends is beyond doubt: at its first empty line, and no line of it ends otherwise than the rest.
        """
        head = data[: len(data) - len(request.body)]
        ends = head.find(b"\r\n\r\n") == len(head) - 4 and head.count(
            b"\n"
        ) == head.count(b"\r\n")
        sized = request.headers.get(b"content-length") == b"%d" % len(request.body)
        if (
            ends
            and sized
            and request.keeps_alive
            and not request.upgrade
            and request.refused is None
        ):
            self._usual_head, self._usual_size, self._usual = (
                head,
                len(data),
                copy(request),
            )
            self._usual.body = b""

    def _read(self, data: bytes) -> None:
        rest, self._usual_size = data, NONE
        while rest:
            data, rest = rest, b""
            self._coming += len(data)
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                rest = self._pass_over(self.requests[-1], data[upgrade.args[0] :])
            except HttpParserError as problem:
                self.fail(
                    self._current.refused or refusal(400, f"Bad request: {problem}")
                )
        if self.stage is BODY and self._current.refused is not None:
            self.fail(self._current.refused)
        elif self._coming > MAX_HEAD and self.stage is not IDLE:
            self.fail(LARGE_HEAD)

    def _pass_over(self, asked: Parsed, behind: bytes) -> bytes:
        """A request has asked for another protocol. One not spoken here is passed over (RFC 9110, section 7.8).

        What comes behind such a head may be its body, so that it is read again as if it had not asked.
        """
        if (
            asked.refused is None
            and asked.headers.get(b"upgrade", b"websocket").lower() != b"websocket"
        ):
            self._parser = HttpRequestParser(self)
            del asked.headers[b"upgrade"]
            return self.requests.pop().encoded() + behind
        if asked.refused is None and (
            b"transfer-encoding" in asked.headers
            or asked.headers.get(b"content-length", b"").strip(b"0")
        ):
            asked.refused = refusal(
                400, "Bad request: what asks for a WebSocket has no body"
            )
        self.rest, asked.upgrade, asked.keeps_alive = behind, True, False
        return b""

    def fail(self, reply: Reply) -> None:
        """Refuse what has come of a request. Nothing after it is read."""
        if not self.failed:
            self.failed = True
            self._current.refused, self._current.keeps_alive = reply, False
            self.requests.append(self._current)

    # Called by httptools

    def on_message_begin(self) -> None:
        self.stage, self.stage_began = HEAD, True

    def on_url(self, url: bytes) -> None:
        self._current.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if (
            self.stage is BODY
        ):  # a trailer: nobody has looked at it when the request was let in (RFC 9110, 6.5.1)
            return
        name, headers = name.lower(), self._current.headers
        value = value.strip(b" \t")  # RFC 9110, section 5.5
        if name in headers:
            self._repeated += 1
            if name in SINGLE:
                self._current.refused = refusal(
                    400, f"Bad request: {name.decode()} comes twice"
                )
            elif self._repeated > MAX_HEADERS:  # to join them all would take long
                self._current.refused = LARGE_HEAD
                return
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        parser, current = self._parser, self._current
        self.stage, self.stage_began = BODY, True
        version = parser.get_http_version()
        current.chunked = version == "1.1"
        current.method = parser.get_method()
        bad = current.refused or _check_head(current, version)
        current.keeps_alive = (
            bad is None and current.chunked and parser.should_keep_alive()
        )
        current.refused = bad or self._admit(current)
        self.expects = b"expect" in current.headers and current.refused is None

    def on_body(self, data: bytes) -> None:
        self._current.body += data
        self._coming = 0
        if len(self._current.body) > MAX_MESSAGE:
            self._current.refused = self._current.refused or TOO_LARGE

    def on_message_complete(self) -> None:
        self.requests.append(self._current)
        self.stage, self.stage_began = IDLE, True
        self._prepare()


def _check_head(head: Head, version: str) -> Reply | None:
    headers = head.headers
    if version not in ("1.0", "1.1"):
        return refusal(400, f"Bad request: HTTP/{version} is not spoken here")
    size = len(head.target) + sum(map(len, headers)) + sum(map(len, headers.values()))
    if size > MAX_HEAD or len(headers) > MAX_HEADERS:
        return LARGE_HEAD
    if b"host" not in headers and version == "1.1":
        return refusal(400, "Bad request: Host is missing")
    if headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        return refusal(400, "Bad request: Transfer-Encoding can only be chunked here")
    if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
        return refusal(417, "Expect can only be 100-continue")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18 or int(length) > MAX_MESSAGE:
        return TOO_LARGE
    return None
