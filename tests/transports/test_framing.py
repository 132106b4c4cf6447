import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.protocol.framing import LineDecoder, VerbatimLineDecoder

LIMIT = 6
PIECES = [
    b"\n",
    b"\n",
    b"\r",
    b"\r\n",
    b" ",
    b"\t",
    b"a",
    b"{}",
    b"\xef\xbb\xbf",
    b"\xef",
    b"\xbb",
    b"\xbf",
    b"123456",
    b"\xff",
]


def cut(chunks, limit=LIMIT):
    lines = LineDecoder(limit)
    return [message for chunk in chunks for message in lines.feed(chunk)] + lines.end()


def expected(stream, limit=LIMIT):
    found = []
    for line in stream.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = line.removesuffix(b"\r")
        if len(line) > limit:
            found.append(None)
        elif line.strip(b" \t\r\v\f"):
            found.append(line)
    return found


@given(st.lists(st.sampled_from(PIECES)).map(b"".join), st.lists(st.integers(0, 60)))
def test_any_split_of_the_input_gives_the_same_messages(stream, cuts):
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(edges)]
    assert cut(chunks) == cut([stream]) == expected(stream)


@given(st.lists(st.sampled_from(PIECES)).map(b"".join))
def test_a_trickle_of_single_bytes_gives_the_same_messages(stream):
    assert cut([stream[i : i + 1] for i in range(len(stream))]) == expected(stream)


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (b"{}\n[]\n", [b"{}", b"[]"]),
        (b"{}\r\n[]\r\n", [b"{}", b"[]"]),
        (b"\n \n\t\r\n{}\n\n", [b"{}"]),
        (b"\xef\xbb\xbf{}\n", [b"{}"]),
        (b"{}\n\xef\xbb\xbf{}\n", [b"{}", b"\xef\xbb\xbf{}"]),
        (b"{}\n[]", [b"{}", b"[]"]),
        (b"123456\r\n1234567\n{}\n", [b"123456", None, b"{}"]),
        (b"", []),
    ],
    ids=["lf", "crlf", "blank", "bom", "bom-later", "no-newline", "limit", "empty"],
)
def test_each_line_is_a_message(stream, messages):
    assert cut([stream]) == messages


def test_a_message_is_given_as_soon_as_it_is_complete():
    lines = LineDecoder()
    assert lines.feed(b"{") == []
    assert lines.feed(b"}") == []
    assert lines.feed(b"\n[]\n4") == [b"{}", b"[]"]
    assert lines.end() == [b"4"]
    assert lines.end() == []


def test_a_message_over_the_limit_is_refused_once_and_before_its_end():
    lines = LineDecoder(LIMIT)
    assert lines.feed(b"x" * 100) == [None]
    assert lines.feed(b"x" * 100) == []
    assert lines.feed(b"x\n{}\n") == [b"{}"]


def test_an_endless_message_takes_no_memory():
    lines = LineDecoder(limit=64 * 1024)
    chunk = b"x" * 4096
    tracemalloc.start()
    try:
        for _ in range(200):
            lines.feed(chunk)
        assert tracemalloc.get_traced_memory()[1] < 2 * 64 * 1024
    finally:
        tracemalloc.stop()


def test_the_largest_message_may_arrive_in_small_chunks():
    lines = LineDecoder()
    chunk = b"x" * 64
    for _ in range(4 * 2**20 // len(chunk)):
        assert lines.feed(chunk) == []
    assert [len(message) for message in lines.feed(b"\n")] == [4 * 2**20]


def test_a_byte_order_mark_and_a_carriage_return_do_not_count_toward_the_limit():
    decoder = LineDecoder(LIMIT)
    assert decoder.feed(b"\xef\xbb\xbf123456\r") == []
    assert decoder.feed(b"\n") == [b"123456"]


@given(st.lists(st.sampled_from(PIECES)))
def test_verbatim_lines_are_the_bytes_between_the_line_feeds(chunks):
    lines = VerbatimLineDecoder()
    found = [line for chunk in chunks for line in lines.feed(chunk)] + lines.end()
    stream = b"".join(chunks)
    whole = stream if stream.endswith(b"\n") or not stream else stream + b"\n"
    assert b"".join(line + b"\n" for line in found) == whole
