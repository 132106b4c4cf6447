"""The traces of version 0.1 replay as they are, except for the documented changes.

`tests/data/traces-0.1` has those that are different in `traces/` today. `SHA256SUMS`
lists all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from mcp_trio.trace.compare import Difference
from mcp_trio.trace.format import FIRST_LINE, Trace, read
from mcp_trio.trace.replay import Finding, Replay, transports_of, ways
from tests.support.golden import Json, decoded, parts
from tests.support.paths import DATA, PROJECT, TRACES

KEPT = DATA / "traces-0.1"
SUMS = [
    line.split("  ")
    for line in (KEPT / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
]
PAGE = PROJECT / "docs" / "wire-changes.md"


def path_of(name: str) -> Path:
    """Return the file of a trace of 0.1. If it never changed, it is in `traces/`."""
    kept = KEPT / name
    return kept if kept.exists() else TRACES / name


def test_every_trace_of_0_1_is_here_as_it_was() -> None:
    changed = [
        name
        for digest, name in SUMS
        # The text, because Git may have changed the ends of lines.
        if hashlib.sha256(path_of(name).read_text("utf-8").encode()).hexdigest()
        != digest
    ]
    assert changed == [], "keep the trace of 0.1 in tests/data/traces-0.1"


# What may differ, and how. A function gets the request, and a difference in its reply.


def has_empty_properties(request: Json, difference: Difference) -> bool:
    is_added = difference.kind == "was not expected" and difference.new == {}
    return is_added and difference.location[-2:] == ("inputSchema", "properties")


def is_compact_json(request: Json, difference: Difference) -> bool:
    return (
        difference.location[-1] == "text"
        and len(difference.new) < len(difference.old)
        and json.loads(difference.new) == json.loads(difference.old)
    )


def has_null(request: Json, difference: Difference) -> bool:
    params = request.get("params", {})
    if params is None:
        return True
    optional = ("arguments", "_meta", "cursor")
    return any(params.get(key, "absent") is None for key in optional)


def is_refused_for_arguments(request: Json, difference: Difference) -> bool:
    arguments = request.get("params", {}).get("arguments", {})
    if isinstance(arguments, dict):
        return False
    if difference.location == ("result",):
        return difference.old["isError"] is True
    return difference.location == ("error",) and difference.new["code"] == -32602


def has_old_state(request: Json, difference: Difference) -> bool:
    return (
        "requestState" in request.get("params", {})
        and difference.location == ("error", "message")
        and "requestState: has expired" in difference.old
        and "requestState: not one that this server has given" in difference.new
    )


CHANGES: dict[str, Callable[[Json, Difference], bool]] = {
    "Tools without parameters": has_empty_properties,
    "JSON in texts": is_compact_json,
    "Null for an optional value": has_null,
    "Arguments that are not an object": is_refused_for_arguments,
    "State of an older version": has_old_state,
}
# An error without an id, where 0.1 sent a reply with the long id.
ABOUT_LONG_IDS = r"""the answer to "x{257,}" did not .*|.* of length <= 256.*"""


def request_of(trace: Trace, number: int) -> Json:
    """Return the request that is answered on a line of the trace."""
    lines = trace.lines[: number - FIRST_LINE + 1]
    reply = decoded(lines[-1])
    sent = [decoded(line) for line in reversed(lines) if line.sender == "client"]
    requests: list[Json] = [
        part for message in sent for part in parts(message) if isinstance(part, dict)
    ]
    return next(request for request in requests if request.get("id") == reply["id"])


def change_in(trace: Trace, finding: Finding) -> str:
    """Return the heading of the change that a finding is due to."""
    difference = finding.difference
    if difference is None:
        is_documented = re.fullmatch(ABOUT_LONG_IDS, finding.what)
        return "Long ids" if is_documented else f"unknown: {finding}"
    request = request_of(trace, finding.line)
    for heading, explains in CHANGES.items():
        if explains(request, difference):
            return heading
    return f"unknown: {finding}"


async def changes_in(path: Path) -> set[str]:
    """Replay a trace, and return the headings of the changes that it shows."""
    trace = read(path)
    over = transports_of(trace)[0]
    run = Replay(trace, over, ways(trace, over)[0])
    await run.against(trace.header.server)
    return {change_in(trace, finding) for finding in run.findings}


def documented_counts() -> dict[str, int]:
    """Return the page's table: how many traces show each change."""
    rows = re.findall(r"^\| \[(.+?)\]\(#.*\| (\d+) \|$", PAGE.read_text("utf-8"), re.M)
    return {heading: int(count) for heading, count in rows}


@pytest.mark.slow
async def test_the_traces_of_0_1_differ_only_where_the_documentation_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(PROJECT)
    changes: dict[str, list[str]] = defaultdict(list)
    a_few_at_once = trio.CapacityLimiter(8)

    async def replay(path: Path) -> None:
        async with a_few_at_once:
            headings = await changes_in(path)
        for heading in headings:
            changes[heading].append(path.relative_to(KEPT).as_posix())

    async with trio.open_nursery() as nursery:
        for path in KEPT.rglob("*.jsonl"):
            nursery.start_soon(replay, path)

    counts = {heading: len(names) for heading, names in changes.items()}
    assert counts == documented_counts(), changes
    differing = len({name for names in changes.values() for name in names})
    page = PAGE.read_text("utf-8")
    assert f"Version 0.1 had {len(SUMS)} traces." in page
    assert f"{len(SUMS) - differing} replay unmodified" in page
