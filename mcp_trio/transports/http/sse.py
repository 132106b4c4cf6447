"""Encode server-sent events. Pure: bytes in, bytes out."""

# A comment has no meaning for the client. It keeps proxies from closing a stream on
# which nothing else is sent.
COMMENT = b":\n\n"


def encode(data: bytes, *, id: bytes = b"", name: bytes = b"message") -> bytes:
    """Return one event. `data` must be a single line, such as compact JSON."""
    id_line = b"id: %b\n" % id if id else b""
    return b"event: %b\n%bdata: %b\n\n" % (name, id_line, data)


def encode_priming(id: bytes) -> bytes:
    """Return an event without a message, whose id lets the client resume."""
    return b"id: %b\ndata: \n\n" % id


def encode_retry(milliseconds: int) -> bytes:
    """Return the retry field, the time to wait before reconnecting."""
    return b"retry: %d\n\n" % milliseconds
