"""A short form of the chaos test (`python -m tests.chaos`)."""

import sys

import pytest

from tests.chaos.command import survive
from tests.chaos.faults import FAULTS
from tests.chaos.load import Figures
from tests.chaos.measures import ALLOWED, MORE_MEMORY, Held
from tests.chaos.privileges import Clock, missing_programs
from tests.chaos.report import Outcome, heading, row

# A client that vanishes is noticed after a minute, which is too long for this.
SHORT = [fault for fault in FAULTS if fault.name != "clients vanish"]


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux and its prlimit")
@pytest.mark.skipif(bool(missing_programs()), reason="needs prlimit and setpriv")
@pytest.mark.skipif(not Clock.is_available(), reason="needs libfaketime")
async def test_a_server_survives_every_fault(tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("chaos")
    folder.chmod(0o755)
    outcomes = await survive(SHORT, 1.0, folder)
    problems = {one.fault: one.problems for one in outcomes if one.problems}
    assert problems == {}
    assert len(outcomes) == len(SHORT)


HELD = Held(50 * 2**20, 20, 30, 4, 2, 3, 0, 4096)


@pytest.mark.parametrize(
    "name", ["memory", "descriptors", "tasks", "threads", "sessions", "requests"]
)
def test_what_is_not_back_is_reported(name: str) -> None:
    fields = {key: getattr(HELD, key) for key in HELD.__struct_fields__}
    allowed = {**ALLOWED, "memory": MORE_MEMORY}
    more = Held(**{**fields, name: fields[name] + allowed.get(name, 0) + 1})
    assert HELD.more_than(HELD) == []
    (problem,) = more.more_than(HELD)
    assert problem.startswith(f"{name}: {fields[name]:,} before")


def test_the_table_shows_the_figures_of_a_fault() -> None:
    figures = Figures(calls=120, slowest=0.25, refused=3)
    line = row(Outcome("a client floods", figures, HELD, HELD, ["it hung"]))
    assert line.split("  ")[0] == "a client floods"
    assert "250 ms" in line
    assert "50 > 50" in line
    assert line.endswith("FAILED")
    assert len(line) == len(heading())
