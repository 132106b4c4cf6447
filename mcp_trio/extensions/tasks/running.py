"""A tool that runs as a task in this process."""

from typing import Any, TypeVar

import trio
from msgspec import Raw, json

from ...server.client_requests import Question, check_capability
from ...server.exceptions import AskFailed
from ...server.request import Request
from ...stores.base import QueuedJob
from .record import TaskRecord
from .records import TaskRecords
from .slots import Slot

T = TypeVar("T")


class RunningTask:
    """A task while this process runs it. The tool's context uses it.

    `scope` surrounds the tool. `reason` says why this process has cancelled it, which
    is None if the client has.
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
        self.job = job
        self.scope = scope
        self.slot = slot
        self.reason: str | None = None
        self._request = request
        self._records = records
        self._changed = trio.Event()
        scope.deadline = trio.current_time() + record.seconds_left()

    # Changes

    def stop(self, reason: str) -> None:
        """Cancel the tool, and let the task fail for this reason."""
        self.reason = reason
        self.scope.cancel()

    def note_change(self, record: TaskRecord | None) -> None:
        """Take note of a change in the store, which any process may have made."""
        self._changed.set()
        self._changed = trio.Event()
        if record is None or record.is_over:
            self.scope.cancel()

    # For the context

    async def start(self) -> None:
        """Do nothing: this is a task already."""

    async def report(self, message: str) -> None:
        """Say in the status what the task is doing."""

        def change(record: TaskRecord) -> bool:
            record.message = message
            return True

        await self._records.change(self.id, change, self.job.lease)

    async def all(self, *questions: Question[Any]) -> list[Any]:
        """Ask the client, and wait until it has answered all questions.

        Others may run meanwhile in place of this task. Raises MissingClientCapability
        and AskFailed.
        """
        for question in questions:
            check_capability(question, self._request)
        keys = await self._issue(questions)
        self.slot.release()
        answers = await self._wait_for_answers(keys)
        await self.slot.take()
        return [
            _read(question, answers[key])
            for question, key in zip(questions, keys, strict=True)
        ]

    async def _issue(self, questions: tuple[Question[Any], ...]) -> list[str]:
        """Add the questions to the task, and return their keys."""
        revision = self._request.call.revision
        requests = [
            revision.input_request(question.method, question.params(revision))
            for question in questions
        ]
        keys: list[str] = []

        def change(record: TaskRecord) -> bool:
            keys.clear()
            for question, request in zip(questions, requests, strict=True):
                key = _unused_key(question, record.asked)
                keys.append(key)
                record.asked.append(key)
                record.questions[key] = Raw(json.encode(request))
            record.status = "input_required"
            return True

        record = await self._records.change(self.id, change, self.job.lease)
        if record is None or record.is_over:
            await trio.sleep_forever()  # until this task is cancelled, in a moment
        return keys

    async def _wait_for_answers(self, keys: list[str]) -> dict[str, Raw]:
        while True:
            changed = self._changed
            record = await self._records.read(self.id)
            if record is None or record.is_over:
                await trio.sleep_forever()  # until this task is cancelled, in a moment
            elif record.questions.keys().isdisjoint(keys):
                break
            await changed.wait()
        answers: dict[str, Raw] = {}

        def take(record: TaskRecord) -> bool:
            for key in keys:
                if key in record.answers:
                    answers[key] = record.answers.pop(key)
            return True

        await self._records.change(self.id, take, self.job.lease)
        return answers


def _unused_key(question: Question[Any], asked: list[str]) -> str:
    """Return a key for a question that this task has never used."""
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
