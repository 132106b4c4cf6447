"""A stream of requests has one reading, that of RFC 9112, or is refused.

Each case is sent with another request after it, the canary. A case that is refused gets
one refusal, then the connection ends, and nothing after it is read. A case that is read
gets the replies that RFC 9112 demands, and the canary gets its own. In some cases a
call to a tool is hidden, which must never be made.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
import trio

from mcp_trio import Server
from mcp_trio.transports.http import asgi
from mcp_trio.transports.http.messages import Head, Reply
from mcp_trio.transports.http.parser import RequestParser
from tests.support.http_wire import (
    HOSTS,
    Response,
    Site,
    Wire,
    make_server,
    site_on,
)
from tests.support.smuggling import (
    BODY,
    CANARY,
    CASES,
    CHUNK,
    EARLY,
    END,
    HIDDEN,
    LENGTH,
    REFUSED,
    chunked,
    got,
    posted,
)

REFUSALS = {"400", "403", "404", "405", "408", "413", "417", "421", "431", "501", "505"}


def said(response: Response) -> str:
    """Return a word for a response. The head of a refusal must announce the close."""
    if response.status == 200 and response.body == b"ok\n":
        return "canary"
    if (
        response.status == 200
        and response.headers["content-type"] == "application/json"
    ):
        reply = response.json
        return (
            "smuggled"
            if reply["id"] == "smuggled"
            else "list"
            if "tools" in reply["result"]
            else "another"
        )
    return str(response.status)


def tempting(called: list[str]) -> Server:
    """Return a server with a tool that must never be called."""
    server = make_server()

    @server.tool
    async def smuggled() -> str:
        called.append("smuggled")
        return "in"

    return server


async def answers(there: Site, data: bytes) -> list[str]:
    """Return the answer to a stream, to the end of the connection."""
    words: list[str] = []
    async with there.wire() as wire, trio.open_nursery() as nursery:
        nursery.start_soon(send_all, wire, data)
        with suppress(trio.BrokenResourceError):
            while not await wire.ended():
                if wire.comes(b"\0"):
                    break  # frames of HTTP/2
                response = await wire.response(
                    bodiless=data.startswith(b"HEAD") and not words
                )
                if response.status != 100:
                    words.append(
                        "head"
                        if data.startswith(b"HEAD") and not words
                        else said(response)
                    )
        nursery.cancel_scope.cancel()
    return words


async def send_all(wire: Wire, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):  # refused before all of it was read
        await wire.send(data)


def is_refusal(words: list[str], host: str) -> bool:
    """Return whether there is one refusal, and nothing after it.

    Under hypercorn, the connection may end before the refusal is written.
    """
    return (len(words) == 1 and words[0] in REFUSALS) or (
        words == [] and host == "hypercorn"
    )


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", CASES)
async def test_a_stream_has_one_reading(
    name: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "BODY_TIME", 0.3)  # for requests whose body never arrives
    monkeypatch.setattr(asgi, "LINGER_TIME", 0.1)
    case, called = CASES[name], list[str]()
    owed = (
        case.hypercorn
        if host == "hypercorn" and case.hypercorn is not None
        else case.owed
    )
    async with site_on(host, tempting(called)) as there:
        words = await answers(there, case.data + CANARY)
        assert (
            await there.send("GET", "/healthz")
        ).status == 200  # it does not affect other clients
    assert called == []
    if owed is REFUSED or case.why == EARLY:
        assert is_refusal(words, host) or words == case.owed, (
            f"{words}, against RFC 9112, {case.section}"
        )
    else:
        assert words == owed, f"against RFC 9112, {case.section}"


# The parser: the reading does not depend on how the bytes are split


def readings(
    pieces: Iterable[bytes],
) -> list[tuple[bytes, bytes, dict[bytes, bytes], bytes, int | None]]:
    """Return the requests of a stream, up to one that is refused before its body."""
    parser, found = RequestParser(lambda head: None, "localhost"), []
    for piece in pieces:
        if not parser.failed and not any(one.upgrade for one in parser.requests):
            parser.feed(piece)
    for one in parser.requests:
        status = one.refused.status if one.refused else None
        found.append((one.method, one.target, one.headers, bytes(one.body), status))
        if status:
            return [*found[:-1], (b"", b"", {}, b"", status)]
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_division_of_bytes_into_pieces_makes_no_difference(name: str) -> None:
    data = CASES[name].data[:3_000] + CANARY
    whole = readings([data])
    assert readings(data[at : at + 1] for at in range(len(data))) == whole
    for cut in range(1, len(data)):
        assert readings([data[:cut], data[cut:]]) == whole


PLAIN, CHUNKS, BARE = (
    posted(LENGTH, body=BODY),
    chunked(CHUNK + END),
    got(b"Host: localhost"),
)
UPGRADING = posted(b"Connection: Upgrade", b"Upgrade: foo/2", LENGTH, body=BODY)
REPEATED = {
    "the same head, another body": [
        PLAIN,
        posted(LENGTH, body=BODY.replace(b"list", b"tsil")),
        PLAIN,
    ],
    "the same head, then one with more to it": [
        PLAIN,
        PLAIN,
        posted(LENGTH, b"X-A: 1", body=BODY),
    ],
    "the same head, then another length": [
        PLAIN,
        PLAIN,
        *[posted(b"Content-Length: 2", body=b"{}")] * 2,
    ],
    "the same head without its last line": [
        posted(LENGTH, b"X-A: 1", body=BODY),
        PLAIN,
        PLAIN,
    ],
    "chunks between": [PLAIN, CHUNKS, PLAIN],
    "other chunks, and none": [
        CHUNKS,
        chunked(b"1\r\n{\r\n1\r\n}\r\n" + END),
        chunked(END),
        CHUNKS,
    ],
    "a trailer between": [CHUNKS, chunked(CHUNK + b"0\r\nX-A: 1\r\n\r\n"), CHUNKS],
    "a body that is such a request": [
        *[posted(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN)] * 2,
        HIDDEN,
    ],
    "no body": [BARE, BARE, got(b"Host: localhost", b"X-A: 1"), BARE],
    "empty lines between": [PLAIN, b"\r\n" + PLAIN, PLAIN],
    "an end": [PLAIN, *[posted(b"Connection: close", LENGTH, body=BODY)] * 2],
    "an older HTTP": [
        PLAIN,
        *[posted(LENGTH, body=BODY, start=b"POST /mcp HTTP/1.0")] * 2,
    ],
    "a refusal": [PLAIN, PLAIN, *[posted(LENGTH, LENGTH, body=BODY)] * 2],
    "a fold": [PLAIN, posted(b"X-A: 1\r\n 2", LENGTH, body=BODY), PLAIN],
    "upgrades that are passed over": [UPGRADING, UPGRADING, PLAIN, UPGRADING],
    "waits for a word": [posted(b"Expect: 100-continue", LENGTH, body=BODY)] * 2,
}


def told(pieces: Iterable[bytes]) -> list[Any]:
    """Return all requests that a connection reads. A bad one is only named as bad."""
    parser, found = RequestParser(lambda head: None, "localhost"), list[Any]()
    for piece in pieces:
        if parser.failed or (parser.requests and not parser.requests[-1].keeps_alive):
            break  # the connection stops reading
        parser.feed(piece)
    for one in parser.requests:
        if one.refused is not None:
            return [*found, one.refused.status]
        fields = (
            one.method,
            one.target,
            one.headers,
            bytes(one.body),
            one.keeps_alive,
            one.chunked,
            one.upgrade,
        )
        found.append(fields)
        if not one.keeps_alive:
            break
    return found


@pytest.mark.parametrize("requests", REPEATED.values(), ids=REPEATED)
def test_a_repeated_head_is_read_as_if_it_were_the_first(
    requests: list[bytes],
) -> None:
    wanted = list[Any]()
    for one in requests:
        (read,) = told([one])
        wanted.append(read)
        if isinstance(read, int) or not read[4]:
            break
    data = b"".join(requests)
    assert told(data[at : at + 1] for at in range(len(data))) == wanted
    assert told(requests) == wanted
    for cut in range(len(data) + 1):
        assert told([data[:cut], data[cut:]]) == wanted, f"cut at {cut}"
    for number, one in enumerate(
        requests
    ):  # all separately, and one of them in two pieces
        for cut in range(len(one) + 1):
            cut_once = [
                *requests[:number],
                one[:cut],
                one[cut:],
                *requests[number + 1 :],
            ]
            assert told(cut_once) == wanted, f"{number} cut at {cut}"


def test_a_repeated_head_is_authorized_again() -> None:
    """Permissions may have changed since the first request."""
    asked: list[Head] = []

    def admit(head: Head) -> Reply | None:
        asked.append(head)
        return None if len(asked) < 3 else Reply(401)

    for together in (True, False):
        parser, one = RequestParser(admit, "localhost"), posted(LENGTH, body=BODY)
        asked.clear()
        for data in [one * 4] if together else [one] * 4:
            parser.feed(data)
        assert [one.refused for one in parser.requests] == [
            None,
            None,
            Reply(401),
            Reply(401),
        ]
        assert len({id(head) for head in asked}) == 4


def test_many_requests_that_arrive_together_are_not_a_large_head() -> None:
    parser, one = (
        RequestParser(lambda head: None, "localhost"),
        posted(LENGTH, body=BODY),
    )
    parser.feed(one * 150 + one[:50])
    parser.feed(one[50:])
    assert [request.refused for request in parser.requests] == [None] * 151


@pytest.mark.parametrize(
    "flood",
    [
        b"0\r\nX-A: " + b"b" * 50_000,
        b"1;" + b"b" * 50_000,
        b"0\r\n" + b"X-A: 1\r\n" * 9_000,
    ],
)
def test_the_overhead_of_a_chunked_body_is_bounded(flood: bytes) -> None:
    parser = RequestParser(lambda head: None, "localhost")
    parser.feed(chunked(CHUNK))
    for at in range(0, len(flood), 1_000):
        parser.feed(flood[at : at + 1_000])
    assert [
        request.refused and request.refused.status for request in parser.requests
    ] == [431]


def test_a_body_in_small_chunks_is_taken_to_the_limit() -> None:
    parser = RequestParser(lambda head: None, "localhost")
    parser.feed(chunked(b""))
    for _ in range(2_000):
        parser.feed(b"1;a=b\r\nx\r\n" * 100)
    parser.feed(END)
    assert [(len(request.body), request.refused) for request in parser.requests] == [
        (200_000, None)
    ]
