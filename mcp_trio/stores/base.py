"""Store: state that outlives a request, and that a server's processes share.

A store has five parts, which are simple enough to implement in Redis, and in a process
that serves the store to others:

    records    values under keys, with a time to live and compare-and-set
    logs       bounded lists of entries, read from a position
    channels   publish and subscribe
    rates      token buckets
    leases     exclusive rights that expire unless renewed, and queues of jobs, each
               leased to the process that runs it

Methods are async, because a store may be on another machine. The memory store does not
execute a checkpoint, except in `pull` and `Subscription.receive`. So a request that
uses it can still be answered by the task that read it.

A process may be suspended, and write long after its lease has expired. So a lease has a
token, which is larger than the tokens of all earlier leases of the same key. A write
that names a lease succeeds only if no later lease has been granted. Until then, a lease
can be used and renewed even after it has expired.

A remote store may be unavailable for a while, during which nobody can renew a lease. So
a process can take over an expired lease only after it has been connected for as long as
the lease that it requests. This gives the holder of the lease the time to renew it.
"""

from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from ..protocol.errors import ServiceUnavailable
from ..server.limits import Rate
from ..server.shared_state import StoreStatistics

# The maximum number of unread messages of a subscriber. Then the oldest are dropped.
MOST_UNREAD = 10_000
# Seconds after which a client may try again while the store is unavailable.
RETRY_AFTER = 2.0


class StoreUnavailable(ServiceUnavailable):
    """The store cannot be reached now. Acknowledged writes are not lost.

    The operation that raises this may or may not have been carried out.
    """

    def __init__(self, reason: str) -> None:
        message = "The server's store cannot be reached now; try again later"
        super().__init__(message, retry_after=RETRY_AFTER)
        # For the log only, because it may contain host names.
        self.reason = reason


class LeaseLost(Exception):
    """The lease was released, or a later lease was granted after it expired."""


class Record(NamedTuple):
    """The value under a key. The version changes with every write."""

    value: bytes
    version: int


class Entry(NamedTuple):
    """An entry of a log. Positions start at 1 and increase."""

    position: int
    data: bytes


class LogPage(NamedTuple):
    """The entries of a log after a position.

    `is_complete` is False if entries after that position have been dropped.
    """

    entries: list[Entry]
    is_complete: bool


class Lease(Struct, frozen=True):
    """An exclusive right to something. A later lease on the key has a larger token."""

    key: str
    token: int


class QueuedJob(Struct, frozen=True):
    """An item of a queue, leased to the process that pulled it.

    `attempt` is 1 for the first process that begins the item, 2 for the second one,
    and so on. A process that returned the item, or was lost before it began, does not
    count.
    """

    queue: str
    id: str
    data: bytes
    attempt: int
    lease: Lease


class Subscription(Protocol):
    """The messages on subscribed channels."""

    async def receive(self) -> list[bytes]:
        """Wait for messages, and return all that have arrived.

        Returns an empty list if messages may have been lost, because the store was
        unavailable or because this subscriber was too slow. Put data that must not be
        lost into a record or a log, and only use messages to signal that it changed.
        """


class Store(Protocol):
    """The interface of stores.

    All methods except `subscribe` and `running` may raise StoreUnavailable.
    """

    # Whether other processes use the same store, so that it outlives this process.
    is_shared: bool
    statistics: StoreStatistics

    @property
    def is_available(self) -> bool:
        """Whether the store could be reached when it was last used."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store inside this block.

        This does not fail if the store cannot be reached, because it may be available
        later.
        """

    # Records

    async def read(self, key: str) -> Record | None:
        """Return the record under a key, unless it has expired."""

    async def write(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float | None = None,
        expected: int | None = None,
        lease: Lease | None = None,
    ) -> int | None:
        """Write a record, and return its version.

        With `expected`, write only if the record has this version, which is 0 if it
        does not exist; otherwise return None. With `lease`, write only while it is
        held. Raises LeaseLost.

        `ttl` is in seconds from now. Without it, the record's time to live does not
        change, and a new record does not expire.
        """

    async def touch(self, key: str, ttl: float) -> bool:
        """Set a record's time to live. Returns False if the record does not exist."""

    async def delete(self, key: str) -> None:
        """Delete a record, if it exists."""

    # Logs

    async def append(
        self,
        log: str,
        *data: bytes,
        entries: int,
        size: int,
        ttl: float,
        position: int | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Append entries to a log atomically, and return the log's last position.

        The oldest entries are dropped, so that the log has at most `entries` entries
        with at most `size` bytes. The latest entry is always kept. The log expires
        after `ttl` seconds without a new entry. Without entries to append, only the
        time at which it expires changes.

        With `position`, the first of the entries gets that position. If the log has
        already reached it, nothing is appended, so it is safe to retry. With `lease`,
        append only while it is held. Raises LeaseLost.
        """

    async def delete_log(self, log: str) -> None:
        """Delete a log, if it exists."""

    async def read_log(self, log: str, after: int = 0) -> LogPage:
        """Return the entries of a log after a position."""

    # Channels

    async def publish(self, channel: str, message: bytes) -> None:
        """Send a message to the current subscribers of a channel."""

    def subscribe(self, *channels: str) -> AbstractAsyncContextManager[Subscription]:
        """Subscribe to channels inside this block.

        This also works while the store is unavailable. Then `receive` first reports
        that messages may have been lost.
        """

    # Rates

    async def take(self, bucket: str, rate: Rate, weight: float = 1.0) -> float:
        """Take tokens from a bucket.

        Returns 0 if there were enough, and otherwise the seconds until there are. A
        negative weight puts tokens back.
        """

    # Leases

    async def acquire(self, key: str, seconds: float) -> Lease | None:
        """Lease a key. Returns None if it is already leased.

        An expired lease can be taken over only after this process has been connected
        for `seconds`: see above.
        """

    async def renew(self, lease: Lease, seconds: float) -> None:
        """Extend a lease to so many seconds from now.

        An expired lease can be renewed if no later lease was granted. Raises LeaseLost.
        """

    async def release(self, lease: Lease) -> None:
        """Release a lease. Does nothing if it was already released or lost."""

    # Queues

    async def push(
        self, queue: str, data: bytes, *, hold: float | None = None
    ) -> QueuedJob | None:
        """Add an item to a queue.

        With `hold`, immediately lease the item for so many seconds, count it as begun,
        and return it.
        """

    async def pull(self, queue: str, seconds: float) -> QueuedJob:
        """Wait for an item, and lease it for so many seconds.

        An item whose lease expires before it is `done` can be pulled again.
        """

    async def begin(self, job: QueuedJob) -> None:
        """Record that work on an item has begun, so that this attempt counts.

        Calling it twice for one lease has no effect. Raises LeaseLost.
        """

    async def done(self, job: QueuedJob) -> None:
        """Remove an item from its queue."""

    async def give_back(self, job: QueuedJob) -> None:
        """Return an item to its queue, as if it had not been pulled."""
