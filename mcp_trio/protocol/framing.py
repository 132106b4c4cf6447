"""Bytes in, messages out: one message a line. Pure; used by every transport whose framing is the newline."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRIPPABLE = len(_BYTE_ORDER_MARK) + len(b"\r")


class LineDecoder:
    """Cuts a stream of bytes into messages.

    A carriage return before the line feed and a byte order mark at the very start are removed, blank lines are passed
    over. `None` stands for a message that is longer than `limit`: it is given once, as soon as that is known, and the
    rest of the message is dropped, so that no more than `limit` and one chunk is ever held.
    """

    def __init__(self, limit: int = 4 * 2**20) -> None:
        self._limit = limit
        self._held = bytearray()  # the beginning of a message whose end has not come
        self._dropping = False  # the rest of a message that was refused
        self._mark = _BYTE_ORDER_MARK  # what the next line may begin with

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The messages that are complete with this chunk, in order."""
        *lines, rest = chunk.split(b"\n")
        messages: list[bytes | None] = []
        if lines:
            whole = b"" if self._dropping else bytes(self._held) + lines[0]
            lines[0] = whole.removeprefix(self._mark)
            self._held, self._dropping, self._mark = bytearray(), False, b""
        for line in lines:
            line = line.removesuffix(b"\r")
            if len(line) > self._limit:
                messages.append(None)
            elif line and not line.isspace():
                messages.append(line)
        if not self._dropping:
            self._held += rest
        if len(self._held) > self._limit + _STRIPPABLE:
            self._held = bytearray()
            self._dropping = True
            messages.append(None)
        return messages

    def end(self) -> list[bytes | None]:
        """What is left when the input is over: a last line without its line feed is a message too."""
        return self.feed(b"\n")
