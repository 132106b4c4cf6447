"""All workloads and their ratios.

A module of workloads has two lists: `WORKLOADS`, and `RATIOS` between their figures. To
add a module, import it here and append it to `MODULES`. The report has the same order.
"""

from __future__ import annotations

from typing import Protocol

from . import calls, compiled, http_calls, scale, shared, starts, tasks
from .ratios import Ratio
from .workloads import Workload


class Module(Protocol):
    """A module of workloads."""

    WORKLOADS: list[Workload]
    RATIOS: list[Ratio]


MODULES: tuple[Module, ...] = (
    calls,
    http_calls,
    starts,
    scale,
    tasks,
    shared,
    compiled,
)

# Name -> workload.
WORKLOADS = {
    workload.name: workload for module in MODULES for workload in module.WORKLOADS
}
RATIOS = [ratio for module in MODULES for ratio in module.RATIOS]
