"""Tasks: the extension's methods, and its part in calls and lists of tools."""

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
# Tasks that one subscription may listen to.
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
        # Only if it is not the server's.
        self._own_store = store
        # By revision, what follows the fields of a task in a result.
        self._endings: dict[str, bytes] = {}
        # The subscriptions to each task.
        self._listeners: dict[str, set[Listening]] = {}

    def bind(self, server: Server[Any]) -> ExtensionHooks:
        """Belong to a server."""
        hooks = super().bind(server)
        self._executor = Executor(
            server,
            self._own_store or MemoryStore(),
            self._ledger,
            self._durations,
            slots=self.slots,
            on_change=self._tell_listeners,
            listened=self._listeners.keys(),
        )
        return hooks

    def use_store(self, store: Store) -> None:
        """Keep the tasks in the server's store, unless this has a store of its own."""
        if self._own_store is None:
            self._executor.use_store(store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run tasks for as long as the server does."""
        async with AsyncExitStack() as stack:
            if self._own_store is not None:
                await stack.enter_async_context(self._own_store.running())
            await stack.enter_async_context(self._executor.running())
            yield

    async def settle(self, seconds: float) -> None:
        """Let tasks end before the server stops; those that do not, fail."""
        await self._executor.settle(seconds)

    def gauges(self) -> list[Gauge]:
        """Return how many tasks there are in this process, and how they ended."""
        states = self._executor.count_by_state()
        now = {labels(state=state): count for state, count in states.items()}
        ended = {
            labels(outcome=outcome): count
            for outcome, count in sorted(self._executor.ended.items())
        }
        return [
            Gauge("mcp_tasks", "Tasks that are not over.", now),
            Gauge("mcp_tasks_total", "Tasks that are over.", ended, "counter"),
        ]

    # Methods

    @method("tasks/get", named_by="taskId")
    async def get(self, params: TaskParams, ctx: ExtensionContext) -> bytes:
        """Return a task as it is now."""
        task = await self._find(params.task_id, ctx.principal)
        self._executor.note_seen(task)
        self._executor.expect_poll(task.id, task.poll_interval)
        # The result in it was held to the limits already.
        return bytes(task.shown)[:-1] + self._ending(ctx.protocol_revision)

    @method("tasks/update", named_by="taskId")
    async def update(self, params: UpdateParams, ctx: ExtensionContext) -> None:
        """Take answers to open questions, and ignore all others."""
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
        """Cancel a task, unless it is over."""
        await self._find(params.task_id, ctx.principal)

        def change(record: TaskRecord) -> bool:
            record.status = "cancelled"
            record.questions = {}
            record.answers = {}
            return True

        await self._executor.records.change(params.task_id, change)

    async def _find(self, id: str, principal: Principal | None) -> ShownTask:
        """Return a task of this principal. Raises InvalidParams."""
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
        """Take part in calls of tools with `task=`."""
        return tool.task is not None

    def list_tool(
        self, tool: ServerTool, listed: Tool, revision: Revision, is_declared: bool
    ) -> Tool | None:
        """Leave out tools that need a task in revisions that have none."""
        if revision.opens and tool.task is not None and tool.task.is_required:
            return None
        return listed

    async def call_tool(
        self, request: Request, tool: ServerTool, proceed: Proceed
    ) -> bytes:
        """Create a task for a call, or let the request wait for its result."""
        if request.task is not None:  # this is the task, which calls its tool
            return await proceed()
        assert tool.task is not None
        if request.call.revision.opens or self.declared(request) is None:
            if tool.task.is_required:
                raise _cannot_call(request, tool)
            request.task = NeverATask()
            return await proceed()
        # Nobody needs a task to learn that the arguments are wrong.
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
        """Accept those of the ids that are tasks of this principal."""
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
        """Tell a client of its tasks as they are, and of each change."""
        ids: list[str] = listening.wanted["taskIds"]
        for id in ids:
            self._listeners.setdefault(id, set()).add(listening)
        try:
            for id in ids:
                task = await self._executor.records.show(id)
                if task is not None:
                    self._tell(listening, task)
            await trio.sleep_forever()
        finally:
            for id in ids:
                self._listeners[id].discard(listening)
                if not self._listeners[id]:
                    del self._listeners[id]

    def _tell_listeners(self, task: ShownTask) -> None:
        for listening in self._listeners.get(task.id, ()):
            self._tell(listening, task)

    def _tell(self, listening: Listening, task: ShownTask) -> None:
        listening.notify(NOTIFICATION, json.decode(task.shown, type=dict[str, Raw]))
        self._executor.note_seen(task)


def _belongs_to(task: ShownTask, principal: Principal | None) -> bool:
    """Return whether a task was created by this principal."""
    if task.principal is None or principal is None:
        return task.principal is None and principal is None
    return task.principal.name == principal.name


def _cannot_call(request: Request, tool: ServerTool) -> ProtocolError:
    """Return the refusal of a call of a tool that needs a task."""
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
        raise InvalidParams(f"{place}: at most {MOST_LISTENED:,} are taken")
    return list(dict.fromkeys(ids))
