"""Server-sent events are parsed as they were written, however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.client.event_parser import EventParser, ServerSentEvent
from mcp_trio.transports.http import sse


def test_what_is_written_is_read() -> None:
    parser = EventParser()
    stream = (
        sse.encode_priming(b"1-0")
        + sse.COMMENT
        + sse.encode(b'{"a":1}', id=b"1-1")
        + sse.encode(b"{}")
    )
    assert parser.feed(stream) == [
        ServerSentEvent('{"a":1}', id="1-1"),
        ServerSentEvent("{}", id="1-1"),
    ]


def test_a_priming_event_says_where_it_is_and_nothing_else() -> None:
    parser = EventParser()
    assert parser.feed(sse.encode_priming(b"7-3")) == []
    assert parser.last_id == "7-3"


def test_a_valid_retry_is_kept_and_an_invalid_one_ignored() -> None:
    parser = EventParser()
    parser.feed(sse.encode_retry(500) + b"retry: soon\n\n")
    assert parser.retry == 500


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    lines = [
        b"\xef\xbb\xbfevent: endpoint",
        b"data: a",
        b"data:b",
        b"unknown: x",
        b"",
        b"data: c",
        b"",
        b"",
    ]
    assert EventParser().feed(end.join(lines)) == [
        ServerSentEvent("a\nb", "endpoint"),
        ServerSentEvent("c"),
    ]


@given(
    st.lists(
        st.text("ab\n\r:é ", max_size=6).filter(lambda s: s.strip("\r\n")), max_size=4
    ),
    st.data(),
)
def test_it_does_not_matter_where_the_bytes_are_cut(
    texts: list[str], data: st.DataObject
) -> None:
    stream = b"".join(
        b"".join(b"data: %b\r\n" % line.encode() for line in text.splitlines())
        + b"\r\n"
        for text in texts
    )
    whole = EventParser().feed(stream)
    parser, parts, rest = EventParser(), [], stream
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        parts += parser.feed(rest[:size])
        rest = rest[size:]
    assert parts == whole
