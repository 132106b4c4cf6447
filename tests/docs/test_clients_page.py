"""docs/clients.md shows the results of the last runs of the matrix of clients."""

from __future__ import annotations

import pytest

from tests.clients.matrix import results
from tests.clients.matrix.clients import CLIENTS
from tests.clients.matrix.runs import Run, all_runs

RESULTS = results.read()
TESTED = [
    run
    for run in all_runs()
    if results.run_name(run) in RESULTS.get(run.client.name, {}).get("runs", {})
]


def test_the_page_shows_the_results() -> None:
    assert results.PAGE.read_text(encoding="utf-8") == results.page(RESULTS)


def test_the_results_are_of_the_versions_that_are_installed() -> None:
    current = {client.name: client.packages[0] for client in CLIENTS}
    tested = {name: result["package"] for name, result in RESULTS.items()}
    assert tested.items() <= current.items()


def test_there_are_results_of_twenty_clients_in_four_languages() -> None:
    tested = {run.client.name: run.client.language for run in TESTED}
    assert len(tested) >= 20
    assert len(set(tested.values())) >= 4


@pytest.mark.parametrize("run", TESTED, ids=lambda run: run.name)
def test_each_feature_has_a_result(run: Run) -> None:
    found = RESULTS[run.client.name]["runs"][results.run_name(run)]
    assert sorted(found) == sorted(feature.name for feature in run.features)


@pytest.mark.parametrize("run", TESTED, ids=lambda run: run.name)
def test_what_fails_has_a_reason(run: Run) -> None:
    found = RESULTS[run.client.name]["runs"][results.run_name(run)]
    faults = {feature.name for feature in run.features if run.fault(feature)}
    failed = {name for name, (kind, *_) in found.items() if kind in ("fail", "fault")}
    assert failed <= faults
