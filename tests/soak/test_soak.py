"""Some seconds of the soak test, which takes ten minutes as `python -m tests.soak`."""

from pathlib import Path

import pytest

from tests.soak.load import compare, run_soak

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
async def test_realistic_clients_leave_nothing_behind() -> None:
    assert await run_soak(10) == []


@pytest.mark.parametrize("name", BEFORE)
def test_growth_is_reported(name: str) -> None:
    assert compare(BEFORE, BEFORE) == []
    [problem] = compare(BEFORE, {**BEFORE, name: BEFORE[name] + 9 * 2**20})
    assert problem.startswith(f"{name}: {BEFORE[name]:,} before")
