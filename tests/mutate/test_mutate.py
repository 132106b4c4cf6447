"""The mutation check: its changes to a module, and the survivors that it lists."""

import re
import subprocess
import sys

import pytest

from tests.mutate.mutants import mutants
from tests.support.paths import PROJECT

GUARD = """\
def take(size):
    if size > 3:
        raise ValueError("too large")
    return size
"""


def changes(source: str) -> list[tuple[int, str, str]]:
    return [(mutant.line, mutant.before, mutant.after) for mutant in mutants(source)]


def test_a_guard_is_removed_inverted_and_moved_by_one() -> None:
    assert changes(GUARD) == [
        (2, "size > 3", "(size <= 3)"),
        (2, "size > 3", "(size >= 3)"),
        (2, "size > 3", "False"),
        (3, 'raise ValueError("too large")', "pass"),
    ]


def test_a_refusal_that_returns_is_removed() -> None:
    assert (2, "name in known", "False") in changes(
        "def refuse(name, known):\n    if name in known:\n        return 404\n"
    )


def test_a_negation_is_dropped() -> None:
    assert (1, "not x", "bool(x)") in changes("y = not x\n")


def test_imports_for_type_checkers_are_not_changed() -> None:
    assert changes("if TYPE_CHECKING:\n    raise ImportError\n") == [
        (2, "raise ImportError", "pass")
    ]


@pytest.mark.parametrize("source", [GUARD, "x = (a ==\n     'ä')\ny = a < 'ö'\n"])
def test_every_mutant_is_python_and_keeps_its_lines(source: str) -> None:
    assert mutants(source)
    for mutant in mutants(source):
        compile(mutant.source, "mutant", "exec")
        assert mutant.source.count("\n") == source.count("\n")


@pytest.mark.slow
def test_guards_that_no_test_holds_are_listed() -> None:
    module = "mcp_trio/auth/principal.py"
    before = (PROJECT / module).read_bytes()
    test = "tests/auth/test_token_file.py::test_a_token_gives_the_principal_that_its_line_names"
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutate", module, "--tests", test],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    summary = re.search(r"^(\d+) mutants, (\d+) survived$", done.stdout, re.MULTILINE)
    assert summary is not None
    made, survived = map(int, summary.groups())
    assert 0 < survived < made
    assert f"  {module}:" in done.stdout
    assert (PROJECT / module).read_bytes() == before
