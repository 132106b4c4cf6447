"""The bearer tokens of a client."""

from collections.abc import Awaitable, Callable

# A bearer token, or an async function that returns the current one.
Token = str | Callable[[], Awaitable[str]]
