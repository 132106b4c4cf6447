"""Newline framing: splits a stream of bytes into messages, one per line."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# How many bytes of a line may be stripped, and do not count toward the limit.
_STRIPPABLE = len(_BYTE_ORDER_MARK) + len(b"\r")


class LineDecoder:
    """Splits a stream of bytes into lines.

    A carriage return before the line feed and a byte order mark at the start of the
    stream are removed, and blank lines are skipped. A line that is longer than `limit`
    is reported once, as `None`, as soon as it exceeds the limit; its remaining bytes
    are dropped. The decoder never buffers more than `limit` bytes and one chunk.
    """

    def __init__(self, limit: int = 4 * 2**20) -> None:
        self._limit = limit
        # An incomplete line.
        self._held = bytearray()
        # Whether the current line has been reported as too long.
        self._is_dropping = False
        # The byte order mark to remove from the next line, if it is the first.
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
        """Return the last line at the end of the stream, if it has no line feed."""
        return self.feed(b"\n")


class VerbatimLineDecoder:
    """Splits a stream of bytes into lines, and changes nothing in them.

    For recording and checking what a server sends: carriage returns, a byte order mark
    and blank lines are kept, and lines of any length are accepted. The methods have the
    types of those of `LineDecoder`, but no line is None.
    """

    def __init__(self) -> None:
        # An incomplete line.
        self._held = bytearray()

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return the lines that this chunk completes, in order."""
        first, *others = chunk.split(b"\n")
        lines: list[bytes | None] = []
        self._held += first
        for other in others:
            lines.append(bytes(self._held))
            self._held = bytearray(other)
        return lines

    def end(self) -> list[bytes | None]:
        """Return the last line at the end of the stream, if it has no line feed."""
        return self.feed(b"\n") if self._held else []
