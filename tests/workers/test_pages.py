"""Adding up the metrics of several processes."""

from __future__ import annotations

from mcp_trio.workers.pages import add_up

FIRST = b"""\
# HELP calls_total Calls, by tool.
# TYPE calls_total counter
calls_total{tool="a b"} 2
calls_total{tool="c"} 1
# HELP waiting Calls that wait.
# TYPE waiting gauge
waiting 3
# HELP seconds Seconds.
# TYPE seconds histogram
seconds_sum 0.5
seconds_count 3
# HELP mcp_store_available Whether the store can be reached.
# TYPE mcp_store_available gauge
mcp_store_available 1
"""
SECOND = b"""\
# HELP calls_total Calls, by tool.
# TYPE calls_total counter
calls_total{tool="a b"} 5
calls_total{tool="d"} 7
# HELP waiting Calls that wait.
# TYPE waiting gauge
waiting 4
# HELP seconds Seconds.
# TYPE seconds histogram
seconds_sum 0.25
seconds_count 1
# HELP mcp_store_available Whether the store can be reached.
# TYPE mcp_store_available gauge
mcp_store_available 0
"""


def samples(page: bytes) -> dict[str, str]:
    lines = [line for line in page.decode().splitlines() if not line.startswith("#")]
    return dict(line.rsplit(" ", 1) for line in lines)


def test_counters_gauges_and_histograms_are_added_up() -> None:
    assert samples(add_up([FIRST, SECOND])) == {
        'calls_total{tool="a b"}': "7",
        'calls_total{tool="c"}': "1",
        'calls_total{tool="d"}': "7",
        "waiting": "7",
        "seconds_sum": "0.75",
        "seconds_count": "4",
        "mcp_store_available": "0",
    }


def test_each_metric_is_described_once() -> None:
    page = add_up([FIRST, SECOND, FIRST]).decode()
    assert page.count("# TYPE calls_total counter\n") == 1
    assert page.count("# HELP waiting Calls that wait.\n") == 1


def test_a_process_that_has_ended_leaves_its_counters_but_not_its_gauges() -> None:
    found = samples(add_up([FIRST], ended=SECOND))
    assert found['calls_total{tool="d"}'] == "7"
    assert found["waiting"] == "3"
    assert found["mcp_store_available"] == "1"


def test_one_page_is_unchanged() -> None:
    assert add_up([FIRST]) == FIRST
