"""Thousands of malformed inputs for each parser; `tests.fuzz` has a million."""

from pathlib import Path

import pytest

from tests.fuzz.mutating import Mutator, messages
from tests.fuzz.parsers import PARSERS
from tests.fuzz.running import Failure, check_growth, run_parser
from tests.fuzz.servers import SERVERS, stdio
from tests.support.checked import OPENING

SEED = 20241007
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="needs /proc to measure memory"
)


@needs_proc
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_withstands_any_input(name: str) -> None:
    run_parser(name, PARSERS[name][0] // 100, SEED, print)


@pytest.mark.load
@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_withstands_any_input(name: str) -> None:
    assert SERVERS[name][1](3_000, SEED, print) == 3_000


@pytest.mark.load
@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("revision", [OPENING[0], OPENING[-1]])
def test_a_session_withstands_a_hundred_thousand_messages(revision: str) -> None:
    assert stdio(100_000, SEED, print, revision) == 100_000


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, other = (Mutator(5, messages(), is_json=True) for _ in range(2))
    assert [one.make() for _ in range(50)] == [other.make() for _ in range(50)]


def test_growth_is_detected() -> None:
    check_growth("memory", [100] * 50, 0)
    with pytest.raises(Failure, match="memory grows: 115 at first, 149 at the end"):
        check_growth("memory", list(range(100, 150)), 0)
