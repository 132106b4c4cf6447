"""A head is recognized only if the request cannot be read in another way."""

import pytest

from mcp_trio.transports.http.head_memo import _MAX_HEAD, HeadMemo
from mcp_trio.transports.http.messages import Head, Parsed, Reply, refusal
from mcp_trio.transports.http.parser import RequestParser

START = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"


def post(body: bytes, *, length: bytes | None = None, start: bytes = START) -> bytes:
    if length is None:
        length = b"%d" % len(body)
    return b"%bContent-Length: %b\r\nX-Last: 1\r\n\r\n%b" % (start, length, body)


def memo_after(data: bytes) -> HeadMemo:
    """Return the memo of a parser that has read one request."""
    parser = RequestParser(lambda head: None, "127.0.0.1")
    parser.feed(data)
    assert len(parser.requests) == 1
    return parser.memo


def recalled(memo: HeadMemo, data: bytes) -> Parsed:
    request = memo.recall(data)
    assert request is not None
    return request


@pytest.mark.parametrize("body", [b"{}", b"[]", b"", b"x" * 1000])
def test_the_same_head_is_recognized_with_a_body_of_any_size(body: bytes) -> None:
    request = recalled(memo_after(post(b"ab")), post(body))
    assert request.body == body
    assert request.headers[b"content-length"] == b"%d" % len(body)
    assert request.headers[b"x-last"] == b"1"


def test_a_new_memo_recognizes_nothing() -> None:
    assert HeadMemo().recall(post(b"ab")) is None


CALL = START + b"Mcp-Method: tools/call\r\nMcp-Name: add\r\n"


@pytest.mark.parametrize(
    "start",
    [
        CALL.replace(b"add", b"subtract"),
        CALL.replace(b"add", b"=?base64?YQ==?="),
        CALL.replace(b"tools/call", b"tasks/get").replace(b"add", b"x" * 256),
        CALL,
    ],
)
def test_a_head_with_another_method_and_name_is_recognized(start: bytes) -> None:
    memo = memo_after(post(b"ab", start=CALL))
    for body in (b"{}", b"[1, 2]", b""):
        data = post(body, start=start)
        request = recalled(memo, data)
        expected = RequestParser(lambda head: None, "127.0.0.1")
        expected.feed(data)
        assert request.headers == expected.requests[0].headers
        assert request.body == body
    assert recalled(memo, post(b"ab", start=CALL)).headers[b"mcp-name"] == b"add"


def test_a_name_behind_the_length_may_differ_too() -> None:
    data = post(b"ab").replace(b"X-Last: 1", b"Mcp-Name: add")
    memo = memo_after(data)
    other = recalled(memo, data.replace(b"add", b"subtract"))
    assert other.headers[b"mcp-name"] == b"subtract"


@pytest.mark.parametrize(
    "start",
    [
        CALL.replace(b"add", b""),
        CALL.replace(b"add", b" add"),
        CALL.replace(b"add", b"add "),
        CALL.replace(b"add", b"a b"),
        CALL.replace(b"add", b"\xff"),
        CALL.replace(b"add", b"a\nb"),
        CALL.replace(b"add", b"x" * 257),
        CALL.replace(b"add", b"add\r\nMcp-Name: twice"),
        CALL.replace(b"add", b"add\r\n folded"),
        CALL.replace(b"Mcp-Name", b"mcp-name"),
        CALL.replace(b"Mcp-Method: tools/call\r\n", b""),
    ],
)
def test_a_name_that_is_not_plain_is_not_recognized(start: bytes) -> None:
    memo = memo_after(post(b"ab", start=CALL))
    assert memo.recall(post(b"ab", start=start)) is None


@pytest.mark.parametrize("name", [b"a b", b"a, b", b"add\r\nMcp-Name: twice"])
def test_a_head_with_an_unusual_name_is_recognized_only_with_the_same_one(
    name: bytes,
) -> None:
    start = CALL.replace(b"add", name)
    memo = memo_after(post(b"ab", start=start))
    assert recalled(memo, post(b"abc", start=start)).body == b"abc"
    assert memo.recall(post(b"ab", start=CALL)) is None


@pytest.mark.parametrize("is_name_last", [False, True])
def test_a_client_that_changes_only_the_name_is_recognized(
    *, is_name_last: bool
) -> None:
    def request_for(name: bytes, body: bytes) -> bytes:
        if is_name_last:
            return post(body).replace(b"X-Last: 1", b"Mcp-Name: " + name)
        return post(body, start=CALL.replace(b"add", name))

    memo = memo_after(request_for(b"one", b"ab"))
    sizes = []
    for name, body in [
        (b"two", b"cd"),
        (b"six", b"ef"),
        # The name is longer, and then the body.
        (b"seven", b""),
        (b"eight", b"g"),
        (b"a", b"hijkl"),
        (b"b", b"mnopq"),
    ]:
        data = request_for(name, body)
        sizes.append(len(data))
        request = recalled(memo, data)
        assert (request.headers[b"mcp-name"], request.body) == (name, body)
        assert request.headers[b"content-length"] == b"%d" % len(body)
    assert sizes[0] == sizes[1] == sizes[2]


