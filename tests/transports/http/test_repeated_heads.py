"""A repeated head is recognized, and its request is read like the first one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.transports.http.messages import Head, Reply, refusal
from mcp_trio.transports.http.parser import RequestParser

HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
REFUSED = refusal(421, "no")


def admit(head: Head) -> Reply | None:
    return REFUSED if head.headers.get(b"host") == b"evil" else None


def sized(body: bytes, head: bytes = HEAD) -> bytes:
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def named(body: bytes, name: bytes, method: bytes = b"tools/call") -> bytes:
    return sized(body, HEAD + b"Mcp-Method: %b\r\nMcp-Name: %b\r\n" % (method, name))


def named_behind(body: bytes, name: bytes) -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return HEAD + length + b"Mcp-Name: %b\r\n\r\n" % name + body


def chunked(body: bytes) -> bytes:
    return b"%bTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        HEAD,
        len(body),
        body,
    )


def read(pieces: list[bytes], *, forgetful: bool = False) -> list[Any]:
    """Return the requests that were read, and how the reading ended."""
    parser = RequestParser(admit, "127.0.0.1")
    for piece in pieces:
        if forgetful:
            parser.memo.forget()
        parser.feed(piece)
        if parser.failed:
            break
    requests = [
        (
            one.method,
            one.target,
            one.headers,
            bytes(one.body),
            one.refused,
            one.keeps_alive,
            one.upgrade,
            one.route,
        )
        for one in parser.requests
    ]
    return [
        *(requests, parser.stage, parser.failed),
        *(parser.expects_continue, parser.after_upgrade),
    ]


# What begins, ends or looks like a head, and bodies that do.
TRICKY = (
    b"ab",
    b"cd",
    b"\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"a\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    sized(b"ab"),
    b"x" * 50,
)
BODIES = st.sampled_from(TRICKY)
# Values of the headers that may differ, and text that only looks like a value.
NAMES = st.sampled_from(
    (
        b"add",
        b"subtract",
        b"=?base64?YQ==?=",
        b"a" * 300,
        b"",
        b" add",
        b"add ",
        b"a b",
        b"a\tb",
        b"a\x00b",
        b"a\x7fb",
        b"\xc3\xa9",
        b"add\r\n folded",
        b"add\r\nMcp-Name: twice",
        b"add\r\nContent-Length: 2",
        b"add\r\nTransfer-Encoding: chunked",
        b"add\nX-Bare: line feed",
        b"add\rX-Bare: return",
        b"add\r\n\r\n",
    )
)
MESSAGES = st.one_of(
    BODIES.map(sized),
    BODIES.map(chunked),
    BODIES.map(lambda body: sized(body, HEAD.replace(b"localhost", b"evil"))),
    BODIES.map(lambda body: sized(body, HEAD.replace(b"\r\n", b"\n"))),
    BODIES.map(lambda body: sized(body) + b"\r\n"),
    st.builds(named, BODIES, NAMES),
    st.builds(named, BODIES, NAMES, NAMES),
    st.builds(named_behind, BODIES, NAMES),
    BODIES.map(lambda body: b"\r\n\r\n" + sized(body)),
    BODIES.map(lambda body: sized(body, HEAD + b"Expect: 100-continue\r\n")),
    BODIES.map(lambda body: sized(body, HEAD + b"Connection: close\r\n")),
    BODIES.map(
        lambda body: sized(body, HEAD + b"Upgrade: h2c\r\nConnection: Upgrade\r\n")
    ),
    BODIES,
)


@given(st.lists(MESSAGES, max_size=6))
def test_requests_that_arrive_whole_mean_the_same_as_without_a_memory(
    messages: list[bytes],
) -> None:
    assert read(messages) == read(messages, forgetful=True)


@given(st.lists(MESSAGES, max_size=6), st.lists(st.integers(1, 400), max_size=8))
def test_read_in_any_pieces(messages: list[bytes], cuts: list[int]) -> None:
    stream, pieces = b"".join(messages), []
    for cut in cuts:
        pieces.append(stream[:cut])
        stream = stream[cut:]
    pieces = [piece for piece in [*pieces, stream] if piece]
    assert read(pieces) == read(pieces, forgetful=True)


@pytest.mark.parametrize("body", TRICKY)
def test_the_same_head_may_have_any_body(body: bytes) -> None:
    other = bytes(reversed(body))
    assert [one[3] for one in read([sized(body), sized(other), sized(body)])[0]] == [
        body,
        other,
        body,
    ]


@given(st.lists(NAMES, max_size=6), NAMES)
def test_the_same_head_with_other_names(names: list[bytes], method: bytes) -> None:
    pieces = [named(b"ab", name, method) for name in names]
    assert read(pieces) == read(pieces, forgetful=True)


def test_what_follows_a_body_belongs_to_the_next_request() -> None:
    """Empty lines before a request are skipped. They do not belong to the last head."""
    first, second = sized(b"ab") + b"\r\n", sized(b"ab") + b"xy"
    assert read([first, second]) == read([first, second], forgetful=True)


def test_whether_a_known_head_is_let_in_is_asked_each_time() -> None:
    asked = []
    parser = RequestParser(lambda head: asked.append(head.target), "127.0.0.1")
    for _ in range(3):
        parser.feed(sized(b"ab"))
    assert asked == [b"/mcp"] * 3
