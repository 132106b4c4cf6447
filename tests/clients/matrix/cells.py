"""A test for each cell of the matrix: a feature of a client on a transport.

`tox -e clients` runs them. Other test runs do not collect this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.matrix.features import Feature
from tests.clients.matrix.results import run_name
from tests.clients.matrix.runs import Run, all_runs, outcomes_of

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def cells() -> Iterator[Any]:
    for run in all_runs():
        # The client is run once, so its cells are tested by the same process.
        marks = [pytest.mark.xdist_group(run.name)]
        if run.is_core:
            marks.append(pytest.mark.core)
        for feature in run.features:
            name = f"{run.name}/{feature.name}"
            yield pytest.param(run, feature, id=name, marks=marks)


@pytest.mark.parametrize(("run", "feature"), list(cells()))
def test_a_client_uses_a_feature(
    run: Run, feature: Feature, record_property: Any
) -> None:
    outcome = outcomes_of(run)[feature.name]
    if outcome.kind == "skip":
        pytest.skip(outcome.reason)
    fault = run.fault(feature)
    kind = outcome.kind
    reason = outcome.reason
    if fault and (kind == "fail" or not run.fails_always(feature)):
        kind = "fault"
        reason = fault
    cell = (run.client.name, run_name(run), feature.name, kind, reason)
    record_property("cell", cell)
    if fault:
        assert kind == "fault", "it works now: remove it from the client's faults"
    assert kind in ("pass", "fault", "unsupported"), reason
