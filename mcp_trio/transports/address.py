"""Addresses to listen on, as users write them."""


def parse_address(text: str | int) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`; without a host it is this machine alone. Raises ValueError."""
    host, _, port = str(text).rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ValueError(
            f"[HOST:]PORT is wanted, such as 8000 or 127.0.0.1:8000, not {text!r}"
        )
    return host.strip("[]") or "127.0.0.1", int(port)
