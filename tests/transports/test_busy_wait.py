"""Whether a reader polls for its clients before it sleeps."""

import os

import pytest

from mcp_trio.transports import busy_wait
from mcp_trio.transports.busy_wait import BusyWait
from mcp_trio.workers.member import have_spare_core


@pytest.fixture(autouse=True)
def everybody_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_wait, "DURATION", 1000)


def wait_once(wait: BusyWait) -> None:
    """Wait for input, which arrives."""
    wait.begin()
    wait.end()


def test_a_reader_polls_after_a_quick_client() -> None:
    wait = BusyWait()
    wait.begin()
    assert not wait.should_poll()
    wait.end()
    wait.begin()
    assert wait.should_poll()


def test_a_reader_that_may_not_poll_sleeps_after_a_quick_client() -> None:
    wait = BusyWait(is_allowed=False)
    wait_once(wait)
    wait.begin()
    assert not wait.should_poll()


def test_workers_poll_only_if_they_leave_a_core_to_others() -> None:
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    assert have_spare_core(cores - 1)
    assert not have_spare_core(cores)
    assert not have_spare_core(cores + 1)
