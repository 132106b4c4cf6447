"""Newline framing: cuts a stream of bytes into messages, one on each line."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# The most bytes of a line that do not count toward the limit of a message.
_STRIPPABLE = len(_BYTE_ORDER_MARK) + len(b"\r")


class LineDecoder:
    """Splits a stream of bytes into lines.

    A carriage return before the line feed and a byte order mark at the start of the
    stream are removed, and blank lines are skipped. A line that is longer than `limit`
    is reported once, as `None`, as soon as it exceeds the limit; the rest of it is
    dropped. The decoder never holds more than `limit` bytes and one chunk.
    """

    def __init__(self, limit: int = 4 * 2**20) -> None:
        self._limit = limit
        # The beginning of a line whose end has not arrived yet.
        self._held = bytearray()
        # Whether the current line has been reported as too long.
        self._is_dropping = False
        # What to remove from the beginning of the next line.
        self._mark = _BYTE_ORDER_MARK

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return the messages that this chunk completes, in order."""
        *lines, rest = chunk.split(b"\n")
        messages: list[bytes | None] = []
        if lines:
            if self._is_dropping:
                lines[0] = b""
            else:
                line = bytes(self._held) + lines[0]
                lines[0] = line.removeprefix(self._mark)
            self._held = bytearray()
            self._is_dropping = False
            self._mark = b""
        for line in lines:
            line = line.removesuffix(b"\r")
            if len(line) > self._limit:
                messages.append(None)
            elif line and not line.isspace():
                messages.append(line)
        if not self._is_dropping:
            self._held += rest
        if len(self._held) > self._limit + _STRIPPABLE:
            self._held = bytearray()
            self._is_dropping = True
            messages.append(None)
        return messages

    def end(self) -> list[bytes | None]:
        """Return the rest of the stream: a last line without a line feed."""
        return self.feed(b"\n")
