"""Wait for a store that is away."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from .base import StoreUnavailable

T = TypeVar("T")

# Seconds between two attempts.
INTERVAL = 0.5


async def until_available(operation: Callable[[], Awaitable[T]]) -> T:
    """Do something with a store, again and again until the store can be reached.

    It must not matter if the operation is carried out twice, because the store may have
    been lost before it could acknowledge.
    """
    while True:
        try:
            return await operation()
        except StoreUnavailable:
            await trio.sleep(INTERVAL)
