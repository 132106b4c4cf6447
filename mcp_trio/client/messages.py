"""What a client takes for a message."""

from typing import Any

import msgspec


class NotAMessage(Exception):
    """What came from the server is no message of the protocol."""

    def __init__(self, came: bytes) -> None:
        shown = came[:60].decode(errors="replace")
        super().__init__(
            f"what answered is no MCP server: it wrote {shown!r}, which is not JSON-RPC"
        )


def parts_of(message: bytes) -> list[dict[str, Any]]:
    """What a message is made of: itself, or where it is a batch, each in it. Raises NotAMessage."""
    try:
        decoded = msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise NotAMessage(message) from None
    parts = decoded if isinstance(decoded, list) else [decoded]
    if not all(isinstance(part, dict) for part in parts):
        raise NotAMessage(message)
    return parts
