"""Follow a task of the server until it ends: poll it, and answer its questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from ..protocol.types import Json
from .errors import RemoteError, TaskCancelled

# Seconds between polls if the server suggests no interval, and the shortest interval.
DEFAULT_INTERVAL = 1.0
MIN_INTERVAL = 0.05
# Seconds that a cancelled client waits for the reply to `tasks/cancel`.
CANCEL_TIMEOUT = 2.0


class Requests(Protocol):
    """The part of a client that is used here."""

    async def request(self, method: str, params: Json) -> Json:
        """Send a request, and return its result."""

    async def answer_question(self, method: str, params: Json) -> Json:
        """Return the answer to a request from the server."""


async def follow(
    client: Requests, task: Json, on_task: Callable[[Json], None] | None
) -> Json:
    """Wait for a task and return its result.

    If this is cancelled or interrupted, or cannot answer a question, the task is
    cancelled. Raises RemoteError if the task fails, and TaskCancelled if another client
    or the server cancels it.
    """
    id = task["taskId"]
    try:
        return await _follow(client, id, task, on_task)
    except (trio.Cancelled, KeyboardInterrupt):
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + CANCEL_TIMEOUT
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
        # The server may repeat a question after it was answered.
        questions = task.get("inputRequests", {})
        fresh = {key: questions[key] for key in questions if key not in answered}
        if fresh:
            answered |= fresh.keys()
            await _answer(client, id, fresh)
        else:
            await trio.sleep(_interval(task))
        task = await client.request("tasks/get", {"taskId": id})


async def _answer(client: Requests, id: str, questions: Json) -> None:
    """Answer questions, and send each answer as soon as it is known.

    The task cannot continue without an answer, so it is cancelled if there is none.
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
    """Return the seconds until the next poll, as suggested by the server."""
    suggested = task.get("pollIntervalMs")
    if not isinstance(suggested, int | float):
        return DEFAULT_INTERVAL
    return max(suggested / 1000, MIN_INTERVAL)
