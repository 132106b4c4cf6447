"""Tasks: the extension's methods and hooks."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from msgspec import Raw, json

from ...auth.principal import Principal
from ...protocol.errors import InvalidParams, MissingClientCapability, ProtocolError
from ...protocol.extensions import TASKS
from ...protocol.jsonrpc import encode
from ...protocol.params import Params
from ...protocol.revisions import Revision
from ...protocol.types import Json, Tool
from ...server.app import Server
from ...server.background import NeverATask
from ...server.extension_points import ExtensionHooks, Listening, Proceed
from ...server.features.tools import ServerTool
from ...server.gauges import Gauge, labels
from ...server.limits import check_limits, check_seconds
from ...server.request import Request
from ...stores.base import Store
from ...stores.memory import MemoryStore
from ..base import Extension, ExtensionContext, method
from .executor import Durations, Executor
from .ledger import TaskLedger
from .record import ShownTask, TaskRecord

IDENTIFIER = TASKS
NOTIFICATION = "notifications/tasks"
# The maximum number of tasks in one subscription.
MOST_LISTENED = 1000


class TaskParams(Params, kw_only=True, rename="camel"):
    """The params of tasks/get and tasks/cancel."""

    task_id: str


class UpdateParams(TaskParams, kw_only=True, rename="camel"):
    """The params of tasks/update."""

    input_responses: dict[str, Raw]


class Tasks(Extension):
    """Calls of tools that continue after their request was answered.

    A server declares this extension as soon as a tool has `task=`. To change its
    settings, pass one to `Server(extensions=[Tasks(...)])`. Durations are in seconds.

    Args:
        slots: The number of tasks that this process runs at the same time. Others wait.
        ttl: How long a task is kept, for tools without a `ttl` of their own.
        poll_interval: How long clients wait between two polls, for tools that do not
            set it.
        most_ttl: The longest that a task is kept.
        most_tasks: The number of unexpired tasks that one client may have.
        most_bytes: The number of bytes that these tasks and their results may hold.
        store: Where tasks are kept. By default, in the store of the server.
    """

    identifier = IDENTIFIER
    in_sessions = False
    notifications = (NOTIFICATION,)
    result_types = ("task",)
    listens_to = ("taskIds",)

    def __init__(
        self,
        *,
        slots: int = 16,
        ttl: float = 3600.0,
        poll_interval: float = 1.0,
        most_ttl: float = 86_400.0,
        most_tasks: int = 1000,
        most_bytes: int = 64 * 2**20,
        store: Store | None = None,
    ) -> None:
        check_limits("Tasks", slots=slots, most_tasks=most_tasks, most_bytes=most_bytes)
        check_seconds(ttl, "Tasks(ttl)")
        check_seconds(poll_interval, "Tasks(poll_interval)")
        check_seconds(most_ttl, "Tasks(most_ttl)")
        self.slots = slots
        self._durations = Durations(ttl, poll_interval, most_ttl)
        self._ledger = TaskLedger(most_tasks, most_bytes)
        # None to use the server's store.
        self._own_store = store
        # Revision -> the end of an encoded result, after the fields of a task.
        self._endings: dict[str, bytes] = {}
        # Task id -> the subscriptions to the task.
        self._listeners: dict[str, set[Listening]] = {}

    def bind(self, server: Server[Any]) -> ExtensionHooks:
        """Add the extension to a server, and return its hooks."""
        hooks = super().bind(server)
        self._executor = Executor(
            server,
            self._own_store or MemoryStore(),
            self._ledger,
            self._durations,
            slots=self.slots,
            on_change=self._notify_listeners,
            listened=self._listeners.keys(),
        )
        return hooks

    def use_store(self, store: Store) -> None:
        """Store tasks in the server's store, unless this has its own store."""
        if self._own_store is None:
            self._executor.use_store(store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run tasks while the server runs."""
        async with AsyncExitStack() as stack:
            if self._own_store is not None:
                await stack.enter_async_context(self._own_store.running())
            await stack.enter_async_context(self._executor.running())
            yield

    async def settle(self, seconds: float) -> None:
        """Wait for tasks to end before the server stops. Others fail."""
        await self._executor.settle(seconds)

    def gauges(self) -> list[Gauge]:
        """Return the number of tasks in this process, by state and by outcome."""
        states = self._executor.count_by_state()
        now = {labels(state=state): count for state, count in states.items()}
        ended = {
            labels(outcome=outcome): count
            for outcome, count in sorted(self._executor.ended.items())
        }
        return [
            Gauge("mcp_tasks", "Tasks that have not ended.", now),
            Gauge("mcp_tasks_total", "Tasks that have ended.", ended, "counter"),
        ]

    # Methods

    @method("tasks/get", named_by="taskId")
    async def get(self, params: TaskParams, ctx: ExtensionContext) -> bytes:
        """Return the current state of a task."""
        task = await self._find(params.task_id, ctx.principal)
        self._executor.note_seen(task)
        self._executor.expect_poll(task.id, task.poll_interval)
        # The size of the result in it has already been limited.
        return bytes(task.shown)[:-1] + self._ending(ctx.protocol_revision)

    @method("tasks/update", named_by="taskId")
    async def update(self, params: UpdateParams, ctx: ExtensionContext) -> None:
        """Store answers to open questions. Others are ignored."""
        await self._find(params.task_id, ctx.principal)
        responses = params.input_responses

        def change(record: TaskRecord) -> bool:
            answered = record.questions.keys() & responses.keys()
            for key in answered:
                record.answers[key] = Raw(bytes(responses[key]))
                del record.questions[key]
            if answered and not record.questions:
                record.status = "working"
            return bool(answered)

        await self._executor.records.change(params.task_id, change)

    @method("tasks/cancel", named_by="taskId")
    async def cancel(self, params: TaskParams, ctx: ExtensionContext) -> None:
        """Cancel a task, unless it has ended."""
        await self._find(params.task_id, ctx.principal)

        def change(record: TaskRecord) -> bool:
            record.status = "cancelled"
            record.questions = {}
            record.answers = {}
            return True

        await self._executor.records.change(params.task_id, change)

    async def _find(self, id: str, principal: Principal | None) -> ShownTask:
        """Return a task that belongs to a principal. Raises InvalidParams."""
        task = await self._executor.records.show(id)
        if task is None or not _belongs_to(task, principal):
            raise InvalidParams(
                "Invalid params: $.params.taskId: there is no such task, or it has "
                "expired"
            )
        return task

    def _ending(self, revision: Revision) -> bytes:
        """Return the end of an encoded result: the fields that all results have."""
        ending = self._endings.get(revision.name)
        if ending is None:
            ending = b"," + encode(revision.result({}))[1:]
            self._endings[revision.name] = ending
        return ending

    # Tools

    def takes_calls_of(self, tool: ServerTool) -> bool:
        """Wrap the calls of tools with `task=`."""
        return tool.task is not None

    def list_tool(
        self, tool: ServerTool, listed: Tool, revision: Revision, is_declared: bool
    ) -> Tool | None:
        """Hide tools that require tasks in revisions without tasks."""
        if revision.opens and tool.task is not None and tool.task.is_required:
            return None
        return listed

    async def call_tool(
        self, request: Request, tool: ServerTool, proceed: Proceed
    ) -> bytes:
        """Create a task for a call, or let the request wait for its result."""
        if request.task is not None:  # this is the call within the task
            return await proceed()
        assert tool.task is not None
        if request.call.revision.opens or self.declared(request) is None:
            if tool.task.is_required:
                raise _cannot_call(request, tool)
            request.task = NeverATask()
            return await proceed()
        # Invalid arguments are reported at once, without a task.
        tool.decode(request.call.params.arguments)
        created: bytes | TaskRecord
        if tool.task.manual_start:
            created = await self._executor.call_manually(request, tool, proceed)
        else:
            created = await self._executor.create(request, tool)
        if isinstance(created, bytes):
            return created
        request.outcome = "task"
        self._executor.expect_poll(created.id, 0.0)
        result = {"resultType": "task", **created.summary()}
        return self.encode_result(request.call.revision, result)

    # Subscriptions

    async def listen(self, listening: Listening) -> Json:
        """Accept the ids of tasks that belong to the request's principal."""
        ids = _listened_ids(listening)
        principal = listening.request.principal
        accepted = []
        for id in ids:
            task = await self._executor.records.show(id)
            if task is not None and _belongs_to(task, principal):
                accepted.append(id)
        listening.wanted = {"taskIds": accepted}
        return listening.wanted

    async def follow(self, listening: Listening) -> None:
        """Notify a client of the current state of its tasks, and of each change."""
        ids: list[str] = listening.wanted["taskIds"]
        for id in ids:
            self._listeners.setdefault(id, set()).add(listening)
        try:
            for id in ids:
                task = await self._executor.records.show(id)
                if task is not None:
                    self._notify(listening, task)
            await trio.sleep_forever()
        finally:
            for id in ids:
                self._listeners[id].discard(listening)
                if not self._listeners[id]:
                    del self._listeners[id]

    def _notify_listeners(self, task: ShownTask) -> None:
        for listening in self._listeners.get(task.id, ()):
            self._notify(listening, task)

    def _notify(self, listening: Listening, task: ShownTask) -> None:
        listening.notify(NOTIFICATION, json.decode(task.shown, type=dict[str, Raw]))
        self._executor.note_seen(task)


def _belongs_to(task: ShownTask, principal: Principal | None) -> bool:
    """Return whether a task was created by this principal."""
    if task.principal is None or principal is None:
        return task.principal is None and principal is None
    return task.principal.name == principal.name


def _cannot_call(request: Request, tool: ServerTool) -> ProtocolError:
    """Return the error for a call of a tool that requires a task."""
    if request.call.revision.opens:
        return InvalidParams(f"Unknown tool: {tool.name}")
    return MissingClientCapability({"extensions": {IDENTIFIER: {}}})


def _listened_ids(listening: Listening) -> list[str]:
    """Return the ids in a filter. Raises InvalidParams."""
    place = "Invalid params: $.params.notifications.taskIds"
    ids = listening.wanted["taskIds"]
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise InvalidParams(f"{place}: expected array of strings")
    if len(ids) > MOST_LISTENED:
        raise InvalidParams(
            f"{place}: expected at most {MOST_LISTENED:,} ids, got {len(ids):,}"
        )
    return list(dict.fromkeys(ids))
