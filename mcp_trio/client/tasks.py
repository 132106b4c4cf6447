"""Follows a task of the server until it ends: polls it, and answers its questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from ..protocol.types import Json
from .errors import RemoteError, TaskCancelled

# Seconds between two polls if the server suggests none, and the fewest in any case.
DEFAULT_INTERVAL = 1.0
LEAST_INTERVAL = 0.05
# Seconds that a client which gives up waits for the server to take note of it.
TO_CANCEL = 2.0


class Requests(Protocol):
    """What is needed of a client."""

    async def request(self, method: str, params: Json) -> Json:
        """Send a request, and return its result."""

    async def answer_question(self, method: str, params: Json) -> Json:
        """Return the answer to a question of the server's."""


async def follow(
    client: Requests, task: Json, on_task: Callable[[Json], None] | None
) -> Json:
    """Return the result of a task once it is completed.

    If this is cancelled or interrupted, or cannot answer a question, the task is
    cancelled. Raises RemoteError if the task
    fails, and TaskCancelled if somebody else cancels it.
    """
    id = task["taskId"]
    try:
        return await _follow(client, id, task, on_task)
    except (trio.Cancelled, KeyboardInterrupt):
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + TO_CANCEL
            await client.request("tasks/cancel", {"taskId": id})
        raise


async def _follow(
    client: Requests, id: str, task: Json, on_task: Callable[[Json], None] | None
) -> Json:
    answered: set[str] = set()
    while True:
        if on_task is not None:
            on_task(task)
        status = task["status"]
        if status == "completed":
            result: Json = task["result"]
            return result
        if status == "failed":
            raise RemoteError(task["error"])
        if status == "cancelled":
            raise TaskCancelled(id)
        # The server may show a question again after it was answered.
        questions = task.get("inputRequests", {})
        fresh = {key: questions[key] for key in questions if key not in answered}
        if fresh:
            answered |= fresh.keys()
            await _answer(client, id, fresh)
        else:
            await trio.sleep(_interval(task))
        task = await client.request("tasks/get", {"taskId": id})


async def _answer(client: Requests, id: str, questions: Json) -> None:
    """Answer questions, each as soon as its answer is there.

    If there is no answer to one, the task cannot go on, so it is cancelled.
    """
    for key, question in questions.items():
        method = question["method"]
        try:
            answer = await client.answer_question(method, question.get("params", {}))
        except Exception:
            await client.request("tasks/cancel", {"taskId": id})
            raise
        params = {"taskId": id, "inputResponses": {key: answer}}
        await client.request("tasks/update", params)


def _interval(task: Json) -> float:
    """Return the seconds until the next poll, as the server suggests."""
    suggested = task.get("pollIntervalMs")
    if not isinstance(suggested, int | float):
        return DEFAULT_INTERVAL
    return max(suggested / 1000, LEAST_INTERVAL)
