"""The events of streams in a store."""

from __future__ import annotations

from functools import partial

from ...stores.base import Entry, Lease
from ...stores.peers import Peers
from ...stores.retry import until_available
from .event_stream import HISTORY_BYTES, HISTORY_EVENTS
from .session_record import ENDS, StreamRecord, decode_stream, encode_record

# Seconds that the events of a stream are kept after the latest one. A request that
# sends nothing for longer cannot be resumed.
WHILE_OPEN = 24 * 3600.0


class StreamLogs:
    """A log for each stream, and a record for each stream of requests.

    `ttl` is the number of seconds that a stream can be resumed after its end.
    """

    def __init__(self, peers: Peers, ttl: float) -> None:
        self.peers = peers
        self._store = peers.store
        self._ttl = ttl

    def _key(self, session: str, stream: str) -> str:
        return self.peers.key("stream", f"{session}:{stream}")

    async def create(
        self, session: str, stream: str, record: StreamRecord, lease: Lease | None
    ) -> None:
        """Make a stream known to other processes. Raises LeaseLost."""
        await self._store.write(
            self._key(session, stream),
            encode_record(record),
            ttl=WHILE_OPEN,
            lease=lease,
        )

    async def find(self, session: str, stream: str) -> StreamRecord | None:
        """Return the record of a stream, if it exists."""
        found = await self._store.read(self._key(session, stream))
        return None if found is None else decode_stream(found.value)

    async def append(
        self,
        session: str,
        stream: str,
        entries: list[bytes],
        *,
        position: int | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Append entries, and return the last position. See `Store.append`."""
        has_ended = entries[-1][:1] in ENDS
        return await self._store.append(
            self._key(session, stream),
            *entries,
            entries=HISTORY_EVENTS,
            size=HISTORY_BYTES,
            ttl=self._ttl if has_ended else WHILE_OPEN,
            position=position,
            lease=lease,
        )

    async def keep(self, session: str, stream: str) -> None:
        """Keep the events of a stream for longer, although there are no new ones."""
        await self._store.append(
            self._key(session, stream),
            entries=HISTORY_EVENTS,
            size=HISTORY_BYTES,
            ttl=WHILE_OPEN,
        )

    async def read(self, session: str, stream: str, after: int) -> list[Entry]:
        """Return the entries after a position that are still kept."""
        page = await self._store.read_log(self._key(session, stream), after)
        return page.entries

    async def note_end(self, session: str, stream: str) -> None:
        """Keep a stream only for as long as clients may resume it after its end."""
        await self._store.touch(self._key(session, stream), self._ttl)

    def delete_soon(self, session: str, stream: str) -> None:
        """Delete a stream as soon as the store is available."""
        delete = partial(self._delete, self._key(session, stream))
        self.peers.start_soon(partial(until_available, delete))

    async def _delete(self, key: str) -> None:
        await self._store.delete(key)
        await self._store.delete_log(key)
