"""The benchmarks of this repository: ratios, reports and the guard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import guard, report, sizing
from benchmarks.__main__ import measure
from benchmarks.contenders.builds import Builds, build_all
from benchmarks.contenders.table import CONTENDERS, Contender
from benchmarks.contenders.toolchains import Unavailable, installed_version
from benchmarks.ratios import Ratio
from benchmarks.registry import RATIOS, WORKLOADS
from benchmarks.report import amount
from benchmarks.servers import Servers
from benchmarks.shared import note_busy_cores
from benchmarks.workloads import QUICK, Figure, Pace, Workload
from mcp_trio.load_spec import UsageError
from tests.support.paths import PROJECT

FIGURES = {
    "stdio_async": {
        "mcp_trio": Figure(200.0, [190.0, 210.0]),
        "typescript": Figure(100.0, [100.0]),
    }
}


def test_every_ratio_refers_to_measured_figures() -> None:
    names = {contender.name for contender in CONTENDERS}
    for ratio in RATIOS:
        for workload, case in filter(None, (ratio.of, ratio.to)):
            assert workload in WORKLOADS
            assert case in WORKLOADS[workload].contenders or case not in names
    assert all(set(workload.contenders) <= names for workload in WORKLOADS.values())


@pytest.mark.parametrize(
    ("bound", "at_most", "holds"),
    [(2.0, False, True), (2.1, False, False), (2.0, True, True), (1.9, True, False)],
)
def test_a_ratio_is_compared_with_its_bound(
    bound: float, at_most: bool, holds: bool
) -> None:
    ratio = Ratio(
        "x",
        ("stdio_async", "mcp_trio"),
        ("stdio_async", "typescript"),
        bound,
        at_most,
        "typescript",
    )
    assert ratio.value(FIGURES) == 2.0
    assert ratio.holds(FIGURES) is holds
    assert ratio.row(FIGURES)[2:] == (
        "2",
        f"at {'most' if at_most else 'least'} {bound:g}",
        "yes" if holds else "NO",
    )


def test_a_ratio_without_figures_is_shown_as_not_measured() -> None:
    [ratio] = [
        ratio
        for ratio in RATIOS
        if ratio.of[0] == "stdio_async" and ratio.baseline == "python_sdk"
    ]
    assert ratio.value(FIGURES) is None
    assert ratio.holds(FIGURES) is None
    assert ratio.row(FIGURES).ratio == "not measured"


def test_a_ratio_without_a_bound_neither_passes_nor_fails() -> None:
    ratio = Ratio("x", ("stdio_async", "mcp_trio"), ("stdio_async", "typescript"), None)
    assert ratio.holds(FIGURES) is None
    assert ratio.row(FIGURES)[3:] == ("", "")


def test_figures_are_written_with_a_fitting_unit() -> None:
    assert amount(1234.5, "calls/s") == "1,234 calls/s"
    assert amount(0.0021, "s") == "2.1 ms"
    assert amount(2.5e7, "B") == "25.0 MB"
    assert amount(2500.0, "B") == "2.5 kB"


@dataclass(frozen=True)
class FakeWorkload:
    """Returns figures, or raises, without measuring anything."""

    name: str
    outcome: dict[str, Figure] | Exception
    unit = "calls/s"
    contenders = ()
    full_only = False

    @property
    def title(self) -> str:
        return f"the row {self.name}"

    def measure(
        self, servers: Servers, contenders: Sequence[Contender], pace: Pace
    ) -> dict[str, Figure]:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def test_a_workload_that_fails_leaves_the_figures_of_the_others() -> None:
    figure = {"mcp_trio": Figure(1.0, [1.0])}
    workloads: list[Workload] = [
        FakeWorkload("stuck", UsageError("the server has ended")),
        FakeWorkload("broken", ZeroDivisionError("division by zero")),
        FakeWorkload("wrk", Unavailable("no `wrk` on the PATH")),
        FakeWorkload("empty", {}),
        FakeWorkload("good", figure),
    ]
    builds = Builds()
    output = StringIO()
    console = Console(file=output, width=200)
    figures, failed = measure(workloads, QUICK, builds, console)
    assert figures == {"good": figure}
    assert failed == [
        "the row stuck: the server has ended",
        "the row broken: ZeroDivisionError('division by zero')",
    ]
    assert builds.left_out == {"the row wrk": "no `wrk` on the PATH"}
    assert "failed: the row stuck: the server has ended" in output.getvalue()
    assert "Traceback" in output.getvalue()


def test_a_contender_whose_package_is_missing_is_left_out() -> None:
    by_name = {contender.name: contender for contender in CONTENDERS}
    hypercorn = by_name["mcp_trio_hypercorn"]
    unusable = replace(hypercorn, packages=("no-such-package",))
    builds = build_all([by_name["mcp_trio"], unusable])
    assert list(builds.built) == ["mcp_trio"]
    assert builds.left_out == {hypercorn.name: "no-such-package is not installed"}


def test_a_package_that_is_missing_has_no_version() -> None:
    assert installed_version("no-such-package") is None
    assert installed_version("trio") is not None


# Charts need matplotlib, which the other tests do not use.
@pytest.mark.integration
def test_results_include_the_command_the_figures_and_what_was_left_out(
    tmp_path: Path,
) -> None:
    builds = Builds(left_out={"go": "no `go` on the PATH"})
    report.Document.of(FIGURES, builds, "python -m benchmarks").write(tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "`python -m benchmarks`, " in text
    assert "- left out: go: no `go` on the PATH" in text
    assert "| mcp_trio | 200 calls/s | 1 | 190 calls/s, 210 calls/s |" in text
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["figures"]["stdio_async"]["typescript"]["value"] == 100.0
    assert (tmp_path / "chart-stdio.svg").read_text().count("200 calls/s") == 1


@pytest.mark.parametrize(("server", "is_said"), [(1.49, True), (1.3, False)])
def test_the_report_says_if_a_load_on_the_same_machine_leaves_no_core(
    server: float, is_said: bool
) -> None:
    figure = Figure(1000.0, [1000.0], {"load_took": 0.41, "server_took": server})
    note_busy_cores(figure, cores=2)
    document = report.Document.of({"workers_16": {"2 workers": figure}}, Builds(), "-")
    output = StringIO()
    document.show(Console(file=output, width=200))
    assert "0.41" in output.getvalue()
    said = "the load and the server use all cores" in output.getvalue()
    assert said is is_said


@pytest.mark.parametrize(
    ("time", "instructions", "exit_code"),
    [(6.3, 4.2, 0), (6.3, 4.3, 1), (6.5, 4.0, 1)],
)
def test_the_guard_fails_if_a_cost_exceeds_its_bound(
    time: float,
    instructions: float,
    exit_code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    costs = {"time": {"async": 5e-6}, "instructions": {"async": 60_000.0}}
    expected = {"time": {"async": 4.0}, "instructions": {"async": 4.0}}
    multiples = {
        "time": {"async": time},
        "instructions": {"async": instructions},
    }
    assert guard.compare(costs, multiples, expected, guard.MARGINS) == exit_code
    assert capsys.readouterr().out.count("TOO EXPENSIVE") == exit_code


@pytest.mark.slow
@pytest.mark.integration
def test_a_workload_is_measured_and_reported(tmp_path: Path) -> None:
    """The workload compares mcp_trio with a floor, which are not built."""
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "--quick",
        "--only",
        "websocket",
        "--results",
        str(tmp_path),
    ]
    environment = {
        **os.environ,
        "MCP_TRIO_CACHE": str(tmp_path / "cache"),
        "PATH": "/nowhere",
    }
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "WebSocket, 50 at once" in done.stdout
    results = json.loads((tmp_path / "results.json").read_text())
    figures = results["figures"]["websocket"]
    assert set(figures) == {"mcp_trio", "floor_websocket"}
    for figure in figures.values():
        assert figure["value"] > 0
        assert figure["about"]["errors"] == 0


def test_an_unknown_workload_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.__main__ import main

    with pytest.raises(SystemExit):
        main(["--only", "nosuch"])
    error = capsys.readouterr().err
    assert "--only: expected a workload (stdio_async, " in error
    assert "got 'nosuch'" in error


def test_what_a_deployment_needs_is_the_sum_of_what_its_parts_cost() -> None:
    nothing = sizing.Reading(*[0.0] * 8)
    names = [sizing.CALL, sizing.OPENING, sizing.STREAM, sizing.GET, sizing.TASK]
    found = dict.fromkeys([*names, sizing.NOTHING], nothing)
    call = replace(nothing, server_seconds=0.0001, client_traffic=500.0)
    opening = replace(nothing, server_bytes=2048.0, redis_bytes=1024.0, operations=3.0)
    costs = sizing.Costs({**found, sizing.IN_SESSION: call, sizing.OPENING: opening})
    plan = sizing.Plan(
        sessions=2**20, calls=10_000, streamed=0.0, session_seconds=2**20, tasks=0
    )
    needed = {one.what: one.amount for one in sizing.needs(costs, plan)}
    assert needed["cores of servers"] == "2"
    assert needed["processes"] == "105"
    assert needed["memory of servers"] == "2 GiB"
    assert needed["operations of Redis"] == "3/s"
    assert needed["memory of Redis"] == "1.0 GiB"
    assert needed["network of servers"] == "40 Mbit/s"
