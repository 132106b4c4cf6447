"""Decode the messages that a server sends."""

import msgspec

from ..protocol.types import Json
from .errors import NotAMessage


def split_batch(message: bytes) -> list[Json]:
    """Decode a message, and return the messages of a batch or the single one.

    Raises NotAMessage.
    """
    try:
        decoded = msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise NotAMessage(message) from None
    parts = decoded if isinstance(decoded, list) else [decoded]
    for part in parts:
        if not isinstance(part, dict):
            raise NotAMessage(message)
    return parts
