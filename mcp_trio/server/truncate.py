"""Results that are too large are cut where that can be done, in their texts, and say so."""

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

from msgspec import Struct, json

from ..protocol.jsonrpc import encode
from ..protocol.sanitize import strip_controls
from .exceptions import ToolError

# Where in a result there are texts.
_WITHIN = ("content", "messages", "resource")


def truncate_result(
    value: Any, write: Callable[[Any], bytes], most: int, whose: str
) -> bytes:
    """A result as `write` encodes it, its largest texts cut so far that it has no more than so many bytes.

    Raises ToolError where it is too large without its texts.
    """
    encoded, texts = write(value), list[Any]()
    if (whole := len(encoded)) > most:
        value = _copied(value, texts)
        texts.sort(key=lambda piece: len(piece.text))
    while (beyond := len(encoded) - most) > 0:
        if not texts:
            fixed = "pictures, sound, bytes and structured content cannot be cut"
            raise ToolError(
                f"{whose} made a result of {whole:,} bytes; at most {most:,} are allowed, and {fixed}"
            )
        while (
            texts and beyond > 0
        ):  # the whole is written seldom, as there may be many texts
            beyond -= _shorten(texts.pop(), beyond)
        encoded = write(value)
    return encoded


def _shorten(piece: Any, less: int) -> int:
    """Cut a piece's text by so many bytes, if that can be; the bytes by which it is shorter now."""
    size = len(encode(strip_controls(piece.text)))
    shown = cut(piece.text, size - less)
    if (saved := size - len(encode(shown))) > 0:
        piece.text = shown
    return max(saved, 0)


def cut(text: str, most: int) -> str:
    """A text of which so many bytes, as JSON, are shown, and that says so; the whole where it is no larger."""
    whole = strip_controls(text)
    encoded = encode(whole)
    if len(encoded) <= most:
        return text
    note = "\n[cut: {:,} characters, of which the first {:,} are shown]"
    left = most - len(encode(note.format(len(whole), len(whole))))
    shown = _start(encoded, left) if left > 0 else ""
    return shown + note.format(len(whole), len(shown))


def _start(encoded: bytes, size: int) -> str:
    """The start of a text in JSON, at most so many bytes: a character, or its escape, may have been cut in two."""
    for end in range(size, max(size - 6, 0), -1):
        with suppress(ValueError):
            return json.decode(encoded[:end] + b'"', type=str)
    return ""


def _copied(value: Any, texts: list[Any]) -> Any:
    """A copy in which texts may be cut; the pieces that have one go to `texts`."""
    if isinstance(value, list):
        return [_copied(item, texts) for item in value]
    if not isinstance(value, Struct):
        return value
    twin = copy(value)
    if hasattr(twin, "text"):
        texts.append(twin)
    for name in _WITHIN:
        if hasattr(twin, name):
            setattr(twin, name, _copied(getattr(twin, name), texts))
    return twin
