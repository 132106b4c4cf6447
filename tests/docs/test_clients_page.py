"""docs/clients.md shows the results of the last runs of the matrix of clients."""

from __future__ import annotations

import pytest

from tests.clients.matrix import results
from tests.clients.matrix.clients import CLIENTS, Client
from tests.clients.matrix.runs import Run, all_runs


def test_the_page_shows_the_results() -> None:
    expected = results.page(results.read())
    assert results.PAGE.read_text(encoding="utf-8") == expected


def test_all_clients_were_run_in_the_version_that_is_installed() -> None:
    found = results.read()
    tested = {name: result["package"] for name, result in found.items()}
    assert tested == {client.name: client.packages[0] for client in CLIENTS}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_each_feature_of_a_client_has_a_result(client: Client) -> None:
    runs = results.read()[client.name]["runs"]
    expected = {
        results.run_name(run): sorted(feature.name for feature in run.features)
        for run in all_runs()
        if run.client is client
    }
    assert {run: sorted(found) for run, found in runs.items()} == expected


@pytest.mark.parametrize("run", all_runs(), ids=lambda run: run.name)
def test_what_fails_has_a_reason(run: Run) -> None:
    found = results.read()[run.client.name]["runs"][results.run_name(run)]
    faults = {feature.name for feature in run.features if run.fault(feature)}
    failed = {name for name, (kind, *_) in found.items() if kind in ("fail", "fault")}
    assert failed == faults
