"""Streams whose events are stored before they are sent."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import trio

from ...auth.principal import Principal
from ...stores.base import Entry, LeaseLost
from ...stores.peer_messages import StreamGrew
from ...stores.retry import until_available
from .event_stream import HIGH_WATER, EventStream
from .session_record import END, ENDS, LAST, MESSAGE, SENT, StreamRecord
from .stream_logs import StreamLogs

# The stream of a session's announcements.
ANNOUNCEMENTS = "a"


class StoredStream(EventStream):
    """The stream of one POST's requests, which run in this process.

    An event is sent only when it is in the log, where another process that serves the
    client can read it. The position of an entry in the log is the number of the event.

    Every write includes the lease of this process. If the process is declared lost,
    others answer its requests, and nothing that it writes later has an effect.
    """

    def __init__(
        self,
        logs: StreamLogs,
        session: str,
        record: StreamRecord,
        *,
        primes: bool,
        principal: Principal | None,
    ) -> None:
        self.full_name = logs.peers.new_name()
        super().__init__(self.full_name.encode(), primes=primes, principal=principal)
        self.identity = logs.peers.identity
        self.record = record
        # Other processes that serve the client.
        self.followers: set[str] = set()
        self._logs = logs
        self._session = session
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._is_recorded = False
        self._is_ending = False
        self._is_storing = False
        self._store_soon()

    # Sending

    def send(self, message: bytes) -> None:
        """Add a message. Never waits."""
        if self.closed or self._is_ending:
            return
        self._pending.append(message)
        self._pending_size += len(message)
        self._store_soon()

    def close(self) -> None:
        """Accept no more messages. The stream ends when all of them are stored."""
        if not self.closed and not self._is_ending:
            self._is_ending = True
            self._store_soon()

    async def drained(self) -> None:
        """Wait while the client, or the store, is too far behind."""
        while self._pending_size > HIGH_WATER and not self.closed:
            await self._changed.park()
        await super().drained()

    def give_up(self) -> bool:
        """Discard all events and close the stream, because its memory is needed."""
        self.forget()
        return super().give_up()

    def forget(self) -> None:
        """End the stream without a reply. It cannot be resumed."""
        self._end_here()
        if not self.identity.lost.is_set():
            self._logs.delete_soon(self._session, self.full_name)

    def abandon(self) -> None:
        """End the stream at this process only: another one answers its requests."""
        self._end_here()
        super().give_up()

    def _end_here(self) -> None:
        self._pending.clear()
        self._pending_size = 0
        self._is_ending = True
        super().close()

    def _has_unsent(self) -> bool:
        # Nothing is sent before others know the stream, not even the priming event.
        return self._is_recorded and super()._has_unsent()

    # Storing

    def _store_soon(self) -> None:
        if not self._is_storing:
            self._is_storing = True
            self._logs.peers.start_soon(self._store)

    async def _store(self) -> None:
        """Store all that is pending, in order."""
        try:
            await self.identity.known.wait()
            if self.identity.lost.is_set():
                raise LeaseLost(self.identity.id)
            if not self._is_recorded:
                await self._create()
            while not self.closed and (self._pending or self._is_ending):
                await self._store_pending()
        except LeaseLost:
            self._logs.peers.lose(self.identity)
            self.abandon()
        finally:
            self._is_storing = False

    async def _create(self) -> None:
        create = partial(
            self._logs.create,
            self._session,
            self.full_name,
            self.record,
            self.identity.lease,
        )
        await until_available(create)
        self._is_recorded = True
        self._changed.unpark_all()

    async def _store_pending(self) -> None:
        messages = self._pending
        is_end = self._is_ending
        self._pending = []
        append = partial(
            self._logs.append,
            self._session,
            self.full_name,
            _entries(messages, is_end=is_end),
            position=self.next_number,
            lease=self.identity.lease,
        )
        await until_available(append)
        if self.closed:  # it was forgotten during the wait
            return
        self._pending_size -= sum(map(len, messages))
        for message in messages:
            super().send(message)
        if is_end:
            super().close()
        self._changed.unpark_all()
        for process in self.followers:
            self._logs.peers.start_soon(partial(self._notify, process))
        if is_end:
            note = partial(self._logs.note_end, self._session, self.full_name)
            await until_available(note)

    async def _notify(self, process: str) -> None:
        """Notify a follower of new events, or forget it if it no longer exists."""
        grew = StreamGrew(self._session, self.full_name)
        if not await until_available(partial(self._logs.peers.send, process, grew)):
            self.followers.discard(process)


def _entries(messages: list[bytes], *, is_end: bool) -> list[bytes]:
    """Return messages as entries of a log."""
    entries = [MESSAGE + message for message in messages]
    if is_end and messages:
        entries[-1] = LAST + messages[-1]
    elif is_end:
        entries.append(END)
    return entries


def read_entry(stream: EventStream, entry: Entry) -> bool:
    """Add an entry of a log to a stream. Returns whether it is the end."""
    kind = entry.data[:1]
    if kind != END:
        stream.send(entry.data[1:])
    return kind in ENDS


class Home(Protocol):
    """The process that sends a session's announcements."""

    @property
    def home(self) -> str:
        """The id of the process."""

    @property
    def is_home(self) -> bool:
        """Whether that is this process."""


