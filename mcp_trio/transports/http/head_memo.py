"""Remembers the head of a client's last request.

Clients send nearly the same head with all their requests. If a whole request arrives in
one piece, and its head is the same as the last one, byte by byte, then it is neither
parsed nor checked again. Only some values may differ: that of `Content-Length`, which
has to be the size of the data after the head, and those of the headers that repeat the
method and the name in the body.

Measured with ten clients (`python -m benchmarks.guard`, the HTTP path): without this
memo, every request takes 33 % more instructions. If those two headers had to be the
same, so would every call of another tool than the last time.
"""

import re
from operator import itemgetter

from msgspec.structs import replace

from .messages import Parsed

_LENGTH = b"content-length"
_NAME = b"mcp-name"
# The headers whose values may differ.
_VARIABLE = (_LENGTH, b"mcp-method", _NAME)
# The most bytes of a head that is remembered.
_MAX_HEAD = 4096
# The most bytes of a value that may differ.
_MAX_VALUE = 256
# A value that every parser reads in the same way.
_PLAIN_VALUE = re.compile(rb"[!-~]+")


class HeadMemo:
    """The head of the last request, if it can be recognized."""

    def __init__(self) -> None:
        # The request with this head, without a body; None if nothing is remembered.
        self._request: Parsed | None = None
        # The last head, and the size of the last request.
        self._head = b""
        self._size = 0
        # The headers whose values may differ, in order: the name of each, and the bytes
        # between the previous value and its own.
        self._fields: list[tuple[bytes, bytes]] = []
        # The bytes after the last of these values.
        self._end = b""
        # The parts of the last head around the value of `Mcp-Name`; empty without it.
        self._before_name = b""
        self._after_name = b""

    def forget(self) -> None:
        """Remember nothing."""
        self._request = None

    def recall(self, data: bytes) -> Parsed | None:
        """Return the request in the data, if it is exactly one with the same head."""
        remembered = self._request
        if remembered is None:
            return None
        head = self._head
        if len(data) == self._size:
            if data.startswith(head):
                return replace(remembered, body=data[len(head) :])
            before = self._before_name
            after = self._after_name
            end = len(head) - len(after)
            if after and data.startswith(before) and data.startswith(after, end):
                return self._recall_other_name(data, remembered, len(before), end)
        return self._recall_changed(data, remembered)

    def _recall_other_name(
        self, data: bytes, remembered: Parsed, begin: int, end: int
    ) -> Parsed | None:
        """Return the request, of which only the value of `Mcp-Name` has changed.

        The value is between these positions, which are those of the last one. A client
        that polls its tasks sends such requests.
        """
        name = data[begin:end]
        if not _PLAIN_VALUE.fullmatch(name):
            return None
        size = len(self._head)
        self._head = data[:size]
        remembered.headers = {**remembered.headers, _NAME: name}
        return replace(remembered, body=data[size:])

    def _recall_changed(self, data: bytes, remembered: Parsed) -> Parsed | None:
        """Return the request, if only values that may differ have changed.

        The new values are remembered.
        """
        headers = remembered.headers.copy()
        name_at = (0, 0)
        end = 0
        for name, before in self._fields:
            if not data.startswith(before, end):
                return None
            begin = end + len(before)
            end = data.find(b"\r", begin, begin + _MAX_VALUE + 1)
            value = data[begin:end]
            if value != headers[name]:
                if end < 0 or not _PLAIN_VALUE.fullmatch(value):
                    return None
                headers[name] = value
            if name is _NAME:
                name_at = (begin, end)
        body = data[end + len(self._end) :]
        has_all = headers[_LENGTH] == b"%d" % len(body)
        if not has_all or not data.startswith(self._end, end):
            return None
        remembered.headers = headers
        self._note_head(data[: len(data) - len(body)], len(data), name_at)
        return replace(remembered, body=body)

    def _note_head(self, head: bytes, size: int, name_at: tuple[int, int]) -> None:
        """Remember the head of a request of this size.

        `name_at` is where the value of `Mcp-Name` begins and ends.
        """
        self._head = head
        self._size = size
        begin, end = name_at
        self._before_name = head[:begin]
        self._after_name = head[end:] if end else b""

    def remember(self, data: bytes, request: Parsed) -> None:
        """Remember the head of an accepted request, which was parsed from the data.

        Only an unambiguous head is remembered: it has a plain Content-Length, ends at
        its first empty line, and all its lines end in the same way.
        """
        size = len(request.body)
        if not _is_plain(request, b"%d" % size):
            return
        head = data[: len(data) - size]
        is_clear = head.find(b"\r\n\r\n") == len(head) - 4
        same_ends = head.count(b"\n") == head.count(b"\r\n")
        if not is_clear or not same_ends or len(head) > _MAX_HEAD:
            return
        positions = _value_positions(head, request)
        if _LENGTH not in positions:
            return
        self._fields = []
        name_at = (0, 0)
        end = 0
        for name, begin in sorted(positions.items(), key=itemgetter(1)):
            self._fields.append((name, head[end:begin]))
            end = begin + len(request.headers[name])
            if name is _NAME:
                name_at = (begin, end)
        self._end = head[end:]
        self._note_head(head, len(data), name_at)
        self._request = replace(request, body=b"")


def _is_plain(request: Parsed, size: bytes) -> bool:
    """Return whether a request has a body of this size, and nothing unusual."""
    headers = request.headers
    return (
        headers.get(b"content-length") == size
        and b"transfer-encoding" not in headers
        and b"expect" not in headers
        and request.refused is None
        and request.keeps_alive
        and not request.upgrade
    )


def _value_positions(head: bytes, request: Parsed) -> dict[bytes, int]:
    """Return the positions of the values that may differ, by header name.

    Headers that are not written in the usual way are left out.
    """
    lower = head.lower()
    positions = {}
    for name in _VARIABLE:
        value = request.headers.get(name, b"")
        mark = b"\r\n%b: " % name
        begin = lower.find(mark) + len(mark)
        is_usual = begin >= len(mark) and head.startswith(value + b"\r\n", begin)
        if is_usual and _PLAIN_VALUE.fullmatch(value):
            positions[name] = begin
    return positions
