"""Server-sent events: writing them. Pure."""

# Says nothing, and keeps those in between from thinking that nothing will come.
COMMENT = b":\n\n"


def encode(data: bytes, *, id: bytes = b"", name: bytes = b"message") -> bytes:
    """One event. `data` is one line, as JSON without white space is."""
    named = b"id: %b\n" % id if id else b""
    return b"event: %b\n%bdata: %b\n\n" % (name, named, data)


def encode_priming(id: bytes) -> bytes:
    """An event without a message: tells the client where it is, so that it can come back."""
    return b"id: %b\ndata: \n\n" % id


def encode_retry(milliseconds: int) -> bytes:
    """Says after which time to come back, should the connection end."""
    return b"retry: %d\n\n" % milliseconds