class Announcements(EventStream):
    """A session's announcements, at any process.

    Every process may add entries to their log. The session's home sends them, in the
    order of the log. An entry contains whether a client was reading when it was stored,
    so another process that becomes the home knows which entries were sent.
    """

    def __init__(
        self, logs: StreamLogs, session: str, home: Home, *, primes: bool
    ) -> None:
        super().__init__(ANNOUNCEMENTS.encode(), primes=primes)
        self._logs = logs
        self._session = session
        self._home = home
        self._pending: list[bytes] = []
        self._is_storing = False
        # Held while this process adds entries and sends them.
        self._lock = trio.Lock()

    def send(self, message: bytes) -> None:
        """Add a message. Never waits."""
        if self.closed:
            return
        self._pending.append(message)
        if not self._is_storing:
            self._is_storing = True
            self._logs.peers.start_soon(self._store)

    async def _store(self) -> None:
        try:
            while self._pending:
                messages = self._pending
                self._pending = []
                kind = SENT if self._home.is_home and self.readers else MESSAGE
                entries = [kind + message for message in messages]
                append = partial(
                    self._logs.append, self._session, ANNOUNCEMENTS, entries
                )
                async with self._lock:
                    last = await until_available(append)
                    await self._stored(messages, last)
        finally:
            self._is_storing = False

    async def _stored(self, messages: list[bytes], last: int) -> None:
        """Send the messages that were stored, or notify the session's home."""
        if not self._home.is_home:
            grew = StreamGrew(self._session, ANNOUNCEMENTS)
            self._logs.peers.send_soon(self._home.home, grew)
        elif last - len(messages) + 1 == self.next_number:
            for message in messages:
                super().send(message)
        else:  # another process has added entries before them
            await self._read(own_since=last - len(messages) + 1)

    async def keep(self) -> None:
        """Keep the log for longer. Raises StoreUnavailable.

        If it expired while the session is in use, its positions would begin again.
        """
        if self.next_number > 1:
            await self._logs.keep(self._session, ANNOUNCEMENTS)

    async def read(self) -> None:
        """Send what other processes have added to the log."""
        async with self._lock:
            await self._read()

    async def _read(self, own_since: int | None = None) -> None:
        """Send the entries of the log that were not sent.

        `own_since` is the position of the first entry that is this process's own.
        """
        after = self.next_number - 1
        read = partial(self._logs.read, self._session, ANNOUNCEMENTS, after)
        for entry in await until_available(read):
            if entry.position < self.next_number:
                continue
            is_own = own_since is not None and entry.position >= own_since
            if entry.data[:1] == SENT and not is_own:
                self.skip(entry.position)
            else:
                self.skip(entry.position - 1)
                super().send(entry.data[1:])

    def begin_with(self, entries: list[Entry], sent: int) -> None:
        """Load the entries of the log. Those up to the position `sent` were sent."""
        for entry in entries:
            if entry.position < self.next_number:
                continue
            self.skip(entry.position - 1)
            super().send(entry.data[1:])
            if entry.position <= sent or entry.data[:1] == SENT:
                self.count_as_sent()
