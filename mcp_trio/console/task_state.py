"""Find the states of tasks in messages.

They are sent to a page separately, because the text of long messages is truncated.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from ..trace.format import parsed


class TaskState(Struct, rename="camel", omit_defaults=True):
    """The part of a task that the page shows. Durations are in milliseconds."""

    task_id: str
    status: str
    status_message: str | UnsetType = UNSET
    poll_interval_ms: float | UnsetType = UNSET
    input_requests: dict[str, Raw] | UnsetType = UNSET


class _TaskMessage(Struct):
    """A result or a notification that contains the state of a task."""

    result: TaskState | UnsetType = UNSET
    params: TaskState | UnsetType = UNSET


def task_in(data: bytes) -> TaskState | None:
    """Return the state of a task in a message of the server, if it contains one."""
    # Most messages are not about tasks, and need no decoding.
    if b'"taskId"' not in data:
        return None
    message = parsed(data, _TaskMessage)
    if message is None:
        return None
    return message.result or message.params or None
