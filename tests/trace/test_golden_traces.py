"""The golden traces: coverage, agreement with the oracle, and replay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mcp_trio.protocol.revisions import Revision
from mcp_trio.trace.format import Trace, read
from mcp_trio.trace.replay import LINE_BY_LINE, Replay, holds_on, ways
from tests.support import seed_examples
from tests.support.golden import Json, decoded, parts, problems_in
from tests.support.seed_examples import ANY_TEXT, contains, kind, with_any_text
from tests.traces.everything import scenarios
from tests.traces.playing import (
    ALL,
    DEMO,
    FOLDER,
    ROOT,
    TABLES,
    Scenario,
    played,
)
from tests.traces.tasks import TIMES

FILES = sorted(FOLDER.rglob("*.jsonl"))
MADE = [path for path in FILES if path.parent.name != "clients"]
HOSTILE = [path for path in MADE if path.parent.name == "hostile"]
MASKED = {"/result/content/0/text", "/result/toolResult", "/error/message"}
VERSION = {
    "/result/serverInfo/version",
    "/result/_meta/io.modelcontextprotocol~1serverInfo/version",
}


def short(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


each_file = pytest.mark.parametrize("path", FILES, ids=short)
each_made = pytest.mark.parametrize("path", MADE, ids=short)


@cache
def trace_in(path: Path) -> Trace:
    return read(path)


def messages(trace: Trace, sender: str) -> Iterator[Json]:
    """What one side has said, the parts of batches alone."""
    for line in trace.lines:
        if line.sender == sender:
            yield from (part for part in parts(decoded(line)) if isinstance(part, dict))


# What there is


@each_file
def test_a_trace_says_what_it_holds(path: Path) -> None:
    trace = trace_in(path)
    assert trace.lines
    assert path.read_bytes().endswith(b"\n")
    header = trace.header
    assert all((header.title, header.notes, header.server, header.client))
    assert header.revision in ALL


@each_made
def test_a_trace_is_in_the_folder_of_its_revision(path: Path) -> None:
    folders = (trace_in(path).header.revision, "hostile", "apps", "skills", "tasks")
    assert path.parent.name in folders


def test_there_are_enough() -> None:
    assert len(MADE) >= 150
    assert len(HOSTILE) >= 30


@pytest.mark.parametrize("path", HOSTILE, ids=short)
def test_after_anything_hostile_the_server_still_serves(path: Path) -> None:
    *_, last = messages(trace_in(path), "server")
    assert last["id"] == "alive"
    assert "result" in last


@each_made
def test_only_what_is_volatile_is_ignored(path: Path) -> None:
    header = trace_in(path).header
    own = (
        VERSION
        if header.server == DEMO
        else MASKED
        if path.stem == "error-masked"
        else set()
    )
    if path.parent.name == "tasks":
        own = set(TIMES)
    assert set(header.ignore) <= own


def test_several_traces_show_the_weather_of_the_demo_server() -> None:
    telling = [
        path for path in MADE if b"Conditions: Partly cloudy" in path.read_bytes()
    ]
    assert len(
        [path for path in telling if trace_in(path).header.server == DEMO]
    ) >= len(ALL)


# Every method of every revision


def asked_in_results(message: Json) -> list[Json]:
    result = message.get("result")
    return (
        list(result["inputRequests"].values())
        if isinstance(result, dict) and "inputRequests" in result
        else []
    )


def spoken(revision: type[Revision]) -> dict[str, set[Any]]:
    """The methods in the traces of a revision, by the tables in which a revision has them."""
    found: dict[str, set[Any]] = defaultdict(set)
    for path in (FOLDER / revision.name).glob("*.jsonl"):
        for sender, asking, telling in (
            ("client", "requests", "notifications"),
            ("server", "asks", "tells"),
        ):
            for message in messages(trace_in(path), sender):
                if "method" in message:
                    found[asking if "id" in message else telling].add(message["method"])
                found["asks"] |= {
                    question["method"] for question in asked_in_results(message)
                }
    return found


@pytest.mark.parametrize("revision", TABLES.values(), ids=TABLES)
def test_each_method_of_a_revision_has_its_trace(revision: type[Revision]) -> None:
    found = spoken(revision)
    tables = ("requests", "notifications", "asks", "tells")
    assert {table: getattr(revision, table) - found[table] for table in tables} == {
        table: set() for table in tables
    }


# Every example of every seed


def values(value: Any) -> Iterator[Any]:
    """A value and all that is in it."""
    yield value
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    for one in inner:
        yield from values(one)


@cache
def said_of_seed(number: int) -> list[Json]:
    """Every object in what is said in the traces of a seed."""
    name = f"seed_{number:03}"
    traces = [trace_in(path) for path in MADE if name in trace_in(path).header.server]
    said = [
        message
        for trace in traces
        for sender in ("client", "server")
        for message in messages(trace, sender)
    ]
    return [
        value
        for message in said
        for value in values(message)
        if isinstance(value, dict)
    ]


def shows(said: Json, example: Json) -> bool:
    if kind(example) == "capability":
        return (
            "capabilities" in said and "serverInfo" in said and contains(said, example)
        )
    texts = (
        [item.get("text") for item in example["content"]]
        if kind(example) == "result"
        else []
    )
    if ANY_TEXT in texts and isinstance(said.get("content"), list):
        said = with_any_text(said)
    return said == example


def every_example() -> list[Any]:
    return [
        pytest.param(number, example, id=f"{number}-{place}-{kind(example)}")
        for number in seed_examples.REVISION
        for place, example in enumerate(seed_examples.examples(number))
    ]


@pytest.mark.parametrize(("number", "example"), every_example())
def test_every_example_of_a_seed_is_in_its_traces(number: int, example: Json) -> None:
    assert any(shows(said, example) for said in said_of_seed(number))


# The oracle


@each_file
def test_the_oracle_agrees_with_what_the_server_says(path: Path) -> None:
    assert problems_in(trace_in(path)) == []


# Made again, and replayed


def test_each_trace_has_a_scenario() -> None:
    assert {short(scenario.path) for scenario in scenarios()} == {
        short(path) for path in MADE
    }


@pytest.mark.parametrize(
    "scenario", scenarios(), ids=lambda scenario: short(scenario.path)
)
async def test_a_trace_that_is_made_again_is_the_same(scenario: Scenario) -> None:
    assert (await played(scenario)).dump().decode() == scenario.path.read_text(
        encoding="utf-8"
    )


async def differences(trace: Trace, over: Any, way: str) -> list[Any]:
    run = Replay(trace, over, way)
    await run.against(trace.header.server)
    return [(over, way, *finding) for finding in run.findings]


@each_made
async def test_a_trace_replays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    trace = trace_in(path)
    assert await differences(trace, holds_on(trace)[0], LINE_BY_LINE) == []


@pytest.mark.slow
@each_file
async def test_a_trace_replays_over_every_transport(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    trace = trace_in(path)
    for over in holds_on(trace):
        for way in ways(trace, over):
            assert await differences(trace, over, way) == []
