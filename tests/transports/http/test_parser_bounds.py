"""The bounds of a request, and the parts of a request that are ignored."""

import pytest

from mcp_trio.protocol.jsonrpc import MAX_MESSAGE
from mcp_trio.server.accounts import Account
from mcp_trio.server.ledger import Ledger, Meter, Priority
from mcp_trio.transports.http.messages import OUT_OF_MEMORY, Head, Reply
from mcp_trio.transports.http.parser import MAX_HEAD, MAX_HEADERS, RequestParser

HOST = b"Host: localhost\r\n"


def parser_after(*pieces: bytes) -> RequestParser:
    parser = RequestParser(lambda head: None, "127.0.0.1")
    for piece in pieces:
        parser.feed(piece)
    return parser


def status(*pieces: bytes) -> int | None:
    """Return the status of the refusal of a request, or None if it is accepted."""
    refused = parser_after(*pieces).requests[0].refused
    return None if refused is None else refused.status


def get(*headers: bytes, target: bytes = b"/mcp") -> bytes:
    return b"GET %b HTTP/1.1\r\n%b%b\r\n" % (target, HOST, b"".join(headers))


@pytest.mark.parametrize(("count", "refused"), [(MAX_HEADERS, None), (129, 431)])
def test_the_number_of_headers_is_bounded(count: int, refused: int | None) -> None:
    others = [b"X-%d: 1\r\n" % number for number in range(count - 1)]
    assert status(get(*others)) == refused


@pytest.mark.parametrize(
    ("count", "refused"), [(MAX_HEADERS, None), (MAX_HEADERS + 1, 431)]
)
def test_the_number_of_repeated_headers_is_bounded(
    count: int, refused: int | None
) -> None:
    assert status(get(b"X-A: 1\r\n" * (1 + count))) == refused


@pytest.mark.parametrize(("more", "refused"), [(0, None), (1, 431)])
def test_the_size_of_a_head_is_bounded(more: int, refused: int | None) -> None:
    others = len("host") + len("localhost")
    target = b"/" + b"a" * (MAX_HEAD - others - 1 + more)
    assert status(get(target=target)) == refused


@pytest.mark.parametrize(("more", "has_failed"), [(0, False), (1, True)])
def test_the_size_of_an_unfinished_head_is_bounded(more: int, has_failed: bool) -> None:
    start = b"GET /mcp HTTP/1.1\r\nX: "
    parser = parser_after(start, b"a" * (MAX_HEAD - len(start) + more))
    assert parser.failed is has_failed


@pytest.mark.parametrize(
    ("size", "refused"), [(MAX_MESSAGE, None), (MAX_MESSAGE + 1, 413)]
)
def test_the_declared_size_of_a_body_is_bounded(size: int, refused: int | None) -> None:
    head = b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HOST, size)
    assert status(head, b"x" * size) == refused


@pytest.mark.parametrize(
    ("size", "refused"), [(MAX_MESSAGE, None), (MAX_MESSAGE + 1, 413)]
)
def test_the_size_of_a_chunked_body_is_bounded(size: int, refused: int | None) -> None:
    head = b"POST /mcp HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % HOST
    assert status(head, b"%x\r\n" % size, b"x" * size + b"\r\n0\r\n\r\n") == refused


@pytest.mark.parametrize(("digits", "refused"), [(18, None), (19, 413)])
def test_the_digits_of_a_length_are_bounded(digits: int, refused: int | None) -> None:
    length = b"2".zfill(digits)
    head = b"POST /mcp HTTP/1.1\r\n%bContent-Length: %b\r\n\r\n" % (HOST, length)
    assert status(head, b"{}") == refused


@pytest.mark.parametrize(
    ("header", "refused"),
    [
        (b"", None),
        (b"Content-Length: 0\r\n", None),
        (b"Content-Length: 00\r\n", None),
        (b"Content-Length: 5\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n", 400),
    ],
)
def test_a_request_for_a_websocket_cannot_have_a_body(
    header: bytes, refused: int | None
) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    parser = parser_after(get(upgrade, header))
    assert parser.requests[0].upgrade
    assert status(get(upgrade, header)) == refused


def test_a_request_for_another_protocol_is_handled_without_it() -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    (request,) = parser_after(get(upgrade)).requests
    assert not request.upgrade
    assert request.refused is None


def test_trailers_are_ignored() -> None:
    head = b"POST /mcp HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % HOST
    trailers = b"Host: evil.example\r\nAuthorization: Bearer x\r\n\r\n"
    (request,) = parser_after(head + b"2\r\n{}\r\n0\r\n" + trailers).requests
    assert request.refused is None
    assert request.headers == {b"host": b"localhost", b"transfer-encoding": b"chunked"}


@pytest.mark.parametrize(
    ("header", "refused"),
    [
        (b"Expect: 100-continue\r\n", None),
        (b"Expect: 100-Continue\r\n", None),
        (b"Expect: 200-ok\r\n", 417),
        (b"Transfer-Encoding: gzip, chunked\r\n", 400),
    ],
)
def test_an_unknown_expectation_or_encoding_is_refused(
    header: bytes, refused: int | None
) -> None:
    assert status(get(header)) == refused


def test_nothing_is_parsed_after_a_body_that_was_refused() -> None:
    post = (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    too_large = b"%x\r\n" % (MAX_MESSAGE + 1) + b"a" * (MAX_MESSAGE + 1) + b"\r\n"
    parser = parser_after(post, too_large, b"0\r\n\r\n", get())
    (request,) = parser.requests
    assert request.refused is not None
    assert request.refused.status == 413


def test_a_head_that_there_is_no_memory_for_is_refused_as_busy() -> None:
    def admit(head: Head) -> Reply | None:
        raise MemoryError

    parser = RequestParser(admit, "127.0.0.1")
    parser.feed(get())
    assert parser.requests[0].refused is OUT_OF_MEMORY


class Upload:
    def give_up(self) -> bool:
        return False


def test_each_body_on_a_connection_is_charged_to_its_own_client() -> None:
    clients = iter(["192.0.2.1", "192.0.2.2"])
    ledger = Ledger(2**30)
    charged = []

    def admit(head: Head) -> None:
        head.peer = next(clients)

    def make_meter(peer: str) -> Meter:
        charged.append(peer)
        account = Account("address", peer)
        return Meter(ledger, account, "bodies", Priority.REQUEST, upload.give_up)

    upload = Upload()
    parser = RequestParser(admit, "127.0.0.1", make_meter=make_meter)
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    for client in ("192.0.2.1", "192.0.2.2"):
        parser.feed(head + b"a" * 50_000)
        assert ledger.held_by(Account("address", client)) > 50_000
        parser.feed(b"a" * 50_000)
        assert ledger.held == 0
    assert charged == ["192.0.2.1", "192.0.2.2"]
