"""Cuts the input of a WebSocket into pieces of few frames.

trio-websocket handles all frames of a read at once, and each takes some 50 µs, however
small it is. 64 KiB of frames with one byte each would stop the server for 0.4 s.
"""

# The most frames in a piece. To handle so many takes less than a turn.
MOST_FRAMES = 32
# The smallest head of a frame: two bytes, and four of the mask if it has one.
HEAD = 2
MASK = 4
# Values of the length field that say in how many more bytes the length is.
LONGER = {126: 2, 127: 8}
# A head is not longer than this, without its mask.
LONGEST = 10


class FramePieces:
    """Takes input however it was read, and returns it in pieces."""

    def __init__(self) -> None:
        self._input = bytearray()
        # The part of an incomplete head that was taken.
        self._head = bytearray()
        # Bytes of the last frame that are not taken yet.
        self._rest = 0

    def put(self, data: bytes | bytearray) -> None:
        """Add input."""
        self._input += data

    def take(self) -> tuple[bytes, int]:
        """Return the next piece, and how many frames begin in it.

        The piece is empty if there is no input. A frame begins when its head is
        complete.
        """
        available = len(self._input)
        size = min(self._rest, available)
        self._rest -= size
        frames = 0
        while size < available and frames < MOST_FRAMES:
            whole = self._frame_size(size)
            if whole is None:
                self._head += self._input[size:]
                size = available
                break
            frames += 1
            whole -= len(self._head)
            self._head.clear()
            taken = min(whole, available - size)
            self._rest = whole - taken
            size += taken
        piece = bytes(self._input[:size])
        del self._input[:size]
        return piece, frames

    def _frame_size(self, begin: int) -> int | None:
        """Return the size of a frame with its head (RFC 6455, section 5.2).

        Returns None if its head is not complete.
        """
        start = self._head + self._input[begin : begin + LONGEST]
        if len(start) < HEAD:
            return None
        length = start[1] & 127
        size = HEAD
        if length in LONGER:
            size += LONGER[length]
            if len(start) < size:
                return None
            length = int.from_bytes(start[HEAD:size])
        if start[1] & 128:
            size += MASK
        return size + length
