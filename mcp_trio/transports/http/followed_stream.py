"""A stream whose requests run in another process, which may be lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from ...protocol import jsonrpc
from ...protocol.errors import InternalError
from ...stores.peer_messages import StreamFollowed
from ...stores.peers import process_of
from ...stores.retry import until_available
from .event_stream import EventStream
from .feed import Feed
from .session_record import LAST, StreamRecord
from .shared_session import SharedHttpSession
from .stored_stream import read_entry
from .stream_logs import StreamLogs

# Seconds after which a stream is read again, even if no process reports new events.
POLL_INTERVAL = 2.0

LOST = "The process serving this request was lost"


class FollowedFeed(Feed, kw_only=True):
    """A response that sends the events of another process's stream.

    `stream` is the copy of that stream for this client.
    """

    session: SharedHttpSession
    logs: StreamLogs
    record: StreamRecord
    name: str

    @asynccontextmanager
    async def open(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Follow the stream inside this block."""
        followed = self.session.followed.setdefault(self.name, {})
        followed[self.stream] = None
        try:
            async with super().open(nursery):
                nursery.start_soon(self._follow)
                yield
        finally:
            del followed[self.stream]
            if not followed:
                self.session.followed.pop(self.name, None)

    async def _follow(self) -> None:
        """Read the log until the stream has ended, at whichever process."""
        id = self.session.id.decode()
        owner = process_of(self.name)
        peers = self.logs.peers
        await peers.wait_until_known()
        follows = StreamFollowed(id, self.name, peers.identity.id)
        peers.send_soon(owner, follows)
        while not self.stream.closed:
            growth = self.session.growth()
            if await until_available(self._read):
                self.stream.close()
            elif await until_available(partial(peers.is_lost, owner)):
                await until_available(self._answer)
            else:
                await self.session.wait_for_growth(growth, POLL_INTERVAL)

    async def _read(self) -> bool:
        """Send the new entries of the log. Returns whether the stream has ended."""
        id = self.session.id.decode()
        after = self.stream.next_number - 1
        entries = await self.logs.read(id, self.name, after)
        for entry in entries:
            if entry.position >= self.stream.next_number:
                self.stream.skip(entry.position - 1)
                if read_entry(self.stream, entry):
                    return True
        if entries:
            return False
        # A request that was canceled has no reply, and its stream is not kept.
        return await self.logs.find(id, self.name) is None

    async def _answer(self) -> None:
        """Answer the requests in place of the process that was lost."""
        revision = self.session.revision
        error = revision.error(InternalError(LOST))
        replies = [jsonrpc.encode_error(id, error) for id in self.record.requests]
        message = b"[%b]" % b",".join(replies) if self.record.in_batch else replies[0]
        id = self.session.id.decode()
        # If another process was faster, this changes nothing.
        await self.logs.append(
            id, self.name, [LAST + message], position=self.stream.next_number
        )
        await self.logs.note_end(id, self.name)


def new_replica(name: str, after: int, *, primes: bool) -> EventStream:
    """Return an empty copy of another process's stream, for events after a number."""
    return EventStream(name.encode(), primes=primes, first=after + 1)
