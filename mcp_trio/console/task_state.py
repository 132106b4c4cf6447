"""The states of tasks, as messages show them.

A page is told them apart from the messages, whose text it may not get whole.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from ..trace.format import parsed


class TaskState(Struct, rename="camel", omit_defaults=True):
    """What the page shows of a task. Durations are in milliseconds."""

    task_id: str
    status: str
    status_message: str | UnsetType = UNSET
    poll_interval_ms: float | UnsetType = UNSET
    input_requests: dict[str, Raw] | UnsetType = UNSET


class _TaskMessage(Struct):
    """A result or a notification that shows a task."""

    result: TaskState | UnsetType = UNSET
    params: TaskState | UnsetType = UNSET


def task_in(data: bytes) -> TaskState | None:
    """Return the state of a task that a message of the server shows."""
    # Most messages are not about tasks; they need no decoding.
    if b'"taskId"' not in data:
        return None
    message = parsed(data, _TaskMessage)
    if message is None:
        return None
    return message.result or message.params or None
