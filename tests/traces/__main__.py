"""Writes the golden traces: `python -m tests.traces`.

Another run writes the same bytes.
"""

from __future__ import annotations

import logging
from collections import Counter

import trio

from .everything import scenarios
from .playing import FOLDER, played


def main() -> None:
    """Play every scenario, and write the traces that have changed."""
    # In one of the scenarios a tool has a bug, which is logged.
    logging.disable(logging.ERROR)
    changed = 0
    for scenario in scenarios():
        data = trio.run(played, scenario).dump()
        path = scenario.path
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            changed += 1
    folders = Counter(scenario.path.parent.name for scenario in scenarios())
    counts = ", ".join(
        f"{count} in {FOLDER.name}/{folder}" for folder, count in folders.items()
    )
    print(f"{folders.total()} traces, {changed} of them changed: {counts}")


main()
