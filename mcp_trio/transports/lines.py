"""Bytes in, messages out: one message a line. Pure; used by every transport whose framing is the newline."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRIPPABLE = len(_BYTE_ORDER_MARK) + len(b"\r")


class Lines:
    """Cuts a stream of bytes into messages.

    A carriage return before the line feed and a byte order mark at the very start are removed, blank lines are passed
    over. `None` stands for a message that is longer than `limit`: it is given once, as soon as that is known, and the
    rest of the message is dropped, so that no more than `limit` and one chunk is ever held.
    """

    def __init__(self, limit: int = 4 * 2**20) -> None:
        self._limit = limit
        self._held = bytearray()  # the beginning of a message whose end has not come
        self._dropping = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The messages that are complete with this chunk, in order."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        messages: list[bytes | None] = []
        if lines:
            lines[0] = self._complete(lines[0])
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if len(line) > self._limit:
                messages.append(None)
            elif line and not line.isspace():
                messages.append(line)
        if rest and not self._hold(rest):
            messages.append(None)
        return messages

    def end(self) -> list[bytes | None]:
        """What is left when the input is over: a last line without its line feed is a message too."""
        return self.feed(b"\n")

    def _complete(self, line: bytes) -> bytes:
        """The whole of the line that `line` ends; nothing, if it has been refused before."""
        if self._dropping:
            self._dropping = False
            line = b""
        elif self._held:
            self._held += line
            line = bytes(self._held)
            self._held = bytearray()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        return line

    def _hold(self, beginning: bytes) -> bool:
        """Keeps an unfinished message; false when it has just become too long."""
        if self._dropping:
            return True
        if len(self._held) + len(beginning) > self._limit + _STRIPPABLE:
            self._held = bytearray()
            self._dropping = True
            return False
        self._held += beginning
        return True
