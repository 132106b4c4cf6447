"""Creates tasks, and runs tasks in this process."""

import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from msgspec import Raw, Struct

from ...protocol import jsonrpc
from ...protocol import params as protocol_params
from ...protocol.errors import InternalError, TooManyCalls
from ...protocol.session import Call, Session
from ...server.app import Server
from ...server.conversation import Conversation
from ...server.execute import execute
from ...server.extension_points import Proceed
from ...server.features.tools import ServerTool
from ...server.handlers import Handler, call_with_hooks
from ...server.limiter import sender
from ...server.request import Request
from ...server.runner import LEAKED_SCOPE
from ...stores.base import (
    LeaseLost,
    QueuedJob,
    Store,
    StoreUnavailable,
    Subscription,
)
from ...stores.retry import until_available
from .ledger import TaskLedger
from .manual import ManualCall
from .record import ShownTask, StoredPrincipal, TaskRecord
from .records import TaskRecords, new_id
from .running import RunningTask
from .slots import Slot, Slots

log = logging.getLogger("mcp_trio")

# The duration of a lease on a task, and the time between renewals, in seconds.
LEASE = 10.0
RENEW = 3.0
# Seconds between two attempts to renew leases while the store is unavailable.
RETRY = 0.5
# The fraction of the grace period that is reserved for clients to poll their tasks.
LAST_POLLS = 0.4

# The outcome of a task that expired before it ended.
EXPIRED = "expired"
STOPPED = "The server was stopped before the task was done"
LOST = "The process that ran the task was lost"
NO_ROOM = "The result is too large to store, in addition to the client's other tasks"


class _NullChannel:
    """The channel of a task, which discards messages: the request was answered."""

    def send(self, message: bytes) -> None:
        """Do nothing."""

    async def drained(self) -> None:
        """Return immediately."""


_NULL_CHANNEL = _NullChannel()


class _TaskConversation(Conversation):
    """The conversation of a task, which does not depend on its client's."""

    __slots__ = ()
    is_persistent = False


class Durations(Struct, frozen=True):
    """The defaults for the time to live and the poll interval of tasks.

    No task is kept longer than `most_ttl`.
    """

    ttl: float
    poll_interval: float
    most_ttl: float


