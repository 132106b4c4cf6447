"""Parse HTTP/1.1 requests.

httptools parses the grammar. This module adds limits, and refuses requests that the
grammar allows but that servers and proxies might interpret differently.
"""

from collections import deque
from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from ...protocol.jsonrpc import MAX_MESSAGE
from ...server.ledger import Meter
from .head_memo import HeadMemo
from .messages import OUT_OF_MEMORY, TOO_LARGE, Head, Parsed, Reply, refusal

MAX_HEAD = 32 * 1024
MAX_HEADERS = 128
# Headers that must not be repeated, because two servers could use different values.
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
# How much of the next request has arrived: nothing, a part of its head, or its head and
# maybe a part of its body.
IDLE, HEAD, BODY = range(3)


class RequestParser:
    """Parses the bytes of one connection.

    Complete requests are appended to `requests`. A request that is refused may be
    incomplete; if `failed` is set, it is the last one, and nothing after it is parsed.
    """

    def __init__(
        self,
        admit: Callable[[Head], Reply | None],
        local: str,
        peer: str = "unknown",
        scheme: str = "http",
        make_meter: Callable[[str], Meter] | None = None,
    ) -> None:
        self.requests: deque[Parsed] = deque()
        self.stage = IDLE
        self.stage_began = False  # set whenever a stage begins
        self.failed = False
        self.expects_continue = False  # whether the client waits for "100 Continue"
        self.after_upgrade = b""  # the bytes that followed an upgrade request
        self.memo = HeadMemo()
        self._parser = HttpRequestParser(self)
        self._admit = admit
        self._local = local
        self._peer = peer
        self._scheme = scheme
        # Charges the client for the body that is being read. Made when there is one.
        self._meter: Meter | None = None
        self._make_meter = make_meter
        self._prepare()

    def _prepare(self) -> None:
        """Get ready for the next request."""
        self._current = Parsed(
            b"", b"", {}, self._local, scheme=self._scheme, peer=self._peer
        )
        self._repeated = 0  # the headers that repeat an earlier one
        # Bytes since the last part of a body, or since the last request.
        self._overhead = 0

    def feed(self, data: bytes) -> None:
        """Parse what was read."""
        if self.stage is not IDLE:
            self._read(data)
            return
        known = self.memo.recall(data)
        if known is not None:
            known.refused = self._admit(known)
            self.requests.append(known)
            self.stage_began = True
            return
        self.memo.forget()
        before = len(self.requests)
        self._read(data)
        if self.stage is IDLE and len(self.requests) == before + 1:
            self.memo.remember(data, self.requests[-1])

    def _read(self, data: bytes) -> None:
        """Parse any part of a request, or several requests."""
        if self.failed:
            return
        while data:
            self._overhead += len(data)
            rest = b""
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                following = data[upgrade.args[0] :]
                rest = self._handle_upgrade(self.requests[-1], following)
            except HttpParserError as problem:
                self._fail_to_parse(problem)
            data = rest
        if self.stage is BODY or self._meter is not None:
            self._charge_body()
        if self.stage is BODY and self._current.refused is not None:
            self.fail(self._current.refused)
        elif self._overhead > MAX_HEAD and self.stage is not IDLE:
            self.fail(LARGE_HEAD)

    def _fail_to_parse(self, problem: HttpParserError) -> None:
        """Refuse what httptools cannot parse, or has no memory for."""
        if isinstance(problem.__context__, MemoryError):
            self.give_up_body(OUT_OF_MEMORY)
            return
        bad_request = refusal(400, f"Bad request: {problem}")
        self.fail(self._current.refused or bad_request)

    def _handle_upgrade(self, request: Parsed, following: bytes) -> bytes:
        """Handle an upgrade request. Returns the bytes that have to be parsed again.

        An upgrade to a protocol other than WebSocket is ignored (RFC 9110, section
        7.8). The bytes that follow the head may be its body, so the request is parsed
        again without the header.
        """
        headers = request.headers
        if request.refused is None:
            protocol = headers.get(b"upgrade", b"websocket")
            if protocol.lower() != b"websocket":
                self._parser = HttpRequestParser(self)
                del headers[b"upgrade"]
                return self.requests.pop().encoded() + following
            length = headers.get(b"content-length", b"")
            if b"transfer-encoding" in headers or length.strip(b"0"):
                problem = "a request for a WebSocket cannot have a body"
                request.refused = refusal(400, f"Bad request: {problem}")
        self.after_upgrade = following
        request.upgrade = True
        request.keeps_alive = False
        return b""

    def _charge_body(self) -> None:
        """Charge the client for a body that is not complete yet."""
        if self.stage is not BODY:
            if self._meter is not None:
                self._meter.close()
                self._meter = None
            return
        if self._meter is None and self._make_meter is not None:
            # Behind a proxy, each request may come from a different client.
            self._meter = self._make_meter(self._current.peer)
        if self._meter is not None:
            size = len(self._current.body)
            # A bytearray that grows reserves an eighth more than it needs.
            self._meter.set(size + size // 8)

    def give_up_body(self, reply: Reply) -> None:
        """Refuse the request whose body is being read, and forget the body."""
        self.fail(reply)
        self._current.body = b""

    def close(self) -> None:
        """Discard everything that was read. Nothing is parsed after this.

        This parser refers to its connection, and it and the parser of httptools refer
        to each other. This breaks the cycles, so nothing stays in memory until the
        garbage collector runs.
        """
        self.failed = True
        self.requests.clear()
        self.memo.forget()
        self._prepare()
        self._parser = HttpRequestParser(None)
        self._make_meter = None
        if self._meter is not None:
            self._meter.close()

    def fail(self, reply: Reply) -> None:
        """Refuse the request that is being parsed. Nothing after it is parsed."""
        if not self.failed:
            self.failed = True
            self._current.refused = reply
            self._current.keeps_alive = False
            self.requests.append(self._current)

    # Called by httptools

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        self.stage = HEAD
        self.stage_began = True

    def on_url(self, url: bytes) -> None:
        """Add a part of the request's target."""
        self._current.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        if self.stage is BODY:
            # A trailer: the request was admitted without it (RFC 9110, section 6.5.1).
            return
        headers = self._current.headers
        name = name.lower()
        value = value.strip(b" \t")  # RFC 9110, section 5.5
        if name in headers:
            self._repeated += 1
            if name in SINGLE:
                self._current.refused = refusal(
                    400, f"Bad request: {name.decode()} comes twice"
                )
            elif self._repeated > MAX_HEADERS:
                # Joining more of them would take too long.
                self._current.refused = LARGE_HEAD
                return
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        """Check the head, before any part of the body is read."""
        current = self._current
        version = self._parser.get_http_version()
        self.stage = BODY
        self.stage_began = True
        current.chunked = version == "1.1"
        current.method = self._parser.get_method()
        bad = current.refused or _check_head(current, version)
        if bad is None:
            keeps_alive = current.chunked and self._parser.should_keep_alive()
            current.keeps_alive = keeps_alive
            current.refused = self._admit(current)
        else:
            current.keeps_alive = False
            current.refused = bad
        is_accepted = current.refused is None
        self.expects_continue = b"expect" in current.headers and is_accepted

    def on_body(self, data: bytes) -> None:
        """Add a part of the body."""
        current = self._current
        current.body += data
        self._overhead = 0
        if len(current.body) > MAX_MESSAGE:
            current.refused = current.refused or TOO_LARGE

    def on_message_complete(self) -> None:
        """Note that a request is complete."""
        self.requests.append(self._current)
        self.stage = IDLE
        self.stage_began = True
        self._prepare()


def _check_head(head: Head, version: str) -> Reply | None:
    """Return the refusal of a head that is too large, or not supported."""
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
