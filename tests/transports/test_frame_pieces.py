"""What a WebSocket client sends is handled in pieces of few frames."""

import json
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Server
from mcp_trio.transports.frame_pieces import MOST_FRAMES, FramePieces
from mcp_trio.transports.websocket import serve_websocket
from tests.support.websocket import UPGRADE, masked


def all_pieces(data: bytes, size: int) -> list[tuple[bytes, int]]:
    """Return the pieces of data that is read in parts of one size."""
    pieces = FramePieces()
    taken = []
    for begin in range(0, len(data), size):
        pieces.put(data[begin : begin + size])
        piece, frames = pieces.take()
        while piece:
            taken.append((piece, frames))
            piece, frames = pieces.take()
    return taken


FRAMES = [
    masked(1, b"x" * size, final=False) for size in (0, 1, 125, 126, 70_000, 65_535)
] + [b"\x81\x01x"]


@pytest.mark.parametrize("size", [1, 2, 7, 1000, 2**16, 2**20])
def test_pieces_are_the_same_bytes_however_they_were_read(size: int) -> None:
    data = b"".join(FRAMES) * 2
    pieces = all_pieces(data, size)
    assert b"".join(piece for piece, _ in pieces) == data
    assert sum(frames for _, frames in pieces) == 2 * len(FRAMES)


def test_a_piece_has_few_frames() -> None:
    data = masked(0, b"x", final=False) * 1000
    assert max(frames for _, frames in all_pieces(data, 2**16)) == MOST_FRAMES


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
