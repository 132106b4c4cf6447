"""A pytest plugin that tells coverage which test is running."""

from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

# Every test that ran, one on each line, in the folder of the copy. Coverage has only
# those that reach the module in their own process.
TESTS_RUN = Path("tests_run.txt")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the lines that are run under the id of the test."""
    measured = coverage.Coverage.current()
    assert measured is not None
    measured.switch_context(item.nodeid)
    with TESTS_RUN.open("a", encoding="utf-8") as file:
        file.write(f"{item.nodeid}\n")
    return (yield)
