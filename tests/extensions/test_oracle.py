"""The oracle checks messages of the tasks extension, and names their problems."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.oracle import Oracle

TASK = {
    "taskId": "x",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttlMs": 1000,
}
NEWEST = "2026-07-28"


def judged(method: str, result: dict[str, Any], revision: str = NEWEST) -> list[str]:
    oracle = Oracle(revision)
    oracle.sent_by_client({"jsonrpc": "2.0", "id": 1, "method": method})
    return oracle.check({"jsonrpc": "2.0", "id": 1, "result": result})


def test_a_new_task_is_right() -> None:
    assert judged("tools/call", {"resultType": "task", **TASK}) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ttlMs": "1000"}, "ttlMs"),
        ({"status": "busy"}, "status"),
        ({"requestState": "s"}, "requestState: not named"),
        ({"ttl": 1}, "ttl: not named"),
        ({"result": {}}, "result: not named"),
    ],
)
def test_a_new_task_is_wrong(change: dict[str, Any], problem: str) -> None:
    found = judged("tools/call", {"resultType": "task", **TASK, **change})
    assert any(problem in line for line in found), found


def test_older_revisions_have_no_tasks() -> None:
    assert judged("tools/call", {"resultType": "task", **TASK}, "2025-11-25")
    assert judged("tasks/get", TASK, "2025-11-25")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"status": "completed"}, "result"),
        ({"status": "failed"}, "error"),
        ({"status": "input_required"}, "inputRequests"),
        ({"status": "completed", "result": {"isError": True}}, "content"),
        ({"inputRequests": {}}, "inputRequests"),
    ],
)
def test_the_parts_of_a_polled_task_fit_its_status(
    change: dict[str, Any], problem: str
) -> None:
    complete = {"resultType": "complete", **TASK}
    assert judged("tasks/get", complete) == []
    found = judged("tasks/get", {**complete, **change})
    assert any(problem in line for line in found), found


@pytest.mark.parametrize("method", ["tasks/update", "tasks/cancel"])
def test_acknowledgments_are_complete(method: str) -> None:
    assert judged(method, {"resultType": "complete"}) == []
    assert judged(method, {"resultType": "task"})
    assert judged(method, {})


def test_notifications_of_tasks_are_judged() -> None:
    oracle = Oracle(NEWEST)
    notification = {"jsonrpc": "2.0", "method": "notifications/tasks", "params": TASK}
    assert oracle.check(notification) == []
    assert oracle.check({**notification, "params": {**TASK, "ttlMs": "x"}})
    assert Oracle("2025-11-25").check(notification)


def test_extensions_in_capabilities_are_objects() -> None:
    result = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"extensions": {"com.example/clock": {}}},
        "serverInfo": {"name": "x", "version": "1"},
    }
    assert judged("initialize", result, "2025-06-18") == []
    result["capabilities"] = {"extensions": {"com.example/clock": True}}
    assert judged("initialize", result, "2025-06-18")
