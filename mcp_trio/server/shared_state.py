"""What the server itself needs to know of its other processes, and what they share.

The stores are in `mcp_trio.stores`, and groups of processes in `mcp_trio.workers`. The
server does not depend on them.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from .limits import Rate


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

    async def take(self, bucket: str, rate: Rate, weight: float = 1.0) -> float:
        """Take from a bucket that all processes share. See `Store.take`."""


class ProcessGroup(Protocol):
    """The processes that serve the same port, as one of them sees them."""

    # Whether all of them stop. If not, others take the clients of one that stops.
    is_stopping: bool

    def use_page(self, render: Callable[[], bytes]) -> None:
        """Use this function for the metrics of this process."""

    async def all_metrics(self) -> bytes:
        """Return the metrics of all processes."""
