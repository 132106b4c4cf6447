"""Addresses to listen on, as users write them."""


def parse_address(text: str | int) -> tuple[str, int]:
    """Parse `[HOST:]PORT`. Without a host, it is the loopback address.

    Raises ValueError.
    """
    host, _, port = str(text).rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(
            f"expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got {text!r}"
        )
    return host.strip("[]") or "127.0.0.1", int(port)
