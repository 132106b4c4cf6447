"""Reading and changing the tasks in a store."""

import secrets
import time
from collections import Counter
from collections.abc import Callable

from msgspec import json

from ...stores.base import Lease, Store
from .record import ShownTask, TaskRecord

_decode = json.Decoder(TaskRecord).decode
_decode_shown = json.Decoder(ShownTask).decode


def new_id() -> str:
    """Return an id for a new task, which cannot be guessed."""
    return secrets.token_urlsafe(24)


class TaskRecords:
    """Reads and changes the tasks of one server in a store.

    The ids of tasks that have changed are published on `channel`. `ended` counts the
    tasks that this process has ended, by status.
    """

    def __init__(self, store: Store, server: str) -> None:
        self.channel = f"tasks:{server}"
        self.ended: Counter[str] = Counter()
        self._store = store
        self._prefix = f"task:{server}:"

    def _key(self, id: str) -> str:
        return self._prefix + id

    async def create(self, record: TaskRecord) -> None:
        """Store a new task until it expires."""
        record.updated = record.created
        key = self._key(record.id)
        await self._store.write(key, record.encoded(), ttl=record.ttl, expected=0)

    async def read(self, id: str) -> TaskRecord | None:
        """Return a task, or None if it does not exist or has expired."""
        found = await self._store.read(self._key(id))
        return None if found is None else _decode(found.value)

    async def show(self, id: str) -> ShownTask | None:
        """Return the parts of a task that a poll needs, or None if there is none."""
        found = await self._store.read(self._key(id))
        return None if found is None else _decode_shown(found.value)

    async def delete(self, id: str) -> None:
        """Delete a task."""
        await self._store.delete(self._key(id))

    async def change(
        self,
        id: str,
        change: Callable[[TaskRecord], bool],
        lease: Lease | None = None,
    ) -> TaskRecord | None:
        """Change a task that has not ended, and publish the change.

        `change` returns whether it has changed the record. It is called again if
        another process has changed the record concurrently. Raises LeaseLost.
        """
        while True:
            found = await self._store.read(self._key(id))
            if found is None:
                return None
            record = _decode(found.value)
            if record.is_over or not change(record):
                return record
            record.updated = time.time()
            version = await self._store.write(
                self._key(id), record.encoded(), expected=found.version, lease=lease
            )
            if version is not None:
                if record.is_over:
                    self.ended[record.status] += 1
                await self._store.publish(self.channel, id.encode())
                return record
