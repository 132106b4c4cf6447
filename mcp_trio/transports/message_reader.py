"""Reads the messages of a WebSocket from its data frames (RFC 6455, section 5).

trio-websocket would keep each part of a message as a string until the message is
complete: up to four times its bytes, in blocks that fragment the heap and that only the
library can free. Here an incomplete message is one buffer, which can be dropped at any
time. The library still handles all other frames: pings, pongs, closes, and any that are
not valid, which it refuses.
"""

from typing import NamedTuple

from ..protocol.jsonrpc import MAX_MESSAGE

# The most frames that are read at once. To handle so many takes less than a turn.
MOST_FRAMES = 32

# The opcodes that may be used (RFC 6455, section 5.2). Those from `CLOSE` on are of
# control frames.
CONTINUATION = 0
TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10
_OPCODES = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
# Parts of the first byte of a frame, and of the second.
_FINAL = 0x80
_RESERVED = 0x70
_OPCODE = 0x0F
_MASKED = 0x80
_LENGTH = 0x7F
# These lengths mean that the real length follows, in so many bytes. They are valid only
# if the payload is not shorter than this.
_LONGER = {126: 2, 127: 8}
_SHORTEST = {126: 126, 127: 2**16}
_MASK = 4
# A head is not longer than this.
_LONGEST = 14

# The status codes of close frames: RFC 6455, section 7.4.1.
BAD_FRAME = 1002
NOT_TEXT = 1003
NOT_UTF8 = 1007
TOO_LARGE = 1009


class InvalidFrame(Exception):
    """Raised for a frame that no client may send."""


class FrameHead(NamedTuple):
    """What precedes the payload of a frame."""

    opcode: int
    is_final: bool
    size: int  # of the head itself, in bytes
    length: int  # of the payload, in bytes
    mask: bytes

    @property
    def is_control(self) -> bool:
        """Whether this is a ping, a pong or a close."""
        return self.opcode >= CLOSE


class MessageReader:
    """Takes input however it was read, and returns whole messages.

    If a message is refused, `problem` is the status code to close with. The data that
    follows is not kept.
    """

    def __init__(self) -> None:
        self.problem = 0
        # Whether `read` can do nothing until there is more input.
        self.needs_input = True
        self._input = bytearray()
        self._position = 0  # how much of the input was read
        self._message = bytearray()  # the payload of an incomplete message
        self._has_begun = False  # whether there is an incomplete message
        self._frame: FrameHead | None = None  # the incomplete data frame
        self._missing = 0  # bytes of its payload that were not read
        # Whether the library gets all that follows: after a close, or an invalid frame.
        self._is_over = False

    @property
    def size(self) -> int:
        """The memory that this takes, in bytes."""
        size = len(self._message)
        # A bytearray that grows reserves an eighth more than it needs.
        return size + size // 8 + len(self._input)

    def put(self, data: bytes | bytearray) -> None:
        """Add input."""
        self._input += data
        self.needs_input = False

    def refuse(self, problem: int) -> None:
        """Drop the incomplete message, and all data that follows."""
        if not self.problem:
            self.problem = problem
        self._message = bytearray()

    def read(self) -> tuple[list[bytes], bytes]:
        """Read a few frames.

        Returns the messages that are complete now, and the frames for the library.
        """
        messages: list[bytes] = []
        others = b""
        for _ in range(MOST_FRAMES):
            if self._is_over:
                others += self._take(len(self._input))
                self.needs_input = True
                break
            if self._frame is None:
                others += self._begin_frame()
            if self._frame is not None:
                self._continue_frame(self._frame, messages)
            if self.needs_input:
                break
        del self._input[: self._position]
        self._position = 0
        return messages, others

    def _begin_frame(self) -> bytes:
        """Read the head of a data frame, or return a control frame."""
        start = bytes(self._input[self._position : self._position + _LONGEST])
        try:
            head = parse_head(start)
            if head is None:
                self.needs_input = True
                return b""
            if head.is_control:
                return self._take_control(head)
            if head.opcode == CONTINUATION and not self._has_begun:
                raise InvalidFrame
        except InvalidFrame:
            self._is_over = True
            return b""
        self._position += head.size
        self._frame = head
        self._missing = head.length
        if head.opcode != CONTINUATION and self._has_begun:
            self.refuse(BAD_FRAME)
        elif head.opcode == BINARY:
            self.refuse(NOT_TEXT)
        elif len(self._message) + head.length > MAX_MESSAGE:
            self.refuse(TOO_LARGE)
        self._has_begun = True
        return b""

    def _take_control(self, head: FrameHead) -> bytes:
        """Return a control frame if it is complete."""
        size = head.size + head.length
        if len(self._input) - self._position < size:
            self.needs_input = True
            return b""
        self._is_over = head.opcode == CLOSE
        return self._take(size)

    def _continue_frame(self, frame: FrameHead, messages: list[bytes]) -> None:
        """Read the payload of a data frame, as far as it has arrived."""
        offset = frame.length - self._missing
        payload = self._take(self._missing)
        self._missing -= len(payload)
        if not self.problem:
            self._message += unmasked(payload, frame.mask, offset)
        if self._missing:
            self.needs_input = True
            return
        self._frame = None
        if frame.is_final:
            self._has_begun = False
            self._end_message(messages)

    def _end_message(self, messages: list[bytes]) -> None:
        """Add the message that is complete now, unless it is refused."""
        message = bytes(self._message)
        self._message = bytearray()
        if not is_utf8(message):
            self.refuse(NOT_UTF8)
        if not self.problem:
            messages.append(message)

    def _take(self, size: int) -> bytes:
        """Return the next bytes of the input, at most so many."""
        data = bytes(self._input[self._position : self._position + size])
        self._position += len(data)
        return data


def parse_head(start: bytes) -> FrameHead | None:
    """Return the head at the start of some bytes, or None if it is incomplete.

    Raises InvalidFrame.
    """
    if len(start) < 2:
        return None
    opcode = start[0] & _OPCODE
    is_masked = start[1] & _MASKED
    if opcode not in _OPCODES or start[0] & _RESERVED or not is_masked:
        raise InvalidFrame
    is_final = start[0] & _FINAL != 0
    length = start[1] & _LENGTH
    if opcode >= CLOSE and (length in _LONGER or not is_final):
        raise InvalidFrame
    size = 2
    if length in _LONGER:
        size += _LONGER[length]
        if len(start) < size:
            return None
        shortest = _SHORTEST[length]
        length = int.from_bytes(start[2:size])
        if length < shortest:
            raise InvalidFrame
    end = size + _MASK
    if len(start) < end:
        return None
    return FrameHead(opcode, is_final, end, length, start[size:end])


def unmasked(payload: bytes, mask: bytes, offset: int) -> bytes:
    """Return a part of a payload without its mask (RFC 6455, section 5.3).

    `offset` is where in the payload the part begins.
    """
    size = len(payload)
    begin = offset % _MASK
    repeated = mask * (size // _MASK + 2)
    key = repeated[begin : begin + size]
    number = int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")
    return number.to_bytes(size, "little")


def is_utf8(data: bytes) -> bool:
    """Return whether some bytes are valid UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