class Executor:
    """The tasks of one server in this process.

    All tasks go through a queue in the store. Each process pulls as many tasks from the
    queue as it has slots. `on_change` is called with each task that has changed. Tasks
    in `listened` are read again if messages about changes may have been lost.
    """

    def __init__(
        self,
        server: Server[Any],
        store: Store,
        ledger: TaskLedger,
        durations: Durations,
        *,
        slots: int,
        on_change: Callable[[TaskRecord], None],
        listened: Collection[str],
    ) -> None:
        self._server = server
        self._listened = listened
        self._queue = f"tasks:{server.info.name}"
        self.use_store(store)
        self._ledger = ledger
        self._durations = durations
        self._slot_count = slots
        self._slots = Slots(slots)
        self._on_change = on_change
        self._nursery: trio.Nursery | None = None
        self._running: dict[str, RunningTask] = {}
        # Tasks that were created in this process and have not ended.
        self._unfinished: set[str] = set()
        self._is_stopping = False
        # Tasks that ended after the server began to stop, and that their clients have
        # not polled since.
        self._unseen: set[str] = set()
        self._settled = trio.lowlevel.ParkingLot()

        # Cancelled when this process stops pulling tasks from the queue.
        self._pulling = trio.CancelScope()

    def use_store(self, store: Store) -> None:
        """Store tasks in this store. Must be called before the executor runs."""
        self._store = store
        self.records = TaskRecords(store, self._server.info.name)

    # For the metrics

    def count_by_state(self) -> dict[str, int]:
        """Return the number of tasks in each state, except tasks that have ended.

        Tasks in a shared queue are not counted, because any process may run them.
        """
        asking = sum(task.is_asking for task in self._running.values())
        working = len(self._running) - asking
        states = {"working": working, "input_required": asking}
        if not self._store.is_shared:
            states["queued"] = len(self._unfinished - self._running.keys())
        return states

    @property
    def ended(self) -> Counter[str]:
        """The number of tasks that have ended in this process, by outcome."""
        return self.records.ended

    # The life of the executor

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run tasks inside this block."""
        self._is_stopping = False
        self._pulling = trio.CancelScope()
        self._slots = Slots(self._server.task_slots or self._slot_count)
        async with (
            self._store.subscribe(self.records.channel) as changes,
            trio.open_nursery() as nursery,
        ):
            self._nursery = nursery
            nursery.start_soon(self._watch, changes)
            nursery.start_soon(self._pull_jobs, nursery)
            nursery.start_soon(self._renew)
            yield
            nursery.cancel_scope.cancel()

    async def settle(self, seconds: float) -> None:
        """Wait until tasks have ended, for at most so many seconds, then stop them.

        Then wait until clients have polled the tasks that have ended, if they are lost
        with this process.
        """
        self._is_stopping = True
        if self._store.is_shared:
            self._pulling.cancel()
            self._give_back()
        deadline = trio.current_time() + seconds
        with trio.move_on_at(deadline - LAST_POLLS * seconds):
            while self._is_unsettled:
                await self._settled.park()
        for task in list(self._running.values()):
            task.stop(STOPPED)
        if self._store.is_shared:
            with trio.move_on_at(deadline):
                while self._running:
                    await self._settled.park()
            return
        for id in self._unfinished - self._running.keys():
            await self._fail(id, STOPPED)
        with trio.move_on_at(deadline):
            while self._unfinished or self._unseen:
                await self._settled.park()

    @property
    def _is_unsettled(self) -> bool:
        """Whether there are tasks that cannot continue without this process."""
        return bool(self._running if self._store.is_shared else self._unfinished)

    def _give_back(self) -> None:
        """Return the tasks that may be retried to the queue, for other processes."""
        for task in list(self._running.values()):
            if task.may_be_given_back:
                task.is_given_back = True
                task.scope.cancel()

    def note_seen(self, task: ShownTask) -> None:
        """Note that a client has polled a task."""
        if task.id in self._unseen and task.is_over:
            self._unseen.discard(task.id)
            self._settled.unpark_all()

    async def _watch(self, changes: Subscription) -> None:
        """Handle changes to tasks, which any process may have made."""
        while True:
            changed = [data.decode() for data in await changes.receive()]
            if not changed:  # messages may have been lost
                changed = [*self._running, *self._unfinished, *self._listened]
            for id in dict.fromkeys(changed):
                try:
                    await self._note_change(id)
                except Exception:
                    log.exception("task %s: a change could not be handled", id)

    async def _note_change(self, id: str) -> None:
        record = await until_available(partial(self.records.read, id))
        if id in self._running:
            self._running[id].note_change(record)
        if record is not None:
            if record.is_over:
                self._note_end(id)
            self._on_change(record)

    def _note_end(self, id: str) -> None:
        if id in self._unfinished:
            self._unfinished.discard(id)
            if self._is_stopping:
                self._unseen.add(id)
            self._settled.unpark_all()

    async def _pull_jobs(self, nursery: trio.Nursery) -> None:
        """Pull tasks from the queue while there are free slots."""
        pull = partial(self._store.pull, self._queue, LEASE)
        with self._pulling:
            while True:
                await self._slots.wait()
                job = await until_available(pull)
                slot = Slot(self._slots)
                slot.acquire_nowait()
                nursery.start_soon(self._handle_job, job, slot)

    async def _renew(self) -> None:
        """Renew leases and delete expired tasks, regularly."""
        seconds = RENEW
        while True:
            await trio.sleep(seconds)
            try:
                await self._delete_expired()
                await self._renew_leases()
                seconds = RENEW
            except StoreUnavailable as problem:
                log.debug("cannot renew the leases of tasks: %s", problem.reason)
                # Renew them soon after reconnecting, before others take them over.
                seconds = RETRY

    async def _delete_expired(self) -> None:
        for id in self._ledger.forget_expired():
            await self.records.delete(id)

    async def _renew_leases(self) -> None:
        """Renew the leases of running tasks. Stop tasks whose lease was lost."""
        for task in list(self._running.values()):
            try:
                await self._store.renew(task.job.lease, LEASE)
            except LeaseLost:
                if task.id in self._running:
                    log.warning(
                        "task %s: stopped, because this process lost its lease",
                        task.id,
                    )
                    task.scope.cancel()

    # Creating tasks

    async def create(self, request: Request, tool: ServerTool) -> TaskRecord:
        """Create a task for a call, which any process may run. Raises TooManyCalls."""
        record = await self._store_new(request, tool)
        await self._push(record)
        return record

    async def _push(
        self, record: TaskRecord, *, hold: float | None = None
    ) -> QueuedJob | None:
        """Add a new task to the queue. Raises StoreUnavailable."""
        try:
            return await self._store.push(self._queue, record.id.encode(), hold=hold)
        except StoreUnavailable:
            # The client gets an error, and does not learn the task's id.
            self._unfinished.discard(record.id)
            raise

    async def _store_new(self, request: Request, tool: ServerTool) -> TaskRecord:
        if self._is_stopping:
            raise TooManyCalls(
                "The server is stopping; try again later",
                retry_after=self._server.grace,
            )
        assert tool.task is not None
        durations = self._durations
        client = sender(request)
        raw = Raw(bytes(request.call.raw))
        self._ledger.admit(client, len(bytes(raw)))
        record = TaskRecord(
            id=new_id(),
            tool=tool.name,
            revision=request.call.revision.name,
            params=raw,
            principal=StoredPrincipal.of(request.principal),
            address=request.conversation.address,
            created=time.time(),
            ttl=min(tool.task.ttl or durations.ttl, durations.most_ttl),
            poll_interval=tool.task.poll_interval or durations.poll_interval,
            retry=tool.task.retry,
        )
        await self.records.create(record)
        self._ledger.add(record.id, client, len(bytes(raw)), record.ttl)
        self._unfinished.add(record.id)
        return record

    def expect_poll(self, id: str, seconds: float) -> None:
        """Exempt the next poll of a task, after so many seconds, from the rate."""
        self._server.limiter.expect_poll(id, seconds)

    async def call_manually(
        self, request: Request, tool: ServerTool, proceed: Proceed
    ) -> bytes | TaskRecord:
        """Run a tool until it starts its task or ends.

        Returns the task or the tool's result, or raises the tool's exception.
        """
        assert self._nursery is not None

        async def become_task(call: ManualCall) -> tuple[TaskRecord, RunningTask]:
            record = await self._store_new(request, tool)
            job = await self._push(record, hold=LEASE)
            assert job is not None  # because of `hold`
            slot = Slot(self._slots)
            task = self._start(record, job, request, call.scope, slot)
            self._server.limiter.count(request, 1)
            return record, task

        call = ManualCall(request, become_task)
        request.task = call
        self._nursery.start_soon(self._run_manually, call, proceed)
        try:
            await call.settled.wait()
        except trio.Cancelled:
            call.scope.cancel()
            raise
        if call.record is not None:
            return call.record
        if call.outcome is None:
            raise InternalError("The tool was cancelled")
        return call.outcome.unwrap()

    async def _run_manually(self, call: ManualCall, proceed: Proceed) -> None:
        async def handler(server: Server[Any], request: Request) -> bytes:
            result = await call.run(proceed)
            # It is "task" if the request was answered with the task.
            request.outcome = "ok"
            return result

        try:
            reply = await self._execute(call.request, call.scope, handler)
        finally:
            call.settled.set()
        if call.task is not None:
            self._server.limiter.count(call.request, -1)
            await self._end(call.task, reply)

    # Running tasks

    async def _handle_job(self, job: QueuedJob, slot: Slot) -> None:
        """Run a task from the queue in a slot that was already acquired."""
        try:
            await self._run_job(job, slot)
        except Exception:  # not the tool's, which become the task's error
            log.exception("task %s could not be run", job.data.decode())
            await self._drop(job)
        finally:
            slot.release()

    async def _run_job(self, job: QueuedJob, slot: Slot) -> None:
        id = job.data.decode()
        record = await until_available(partial(self.records.read, id))
        if id in self._running:
            # This process runs it, but was too slow to renew its lease.
            self._running[id].job = job
        elif record is None or record.is_over:
            if record is None:
                self.ended[EXPIRED] += 1
            await self._drop(job)
        elif job.attempt > 1 and not record.retry:
            await self._fail(id, LOST)
            await self._drop(job)
        else:
            try:
                # If this process is lost before, the task has not run.
                await until_available(partial(self._store.begin, job))
            except LeaseLost:
                log.warning("task %s: its lease was lost before it began", id)
                return
            await self._run_task(record, job, slot)

    async def _drop(self, job: QueuedJob) -> None:
        await until_available(partial(self._store.done, job))
        self._note_end(job.data.decode())

    def _start(
        self,
        record: TaskRecord,
        job: QueuedJob,
        request: Request,
        scope: trio.CancelScope,
        slot: Slot,
    ) -> RunningTask:
        task = RunningTask(record, job, request, scope, self.records, slot)
        self._running[task.id] = task
        return task

    async def _run_task(self, record: TaskRecord, job: QueuedJob, slot: Slot) -> None:
        request = self._request_of(record)
        task = self._start(record, job, request, trio.CancelScope(), slot)
        request.task = task

        async def handler(server: Server[Any], request: Request) -> bytes:
            tool = server.tools.find(record.tool, request.principal)
            request.target = tool.name
            if tool.max_in_flight is not None:
                request.limited_tool = tool.name
            server.limiter.count(request, 1)
            try:
                return await call_with_hooks(server, request, tool)
            finally:
                server.limiter.count(request, -1)

        reply = await self._execute(request, task.scope, handler)
        await self._end(task, reply)

    def _request_of(self, record: TaskRecord) -> Request:
        """Return a request like the one that created the task."""
        revision = self._server.revisions.stateless[record.revision]
        params = protocol_params.decode_params("tools/call", record.params)
        principal = None
        if record.principal is not None:
            principal = record.principal.restored()
        conversation = _TaskConversation(
            Session(self._server.revisions),
            _NULL_CHANNEL,
            transport="task",
            address=record.address,
            principal=principal,
        )
        return Request(
            Call(record.id, "tools/call", params, record.params, revision),
            conversation,
            _NULL_CHANNEL,
            self._server.environment,
            principal,
        )

    async def _execute(
        self, request: Request, scope: trio.CancelScope, handler: Handler
    ) -> bytes | None:
        """Return the reply to a request, or None if it was cancelled."""
        replies: list[bytes] = []
        try:
            with scope:
                replies.append(await execute(self._server, request, handler))
        except* RuntimeError:
            log.exception(LEAKED_SCOPE)
        return replies[0] if replies else None

    async def _end(self, task: RunningTask, reply: bytes | None) -> None:
        """Store the outcome of a task, and release its slot and lease."""
        task.slot.release()
        try:
            if reply is not None:
                await self._write_reply(task, reply)
            elif task.reason is not None:
                await self._fail(task.id, task.reason)
            elif task.has_expired:
                self.ended[EXPIRED] += 1
        except LeaseLost:
            log.warning(
                "task %s: its result was dropped, because this process lost its lease",
                task.id,
            )
        # Only now, so that its lease is renewed until the outcome is stored.
        del self._running[task.id]
        end = self._store.give_back if task.is_given_back else self._store.done
        await until_available(partial(end, task.job))
        if not task.is_given_back:
            self._note_end(task.id)
        self._settled.unpark_all()

    async def _write_reply(self, task: RunningTask, reply: bytes) -> None:
        envelope = jsonrpc.decode(reply)
        result = bytes(envelope.result)
        if result and not self._ledger.has_room(task.id, len(result)):
            await self._fail(task.id, NO_ROOM)
            return

        def change(record: TaskRecord) -> bool:
            record.answers = {}
            if result:
                record.status = "completed"
                record.result = Raw(result)
            else:
                record.fail_with(Raw(bytes(envelope.error)))
            return True

        await until_available(
            partial(self.records.change, task.id, change, task.job.lease)
        )

    async def _fail(self, id: str, reason: str) -> None:
        """Mark a task as failed, with an internal error."""
        error = Raw(jsonrpc.encode({"code": InternalError.code, "message": reason}))

        def change(record: TaskRecord) -> bool:
            record.fail_with(error)
            return True

        await until_available(partial(self.records.change, id, change))
