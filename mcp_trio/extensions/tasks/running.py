"""A task that runs in this process."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import trio
from msgspec import Raw, json

from ...protocol.sanitize import without_surrogates
from ...server.client_requests import Question, check_capability
from ...server.exceptions import AskFailed
from ...server.request import Request
from ...stores.base import QueuedJob, StoreUnavailable
from ...stores.retry import until_available
from .record import TaskRecord
from .records import TaskRecords
from .slots import Slot

log = logging.getLogger("mcp_trio")

T = TypeVar("T")


class RunningTask:
    """A task while this process runs it. The tool's context uses it.

    `scope` is the cancel scope of the tool. `reason` says why this process has
    cancelled it; it is None if the client has.
    """

    has_started = True

    def __init__(
        self,
        record: TaskRecord,
        job: QueuedJob,
        request: Request,
        scope: trio.CancelScope,
        records: TaskRecords,
        slot: Slot,
    ) -> None:
        self.id = record.id
        self.may_be_given_back = record.retry
        self.is_given_back = False
        # The keys of the questions so far, in this process.
        self._asked: set[str] = set()
        self.job = job
        self.scope = scope
        self.slot = slot
        self.reason: str | None = None
        self._request = request
        self._records = records
        self._changed = trio.Event()
        # How many calls of `all` wait for answers.
        self._waiting = 0
        scope.deadline = trio.current_time() + record.seconds_left()

    @property
    def is_asking(self) -> bool:
        """Whether the task waits for answers from its client."""
        return self._waiting > 0

    @property
    def has_expired(self) -> bool:
        """Whether the task's time to live has passed."""
        return trio.current_time() >= self.scope.deadline

    # Changes

    def stop(self, reason: str) -> None:
        """Cancel the tool, so that the task fails with this reason."""
        self.reason = reason
        self.scope.cancel()

    def note_change(self, record: TaskRecord | None) -> None:
        """Handle a change in the store, which any process may have made."""
        self._changed.set()
        self._changed = trio.Event()
        if record is None or record.is_over:
            self.scope.cancel()

    # For the context

    async def start(self) -> None:
        """Do nothing: this is a task already."""

    async def report(self, message: str) -> None:
        """Set the status message."""
        message = without_surrogates(message)

        def change(record: TaskRecord) -> bool:
            record.message = message
            return True

        try:
            await self._records.change(self.id, change, self.job.lease)
        except StoreUnavailable as problem:
            log.debug(
                "task %s: cannot store the status message: %s", self.id, problem.reason
            )

    async def all(self, *questions: Question[Any]) -> list[Any]:
        """Ask the client, and wait for all answers.

        While it waits, another task may use its slot. Raises MissingClientCapability or
        AskFailed.
        """
        for question in questions:
            check_capability(question, self._request)
        keys = await self._issue(questions)
        self.slot.release()
        self._waiting += 1
        try:
            answers = await self._wait_for_answers(keys)
        finally:
            self._waiting -= 1
        await self.slot.acquire()
        return [
            _read(question, answers[key])
            for question, key in zip(questions, keys, strict=True)
        ]

    async def _issue(self, questions: tuple[Question[Any], ...]) -> list[str]:
        """Add the questions to the task, and return their keys.

        Questions that the task has already asked, in a process that was lost, keep
        their answers.
        """
        revision = self._request.call.revision
        requests: dict[str, Raw] = {}
        for question in questions:
            key = _unused_key(question, self._asked)
            self._asked.add(key)
            params = question.params(revision)
            request = revision.input_request(question.method, params)
            requests[key] = Raw(json.encode(request))

        def change(record: TaskRecord) -> bool:
            new = requests.keys() - record.asked
            for key in requests:
                if key in new:
                    record.asked.append(key)
                    record.questions[key] = requests[key]
            if new:
                record.status = "input_required"
            return bool(new)

        record = await self._change(change)
        if record is None or record.is_over:
            await trio.sleep_forever()  # until this task is cancelled, in a moment
        return list(requests)

    async def _wait_for_answers(self, keys: list[str]) -> dict[str, Raw]:
        while True:
            changed = self._changed
            record = await until_available(partial(self._records.read, self.id))
            if record is None or record.is_over:
                await trio.sleep_forever()  # until this task is cancelled, in a moment
            elif record.questions.keys().isdisjoint(keys):
                break
            await changed.wait()
        answers: dict[str, Raw] = {}

        def take(record: TaskRecord) -> bool:
            found = record.answers.keys() & set(keys)
            for key in found:
                answers[key] = record.answers[key]
                if not record.retry:
                    del record.answers[key]
            return bool(found) and not record.retry

        await self._change(take)
        return answers

    async def _change(self, change: Callable[[TaskRecord], bool]) -> TaskRecord | None:
        return await until_available(
            lambda: self._records.change(self.id, change, self.job.lease)
        )


def _unused_key(question: Question[Any], asked: set[str]) -> str:
    """Return an unused key for a question."""
    name = question.key or question.method.partition("/")[0]
    key = name
    number = 2
    while key in asked:
        key = f"{name}-{number}"
        number += 1
    return key


def _read(question: Question[T], answer: Raw) -> T:
    try:
        return question.read(answer)
    except (ValueError, RecursionError) as problem:
        raise AskFailed(
            f"the client's answer to {question.method} is unusable: {problem}"
        ) from None
