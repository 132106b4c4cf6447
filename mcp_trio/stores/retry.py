"""Retrying operations of a store while it is unavailable."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from .base import StoreUnavailable

T = TypeVar("T")

# Seconds between two attempts.
INTERVAL = 0.5


async def until_available(operation: Callable[[], Awaitable[T]]) -> T:
    """Retry an operation of a store until the store is available.

    The operation must be idempotent, because the connection may be lost after it was
    carried out and before it was acknowledged.
    """
    while True:
        try:
            return await operation()
        except StoreUnavailable:
            await trio.sleep(INTERVAL)
