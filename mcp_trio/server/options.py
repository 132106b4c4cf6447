"""Checks the arguments of `Server`, and applies their defaults."""

import os
import secrets
from types import UnionType

from msgspec.structs import replace

from .limits import Limits, check_seconds

# The minimum size of the signing secret in bytes. A shorter one could be guessed from a
# signature.
SHORTEST_SECRET = 32


def check_name(name: object) -> None:
    """Raise TypeError unless a server can have this name."""
    if not name or not isinstance(name, str):
        raise TypeError(
            f"Server(name): expected a non-empty string, got {name!r}; to register a "
            "function, use @server.tool"
        )


def check_options(
    instructions: object,
    secret: object,
    limits: object,
    timeout: float | None,
    grace: float,
) -> None:
    """Raise TypeError or ValueError if an option of `Server` is invalid."""
    _check_type("instructions", instructions, str | None)
    _check_type("secret", secret, str | bytes | None)
    _check_type("limits", limits, Limits | None)
    check_seconds(timeout, "Server(timeout)")
    check_seconds(grace, "Server(grace)", also=0)


def _check_type(option: str, value: object, expected: type | UnionType) -> None:
    if not isinstance(value, expected):
        given = type(value).__name__
        raise TypeError(f"Server({option}): expected {expected}, got {given}")


def with_timeout(limits: Limits, timeout: float | None) -> Limits:
    """Return the limits with this timeout. None keeps their own."""
    return limits if timeout is None else replace(limits, timeout=timeout)


def signing_secret(secret: str | bytes | None) -> bytes:
    """Return the given secret, or that of the environment, or a new one.

    Raises ValueError if it is too short.
    """
    given = secret
    where = "Server(secret)"
    if given is None:
        given = os.environ.get("MCP_TRIO_SECRET") or None
        where = "MCP_TRIO_SECRET"
    if given is None:
        return secrets.token_bytes(SHORTEST_SECRET)
    encoded = given.encode() if isinstance(given, str) else given
    if len(encoded) < SHORTEST_SECRET:
        raise ValueError(
            f"{where}: expected at least {SHORTEST_SECRET} bytes, got {len(encoded)}; "
            'generate one: python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    return encoded