@pytest.mark.parametrize(
    "name", [b"a b", b"a\r\n", b"a\nb", b"\xffbc", b"\tbc", b"ab "]
)
def test_another_name_of_the_same_length_has_to_be_plain(name: bytes) -> None:
    memo = memo_after(post(b"ab", start=CALL))
    assert memo.recall(post(b"ab", start=CALL.replace(b"add", name))) is None
    # What was not recognized has changed nothing.
    assert recalled(memo, post(b"ab", start=CALL)).headers[b"mcp-name"] == b"add"
    start = CALL.replace(b"add", b"sum")
    assert recalled(memo, post(b"ab", start=start)).headers[b"mcp-name"] == b"sum"


@pytest.mark.parametrize("names", [[], [b"subtract", b"add"]])
def test_another_name_does_not_hide_another_length_or_header(
    names: list[bytes],
) -> None:
    memo = memo_after(post(b"ab", start=CALL))
    for name in names:
        recalled(memo, post(b"ab", start=CALL.replace(b"add", name)))
    assert memo.recall(post(b"ab", start=CALL, length=b"1")) is None
    start = CALL.replace(b"add", b"sum")
    assert memo.recall(post(b"ab", start=start, length=b"1")) is None
    assert memo.recall(post(b"ab", start=start.replace(b"Host", b"Most"))) is None
    assert memo.recall(post(b"ab", start=start).replace(b"X-Last", b"X-Lost")) is None


def test_requests_that_were_recognized_do_not_share_their_names() -> None:
    memo = memo_after(post(b"ab", start=CALL))
    first = recalled(memo, post(b"ab", start=CALL.replace(b"add", b"one")))
    second = recalled(memo, post(b"ab", start=CALL.replace(b"add", b"two")))
    assert first.headers[b"mcp-name"] == b"one"
    assert second.headers[b"mcp-name"] == b"two"


def test_requests_that_were_recognized_do_not_share_their_length() -> None:
    memo = memo_after(post(b"ab"))
    first = recalled(memo, post(b"abc"))
    second = recalled(memo, post(b"abcd"))
    assert first.headers[b"content-length"] == b"3"
    assert second.headers[b"content-length"] == b"4"


@pytest.mark.parametrize(
    "data",
    [
        post(b"ab", length=b"3"),
        post(b"ab", length=b"1"),
        post(b"ab", length=b"02"),
        post(b"ab", length=b"+2"),
        post(b"ab", length=b"2 "),
        post(b"ab", length=b" 2"),
        post(b"ab", length=b""),
        post(b"ab", length=b"2, 2"),
        post(b"ab", length=b"99999999999"),
        post(b"ab").replace(b"X-Last: 1", b"X-Last: 2"),
        post(b"ab").replace(b"X-Last: 1\r\n", b"X-Last: 1\r\nX-More: 1\r\n"),
        post(b"ab").replace(b"\r\n\r\nab", b"\n\nab"),
        post(b"ab").lower(),
        post(b"ab")[:-1],
        post(b"ab") + b"\r\n",
        post(b"ab") * 2,
    ],
)
def test_anything_else_is_not_recognized(data: bytes) -> None:
    assert memo_after(post(b"ab")).recall(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n" + post(b"ab"),
        post(b"ab").replace(b"Content-Length: 2", b"Content-Length:  2"),
        post(b"ab").replace(b"Content-Length: 2", b"Content-Length: 2 "),
        post(b"ab", start=START + b"Expect: 100-continue\r\n"),
        post(b"ab", start=START + b"Connection: close\r\n"),
        post(b"ab").replace(b"X-Last: 1", b"X-Bare: line feed\nX-Last: 1"),
        START + b"\r\n",
        START + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        post(b"ab", start=START + b"X-Long: %b\r\n" % (b"x" * 5000)),
    ],
)
def test_an_unusual_head_is_not_remembered(data: bytes) -> None:
    assert memo_after(data).recall(data) is None


def test_a_head_that_was_refused_is_not_remembered() -> None:
    def refuse(head: Head) -> Reply:
        return refusal(421, "no")

    parser = RequestParser(refuse, "127.0.0.1")
    parser.feed(post(b"ab"))
    assert parser.memo.recall(post(b"ab")) is None


def test_a_header_that_only_looks_like_a_length_is_compared() -> None:
    start = START + b"X-Content-Length: 2\r\n"
    memo = memo_after(post(b"ab", start=start))
    other = post(b"abc", start=START + b"X-Content-Length: 3\r\n")
    assert memo.recall(other) is None
    assert (
        recalled(memo, post(b"abc", start=start)).headers[b"x-content-length"] == b"2"
    )


@pytest.mark.parametrize(("more", "is_remembered"), [(0, True), (1, False)])
def test_a_large_head_is_not_remembered(more: int, is_remembered: bool) -> None:
    size = len(post(b"", start=START + b"X-Pad: \r\n"))
    padding = b"a" * (_MAX_HEAD - size + more)
    data = post(b"", start=START + b"X-Pad: " + padding + b"\r\n")
    recalled_request = memo_after(data).recall(data)
    assert (recalled_request is not None) is is_remembered


def test_a_body_that_looks_like_the_last_request_is_a_body() -> None:
    inner = post(b"ab")
    outer = post(inner)
    parser = RequestParser(lambda head: None, "127.0.0.1")
    parser.feed(inner)
    parser.feed(outer[: -len(inner)])
    parser.feed(inner)
    assert [request.body for request in parser.requests] == [b"ab", inner]


def test_the_end_of_a_head_is_not_remembered_as_a_head() -> None:
    data = post(b"ab")
    parser = RequestParser(lambda head: None, "127.0.0.1")
    parser.feed(data[:10])
    parser.feed(data[10:])
    assert not parser.failed
    parser.feed(data[10:])
    assert parser.failed
