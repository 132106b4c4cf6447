"""Store: what a server keeps beyond one request, and what its processes share.

A store has five parts. Each is small enough for a Redis server, and for one process
that serves the store to others:

    records    values under keys, with a time to live and compare-and-set
    logs       bounded lists of entries, read from a position
    channels   publish and subscribe
    rates      token buckets
    leases     exclusive rights that end unless they are renewed; and queues of jobs,
               each of which is leased to the process that does it

Methods are async, because a store may be on another machine. The store in memory never
waits in them (only `pull` and `Subscription.receive` wait, for what others do), so a
request that uses it is still answered in the turn of the task that read it.

A process can be slow without noticing, and write long after its lease has ended. This
is why a lease has a token that is larger than those of all leases before it on the same
key. A write that names a lease is done only if no later lease has been granted. If none
has, a lease can be used and renewed even after its time.

A store on another machine can be away for a while, and then nobody can renew a lease.
So a lease that has expired is not taken over by a process that has not been connected
for as long as the lease that it asks for. This gives whoever holds the lease the time
to renew it.
"""

from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from msgspec import Struct

from ..protocol.errors import ServiceUnavailable
from ..server.limits import Rate
from ..server.shared_state import StoreStatistics

# Messages that a subscriber may be behind. After that it misses the oldest.
MOST_UNREAD = 10_000
# Seconds after which a client may try again while the store is away.
RETRY_AFTER = 2.0


class StoreUnavailable(ServiceUnavailable):
    """The store cannot be reached now. What it has acknowledged is not lost.

    It is not known whether the store has carried out the operation that raises this.
    """

    def __init__(self, reason: str) -> None:
        message = "The server's store cannot be reached now; try again later"
        super().__init__(message, retry_after=RETRY_AFTER)
        # For the log. It may name machines, which clients need not know.
        self.reason = reason


class LeaseLost(Exception):
    """The lease was released, or another has been granted since it ended."""


class Record(NamedTuple):
    """The value under a key. The version changes with every write."""

    value: bytes
    version: int


class Entry(NamedTuple):
    """An entry of a log. Positions begin with 1 and increase."""

    position: int
    data: bytes


class LogPage(NamedTuple):
    """The entries of a log after a position.

    `is_complete` is False if entries after that position are no longer kept.
    """

    entries: list[Entry]
    is_complete: bool


class Lease(Struct, frozen=True):
    """An exclusive right to something. A later lease on the key has a larger token."""

    key: str
    token: int


class QueuedJob(Struct, frozen=True):
    """An item of a queue, leased to whoever pulled it.

    `attempt` is 1 more than how often others have begun the item before. It does not
    count those who were lost before they began, or who gave the item back.
    """

    queue: str
    id: str
    data: bytes
    attempt: int
    lease: Lease


class Subscription(Protocol):
    """Messages on the channels that were subscribed to."""

    async def receive(self) -> list[bytes]:
        """Wait for messages, and return all that have arrived.

        Returns an empty list if messages may have been missed: because the store was
        away, or because this subscriber was far behind. What must not be missed belongs
        in a record or a log, and the message only says that it has changed.
        """


class Store(Protocol):
    """What every store can do while it runs.

    Every method except `subscribe` and `running` may raise StoreUnavailable.
    """

    # Whether other processes use the same store, and it outlives this one.
    is_shared: bool
    statistics: StoreStatistics

    @property
    def is_available(self) -> bool:
        """Whether the store could be reached when it was last used."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Use the store for as long as this is entered.

        This does not fail if the store cannot be reached: it may come back.
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

        With `expected`, write only if the record has this version, 0 if it does not
        exist; otherwise return None. With `lease`, write only while it is held.

        `ttl` is in seconds from now. Without it, the record keeps the time that it has,
        and a new record does not expire. Raises LeaseLost.
        """

    async def touch(self, key: str, ttl: float) -> bool:
        """Let a record expire so many seconds from now. Returns False if it is gone."""

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
        """Append entries to a log in one step, and return the log's last position.

        The oldest entries are dropped so that there are at most so many, with at most
        `size` bytes. The latest one is always kept. The log expires after `ttl` seconds
        without a new entry.

        With `position`, the first of the entries gets that position. If the log has
        reached it already, nothing is appended. So whoever does not know whether
        entries were appended can append them again. With `lease`, append only while it
        is held. Raises LeaseLost.
        """

    async def delete_log(self, log: str) -> None:
        """Delete a log, if it exists."""

    async def read_log(self, log: str, after: int = 0) -> LogPage:
        """Return the entries of a log after a position."""

    # Channels

    async def publish(self, channel: str, message: bytes) -> None:
        """Send a message to all who subscribe to a channel at this moment."""

    def subscribe(self, *channels: str) -> AbstractAsyncContextManager[Subscription]:
        """Subscribe to channels for as long as this is entered.

        This works while the store is away too. Then the first message is that some may
        have been missed.
        """

    # Rates

    async def take(self, bucket: str, rate: Rate, weight: float = 1.0) -> float:
        """Take one token, or the weight of one, from a bucket.

        Returns 0 if there was enough, and otherwise the seconds until there is. A
        negative weight puts back what was taken.
        """

    # Leases

    async def acquire(self, key: str, seconds: float) -> Lease | None:
        """Lease a key, unless it is leased already.

        A lease that has expired counts until it was possible to renew it for so many
        seconds: see above.
        """

    async def renew(self, lease: Lease, seconds: float) -> None:
        """Hold a lease for so many seconds from now.

        This works as long as no later lease was granted, even if the lease has expired.
        Raises LeaseLost.
        """

    async def release(self, lease: Lease) -> None:
        """End a lease. Does nothing if it has ended already."""

    # Queues

    async def push(
        self, queue: str, data: bytes, *, hold: float | None = None
    ) -> QueuedJob | None:
        """Add an item to a queue.

        With `hold`, the item is leased at once for so many seconds, and returned. It
        counts as begun.
        """

    async def pull(self, queue: str, seconds: float) -> QueuedJob:
        """Wait for an item, and lease it for so many seconds.

        An item whose lease ends before it is `done` can be pulled again.
        """

    async def begin(self, job: QueuedJob) -> None:
        """Note that an item is begun, which counts as an attempt from now on.

        It may be called twice for one lease. Raises LeaseLost.
        """

    async def done(self, job: QueuedJob) -> None:
        """Remove an item for good."""

    async def give_back(self, job: QueuedJob) -> None:
        """End the lease of an item, as if it had not been pulled."""
