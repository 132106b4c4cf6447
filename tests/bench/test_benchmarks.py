"""The benchmarks of this repository: ratios, reports and the guard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import guard, report, sizing
from benchmarks.contenders import CONTENDERS, Roll
from benchmarks.ratios import Ratio
from benchmarks.registry import RATIOS, WORKLOADS
from benchmarks.report import amount
from benchmarks.workloads import Figure
from tests.support.paths import PROJECT

FIGURES = {
    "stdio_async": {
        "mcp_trio": Figure(200.0, [190.0, 210.0]),
        "typescript": Figure(100.0, [100.0]),
    }
}


def test_every_ratio_is_of_something_that_is_measured() -> None:
    names = {contender.name for contender in CONTENDERS}
    for ratio in RATIOS:
        for workload, one in filter(None, (ratio.of, ratio.to)):
            assert workload in WORKLOADS
            assert one in WORKLOADS[workload].contenders or one not in names
    assert all(set(workload.contenders) <= names for workload in WORKLOADS.values())


@pytest.mark.parametrize(
    ("bound", "at_most", "holds"),
    [(2.0, False, True), (2.1, False, False), (2.0, True, True), (1.9, True, False)],
)
def test_a_ratio_holds_or_not(bound: float, at_most: bool, holds: bool) -> None:
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


def test_a_ratio_that_was_not_measured_says_so() -> None:
    [ratio] = [
        one
        for one in RATIOS
        if (one.of[0], one.to_what) == ("stdio_async", "python_sdk")
    ]
    assert (ratio.value(FIGURES), ratio.holds(FIGURES), ratio.row(FIGURES)[2]) == (
        None,
        None,
        "not measured",
    )


def test_a_figure_without_a_bound_neither_passes_nor_fails() -> None:
    ratio = Ratio("x", ("stdio_async", "mcp_trio"), ("stdio_async", "typescript"), None)
    assert ratio.holds(FIGURES) is None
    assert ratio.row(FIGURES)[3:] == ("", "")


def test_figures_for_people() -> None:
    assert [
        amount(1234.5, "calls/s"),
        amount(0.0021, "s"),
        amount(2.5e7, "B"),
        amount(2500.0, "B"),
    ] == [
        "1,234 calls/s",
        "2.1 ms",
        "25.0 MB",
        "2.5 kB",
    ]


# Charts need matplotlib, which the other tests do without.
@pytest.mark.integration
def test_a_run_is_written_with_its_command_its_machine_and_what_was_left_out(
    tmp_path: Path,
) -> None:
    roll = Roll(left_out={"go": "no `go` on the PATH"})
    report.Document.of(FIGURES, roll, "python -m benchmarks").write(tmp_path)
    text = (tmp_path / "RESULTS.md").read_text()
    assert "`python -m benchmarks`, " in text
    assert "- left out: go: no `go` on the PATH" in text
    assert "| mcp_trio | 200 calls/s | 1 | 190 calls/s, 210 calls/s |" in text
    assert (
        json.loads((tmp_path / "results.json").read_text())["figures"]["stdio_async"][
            "typescript"
        ]["value"]
        == 100.0
    )
    assert (tmp_path / "chart-stdio.svg").read_text().count("200 calls/s") == 1


def test_the_guard_reports_what_has_become_more_expensive(
    capsys: pytest.CaptureFixture[str],
) -> None:
    costs = {"time": {"async": 5e-6}, "instructions": {"async": 60_000.0}}
    expected = {"time": {"async": 4.0}, "instructions": {"async": 4.0}}
    assert (
        guard.compare(
            costs,
            {"time": {"async": 6.3}, "instructions": {"async": 4.2}},
            expected,
            guard.MARGINS,
        )
        == 0
    )
    assert (
        guard.compare(
            costs,
            {"time": {"async": 6.3}, "instructions": {"async": 4.3}},
            expected,
            guard.MARGINS,
        )
        == 1
    )
    assert (
        guard.compare(
            costs,
            {"time": {"async": 6.5}, "instructions": {"async": 4.0}},
            expected,
            guard.MARGINS,
        )
        == 1
    )
    assert capsys.readouterr().out.count("TOO EXPENSIVE") == 2


@pytest.mark.slow
def test_a_workload_is_measured_and_reported(tmp_path: Path) -> None:
    """Of ours and a floor, for which nothing has to be built."""
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
    figures = json.loads((tmp_path / "results.json").read_text())["figures"][
        "websocket"
    ]
    assert all(
        figures[name]["value"] > 1000 for name in ("mcp_trio", "floor_websocket")
    )
    assert all(figures[name]["about"]["errors"] == 0 for name in figures)


def test_an_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.__main__ import main

    with pytest.raises(SystemExit):
        main(["--only", "nosuch"])
    assert "there is no workload nosuch, only stdio_async, " in capsys.readouterr().err


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
