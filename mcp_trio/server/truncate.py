"""Truncates texts in results that are too large, and adds a note to them.

A result may be too large to encode in memory. So it is measured, and its texts are
truncated, before anything is encoded.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Any

from msgspec import Raw, Struct, json

from ..protocol.jsonrpc import encode
from ..protocol.sanitize import strip_controls
from .exceptions import ToolError

# The fields of results that contain texts, directly or indirectly.
_CONTAINERS = ("content", "messages", "resource")
# The fields that may be large. Only texts can be cut.
_LARGE = (
    *_CONTAINERS,
    *("text", "data", "blob", "structured", "encoded", "values"),
)


class _Piece:
    """A text in a copied result."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder
        self._original: str = holder.text
        self.size = len(self._original)  # characters, so at most its size in bytes

    def shorten(self, most: int) -> int:
        """Truncate the text to so many bytes. Returns the decrease of `size`."""
        before = self.size
        self._holder.text = truncate_text(self._original, max(most, 0))
        self.size = len(self._holder.text)
        return before - self.size

    def shorten_by(self, excess: int) -> int:
        """Truncate the text by so many bytes, if it is long enough.

        Returns how many bytes this saves.
        """
        text: str = self._holder.text
        size = len(encode(strip_controls(text)))
        shortened = truncate_text(self._original, size - excess)
        saved = size - len(encode(shortened))
        if saved <= 0:
            return 0
        self._holder.text = shortened
        return saved


def truncate_result(
    value: Any, write: Callable[[Any], bytes], most: int, label: str
) -> bytes:
    """Encode a result with `write`, after truncating its largest texts if necessary.

    `label` names the result in errors. Raises ToolError if the result is larger than
    `most` bytes even without its texts.
    """
    pieces: list[_Piece] = []
    measured = measure(value)
    if measured > most:
        value = _copy(value, pieces)
        fixed = measured - sum(piece.size for piece in pieces)
        if fixed > most:
            raise too_large(label, measured, most)
        _cut_before_encoding(pieces, most - fixed)
    encoded = write(value)
    size = len(encoded)
    if size <= most:
        return encoded
    if not pieces:
        value = _copy(value, pieces)
    pieces.sort(key=lambda piece: piece.size)
    excess = size - most
    while excess > 0:
        if not pieces:
            raise too_large(label, size, most)
        # There may be many texts, so the result is not encoded again after each.
        while pieces and excess > 0:
            excess -= pieces.pop().shorten_by(excess)
        encoded = write(value)
        excess = len(encoded) - most
    return encoded


def too_large(label: str, size: int, most: int) -> ToolError:
    """Return the error for a result that cannot be truncated."""
    return ToolError(
        f"{label} returned a result of {size:,} bytes; at most {most:,} are allowed, "
        "and images, audio, blobs and structured content cannot be truncated"
    )


def _cut_before_encoding(pieces: list[_Piece], room: int) -> None:
    """Truncate the largest texts until all together have at most `room` characters."""
    excess = sum(piece.size for piece in pieces) - room
    for piece in sorted(pieces, key=lambda piece: piece.size, reverse=True):
        if excess <= 0:
            return
        excess -= piece.shorten(piece.size - excess)


def truncate_text(text: str, most: int) -> str:
    """Truncate a text to a number of bytes as JSON, and add a note."""
    # Each character takes at least one byte, so the text beyond `most` is never shown.
    is_long = len(text) > most
    whole = strip_controls(text[:most] if is_long else text)
    encoded = encode(whole)
    if not is_long and len(encoded) <= most:
        return text
    length = len(text) if is_long else len(whole)
    note = "\n[cut: {:,} characters, of which the first {:,} are shown]"
    # The note is at most as long as with these numbers.
    left = most - len(encode(note.format(length, length)))
    shown = _decode_start(encoded, left) if left > 0 else ""
    return shown + note.format(length, len(shown))


def _decode_start(encoded: bytes, size: int) -> str:
    """Decode the first bytes of a JSON string, without a partial character at the end.

    The longest character is an escape of six bytes.
    """
    for end in range(size, max(size - 6, 0), -1):
        with suppress(ValueError):
            return json.decode(encoded[:end] + b'"', type=str)
    return ""


def measure(value: Any) -> int:
    """Return a lower bound of a result's size in bytes, without encoding it."""
    kind: type = type(value)
    if kind is str or kind is bytes:
        return len(value)
    if kind is list:
        return sum(map(measure, value))
    if kind is Raw:
        return len(memoryview(value))
    size = 0
    for name in _large_fields(kind):
        size += measure(getattr(value, name))
    return size


@cache
def _large_fields(kind: type) -> list[str]:
    """Return the fields of a class that may be large."""
    fields = getattr(kind, "__struct_fields__", ())
    return [name for name in fields if name in _LARGE]


def _copy(value: Any, pieces: list[_Piece]) -> Any:
    """Copy a result so that its texts can be replaced, and add them to `pieces`."""
    if isinstance(value, list):
        return [_copy(item, pieces) for item in value]
    if not isinstance(value, Struct):
        return value
    twin = copy(value)
    if hasattr(twin, "text"):
        pieces.append(_Piece(twin))
    for name in _CONTAINERS:
        if hasattr(twin, name):
            setattr(twin, name, _copy(getattr(twin, name), pieces))
    return twin
