"""Collects the outcomes when the matrix is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.matrix import results
from tests.clients.matrix.results import Cell


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update",
        action="store_true",
        help="replace the results of these runs in results.json and docs/clients.md",
    )
    parser.addoption(
        "--results", type=Path, help="write the results of this run into a JSON file"
    )


def pytest_configure(config: pytest.Config) -> None:
    # With pytest-xdist, the process that distributes the tests gets all reports.
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        config.pluginmanager.register(Collector(config), "matrix-results")


class Collector:
    """Writes the results at the end of the session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cells: list[Cell] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._cells += [
                Cell(*value) for name, value in report.user_properties if name == "cell"
            ]

    def pytest_sessionfinish(self) -> None:
        found = results.results_of(self._cells)
        path = self._config.getoption("--results")
        if path is not None:
            results.write(found, path)
        if self._config.getoption("--update"):
            known = results.read() if results.RESULTS.exists() else {}
            results.merge(known, found)
            results.write(known, results.RESULTS)
            results.PAGE.write_text(results.page(known), encoding="utf-8")
