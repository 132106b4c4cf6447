"""Interfaces to stores and to groups of processes.

The implementations are in `mcp_trio.stores` and `mcp_trio.workers`. The server does not
depend on them.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from .limits import Rate


class StoreStatistics(Struct):
    """Counters of a store. `seconds` is the total duration of all operations."""

    operations: int = 0
    seconds: float = 0.0
    errors: int = 0
    reconnections: int = 0


class SharedState(Protocol):
    """The part of a store that the server itself uses."""

    @property
    def is_available(self) -> bool:
        """Whether the store can be used now."""

    @property
    def statistics(self) -> StoreStatistics:
        """The store's counters."""

    async def take(self, bucket: str, rate: Rate, weight: float = 1.0) -> float:
        """Take from a bucket that all processes share. See `Store.take`."""


class ProcessGroup(Protocol):
    """The processes that serve the same port, from the perspective of one of them."""

    # Whether all of them are stopping. Otherwise the others take over the clients of
    # this process when it stops.
    is_stopping: bool

    def use_page(self, render: Callable[[], bytes]) -> None:
        """Use this function for the metrics of this process."""

    async def all_metrics(self) -> bytes:
        """Return the metrics of all processes."""
