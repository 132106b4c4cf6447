"""Messages are read from the frames of a WebSocket, a few frames at once."""

import json
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Server
from mcp_trio.protocol.jsonrpc import MAX_MESSAGE
from mcp_trio.transports.message_reader import (
    BAD_FRAME,
    MOST_FRAMES,
    NOT_TEXT,
    NOT_UTF8,
    TOO_LARGE,
    MessageReader,
)
from mcp_trio.transports.websocket import serve_websocket
from tests.support.websocket import UPGRADE, masked


def read_all(data: bytes, size: int) -> tuple[list[bytes], bytes]:
    """Return the messages, and what is left to the library, if data arrives in parts of
    one size.
    """
    reader = MessageReader()
    messages = []
    others = b""
    for begin in range(0, len(data), size):
        reader.put(data[begin : begin + size])
        while not reader.needs_input:
            complete, more = reader.read()
            messages += complete
            others += more
    return messages, others


SIZES = [1, 2, 7, 1000, 2**16, 2**20]
PARTS = [b"x" * size for size in (0, 1, 3, 125, 126, 65_535, 65_536)] + ["é".encode()]
PING = masked(9, b"still there?")


@pytest.mark.parametrize("size", SIZES)
def test_messages_are_the_same_however_they_were_read(size: int) -> None:
    whole = b"".join([masked(1, part) for part in PARTS])
    parts = masked(1, b"", final=False)
    parts += b"".join([masked(0, part, final=False) + PING for part in PARTS])
    messages, others = read_all((whole + parts + masked(0, b"!")) * 2, size)
    assert messages == [*PARTS, b"".join(PARTS) + b"!"] * 2
    assert others == PING * len(PARTS) * 2


@pytest.mark.parametrize("size", [1, 3, 4, 1000])
def test_the_mask_is_removed_from_parts_of_any_size(size: int) -> None:
    text = b"The quick brown fox jumps over the lazy dog"
    mask = b"\x01\x02\x30\x40"
    payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(text))
    frame = bytes([0x81, 0x80 | len(text)]) + mask + payload
    assert read_all(frame, size) == ([text], b"")


INVALID = {
    "an unknown opcode": b"\x83\x80\0\0\0\0",
    "a reserved bit": b"\xc1\x80\0\0\0\0",
    "no mask": b"\x81\x01x",
    "an unneeded longer length": b"\x81\xfe\0\x01\0\0\0\0x",
    "an unneeded longest length": b"\x81\xff\0\0\0\0\0\0\0\x01\0\0\0\0x",
    "a long ping": masked(9, b"x" * 126),
    "a ping in parts": masked(9, b"x", final=False),
    "a continuation of nothing": masked(0, b"x"),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("frame", INVALID.values(), ids=INVALID)
def test_an_invalid_frame_and_all_that_follows_is_left_to_the_library(
    frame: bytes, size: int
) -> None:
    following = masked(1, b"more")
    messages, others = read_all(masked(1, b"{}") + frame + following, size)
    assert (messages, others) == ([b"{}"], frame + following)


def test_what_follows_a_close_is_left_to_the_library() -> None:
    end = masked(8, b"\x03\xe8") + masked(1, b"{}")
    assert read_all(end, 1000) == ([], end)


REFUSED = {
    NOT_TEXT: masked(2, b"{}"),
    NOT_UTF8: masked(1, b"\xc3", final=False) + masked(0, b"("),
    TOO_LARGE: masked(1, b"x" * MAX_MESSAGE, final=False) + masked(0, b"x"),
    BAD_FRAME: masked(1, b"{", final=False) + masked(1, b"{}"),
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_refused_message_is_dropped_with_all_that_follows(code: int) -> None:
    reader = MessageReader()
    reader.put(masked(1, b"[]") + REFUSED[code] + masked(1, b"{}") + PING)
    assert reader.read() == ([b"[]"], PING)
    assert (reader.problem, reader.size) == (code, 0)


def test_few_frames_are_read_at_once() -> None:
    reader = MessageReader()
    reader.put(masked(1, b"x") * 1000)
    counts = []
    while not reader.needs_input:
        counts.append(len(reader.read()[0]))
    assert max(counts) == MOST_FRAMES
    assert sum(counts) == 1000


def test_an_incomplete_message_takes_little_more_memory_than_its_bytes() -> None:
    reader = MessageReader()
    reader.put(masked(1, "😀".encode() * 25_000, final=False))
    reader.read()
    assert 100_000 <= reader.size <= 115_000
    reader.refuse(TOO_LARGE)
    assert reader.size == 0


async def test_other_tasks_run_while_many_small_frames_are_handled() -> None:
    server: Server[Any] = Server("frames")
    count = 5_000
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    text = json.dumps(ping).encode()
    frames = [masked(1, text[:1], final=False)]
    frames += [masked(0, b" ", final=False)] * count
    frames.append(masked(0, text[1:]))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with server.running(), trio.open_nursery() as nursery:
        ours, theirs = trio.testing.memory_stream_pair()
        stopping = trio.Event()
        nursery.start_soon(serve_websocket, server, theirs, UPGRADE, stopping)
        await ours.receive_some()
        nursery.start_soon(count_turns)
        nursery.start_soon(ours.send_all, b"".join(frames))
        assert b'"id":1' in await ours.receive_some()
        nursery.cancel_scope.cancel()
    assert turns > count // MOST_FRAMES
