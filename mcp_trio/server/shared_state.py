"""What the server itself needs to know of the store that its processes share.

The stores are in `mcp_trio.stores`. The server does not depend on them.
"""

from typing import Protocol

from msgspec import Struct


class StoreStatistics(Struct):
    """What a store has done. `seconds` is how long all operations took together."""

    operations: int = 0
    seconds: float = 0.0
    errors: int = 0
    reconnections: int = 0


class SharedState(Protocol):
    """A store, as `/readyz` and `/metrics` see it."""

    @property
    def is_available(self) -> bool:
        """Whether the store can be used now."""

    @property
    def statistics(self) -> StoreStatistics:
        """Return what the store has done."""
