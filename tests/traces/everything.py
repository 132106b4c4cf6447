"""All scenarios, in the order of playing."""

from __future__ import annotations

from . import (
    apps,
    asking,
    behaviour,
    hostile,
    http_behaviour,
    http_hostile,
    methods,
    seeds,
    skills,
    tasks,
)
from .playing import Scenario


def scenarios() -> list[Scenario]:
    """Every scenario; no two make the same file."""
    found = [
        scenario
        for module in (
            methods,
            behaviour,
            asking,
            seeds,
            hostile,
            http_behaviour,
            http_hostile,
            tasks,
            apps,
            skills,
        )
        for scenario in module.SCENARIOS
    ]
    paths = [scenario.path for scenario in found]
    twice = {path for path in paths if paths.count(path) > 1}
    assert not twice, f"two scenarios make the same file: {twice}"
    return found
