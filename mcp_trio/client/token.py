"""The bearer tokens of a client."""

from collections.abc import Awaitable, Callable

# A bearer token, or an async function that returns the current one.
Token = str | Callable[[], Awaitable[str]]


def check_token(token: object) -> None:
    """Raise TypeError if this cannot be a token."""
    if not isinstance(token, str) and not callable(token):
        raise TypeError(
            "token: expected a string or an async function that returns one, got "
            f"{token!r}; without a token, leave it out"
        )
