"""Truncates results that are too large, in their texts, and says so in them."""

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from msgspec import Struct, json

from ..protocol.jsonrpc import encode
from ..protocol.sanitize import strip_controls
from .exceptions import ToolError

# The fields of results that hold texts, or whatever holds texts.
_CONTAINERS = ("content", "messages", "resource")


def truncate_result(
    value: Any, write: Callable[[Any], bytes], most: int, whose: str
) -> bytes:
    """Encode a result with `write`, its largest texts truncated so that it fits.

    Raises ToolError if it is larger than `most` bytes even without its texts.
    """
    encoded = write(value)
    size = len(encoded)
    if size <= most:
        return encoded
    texts: list[Any] = []
    value = _copy(value, texts)
    texts.sort(key=lambda piece: len(piece.text))
    excess = size - most
    while excess > 0:
        if not texts:
            fixed = "pictures, sound, bytes and structured content cannot be cut"
            raise ToolError(
                f"{whose} made a result of {size:,} bytes; at most {most:,} are "
                f"allowed, and {fixed}"
            )
        # There may be many texts, so the whole result is encoded only once in a while.
        while texts and excess > 0:
            excess -= _shorten(texts.pop(), excess)
        encoded = write(value)
        excess = len(encoded) - most
    return encoded


def _shorten(piece: Any, excess: int) -> int:
    """Truncate a text by so many bytes, if it is that long.

    Returns by how many bytes it is shorter now.
    """
    size = len(encode(strip_controls(piece.text)))
    shortened = truncate_text(piece.text, size - excess)
    saved = size - len(encode(shortened))
    if saved <= 0:
        return 0
    piece.text = shortened
    return saved


def truncate_text(text: str, most: int) -> str:
    """Truncate a text so that it has at most so many bytes as JSON, and says so."""
    whole = strip_controls(text)
    encoded = encode(whole)
    if len(encoded) <= most:
        return text
    note = "\n[cut: {:,} characters, of which the first {:,} are shown]"
    # No more characters can be shown than there are, so this note is long enough.
    left = most - len(encode(note.format(len(whole), len(whole))))
    shown = _decode_start(encoded, left) if left > 0 else ""
    return shown + note.format(len(whole), len(shown))


def _decode_start(encoded: bytes, size: int) -> str:
    """Decode the first bytes of a JSON string, without a character that was cut in two.

    The longest character is an escape of six bytes.
    """
    for end in range(size, max(size - 6, 0), -1):
        with suppress(ValueError):
            return json.decode(encoded[:end] + b'"', type=str)
    return ""


def _copy(value: Any, texts: list[Any]) -> Any:
    """Copy a result so that its texts can be replaced.

    The copied pieces that have a text are added to `texts`.
    """
    if isinstance(value, list):
        return [_copy(item, texts) for item in value]
    if not isinstance(value, Struct):
        return value
    twin = copy(value)
    if hasattr(twin, "text"):
        texts.append(twin)
    for name in _CONTAINERS:
        if hasattr(twin, name):
            setattr(twin, name, _copy(getattr(twin, name), texts))
    return twin
