"""Some seconds of the soak (`python -m tests.soak`), which runs for ten minutes by itself."""

from pathlib import Path

import pytest

from tests.soak.load import compared, soaked

BEFORE = {
    "tasks": 10,
    "descriptors": 20,
    "memory": 40 * 2**20,
    "objects": 30_000,
    "mcp_sessions": 0,
}


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(),
    reason="needs /proc to see what a process holds",
)
async def test_clients_as_they_are_leave_nothing_behind() -> None:
    assert await soaked(10) == []


@pytest.mark.parametrize("name", BEFORE)
def test_what_is_left_behind_is_reported(name: str) -> None:
    assert compared(BEFORE, BEFORE) == []
    (told,) = compared(BEFORE, {**BEFORE, name: BEFORE[name] + 9 * 2**20})
    assert told.startswith(f"{name}: {BEFORE[name]:,} before")
