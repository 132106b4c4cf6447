"""Streams of events keep a bounded amount for clients that do not read."""

from mcp_trio.transports.http.event_stream import MAX_UNSENT, EventStream

MIB = b'"' + b"x" * (2**20 - 2) + b'"'


async def test_a_stream_without_a_name_is_cut_when_its_reader_takes_nothing() -> None:
    stream = EventStream()
    reader = object()
    stream.attach(reader)
    for _ in range(2 * MAX_UNSENT // len(MIB)):
        stream.send(MIB)
    assert stream.closed
    assert stream.size <= MAX_UNSENT + 2 * len(MIB)


async def test_a_stream_whose_reader_takes_everything_goes_on() -> None:
    stream = EventStream()
    reader = object()
    stream.attach(reader)
    for _ in range(2 * MAX_UNSENT // len(MIB)):
        stream.send(MIB)
        assert len(await stream.take(reader)) > len(MIB)
    assert not stream.closed
