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
from mcp_trio.trace.replay import Replay, transports_of, ways
from tests.support import seed_examples
from tests.support.golden import Json, decoded, parts, problems_in
from tests.support.seed_examples import ANY_TEXT, contains, kind, with_any_text
from tests.traces.everything import scenarios
from tests.traces.playing import (
    ALL,
    DEMO,
    FOLDER,
    OPENING,
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


@cache
def trace_in(path: Path) -> Trace:
    return read(path)


def messages(trace: Trace, sender: str) -> Iterator[Json]:
    """Return the messages of one side, with batches split."""
    for line in trace.lines:
        if line.sender == sender:
            yield from (part for part in parts(decoded(line)) if isinstance(part, dict))


# What the files contain


def is_complete(path: Path) -> bool:
    trace = trace_in(path)
    header = trace.header
    described = (header.title, header.notes, header.server, header.client)
    ends_with_newline = path.read_bytes().endswith(b"\n")
    return all((*described, trace.lines, header.revision in ALL, ends_with_newline))


def test_each_trace_describes_itself_and_has_messages() -> None:
    assert [short(path) for path in FILES if not is_complete(path)] == []


def test_each_trace_is_in_the_folder_of_its_revision_or_subject() -> None:
    subjects = ("hostile", "apps", "skills", "tasks")
    misplaced = [
        short(path)
        for path in MADE
        if path.parent.name not in (trace_in(path).header.revision, *subjects)
    ]
    assert misplaced == []


def test_there_are_enough() -> None:
    assert len(MADE) >= 150
    assert len(HOSTILE) >= 30


def last_reply_is_a_result(path: Path) -> bool:
    *_, last = messages(trace_in(path), "server")
    return last["id"] == "alive" and "result" in last


def test_after_anything_hostile_the_server_still_serves() -> None:
    silent = [short(path) for path in HOSTILE if not last_reply_is_a_result(path)]
    assert silent == []


def may_be_ignored(path: Path) -> set[str]:
    if path.parent.name == "tasks":
        return set(TIMES)
    if trace_in(path).header.server == DEMO:
        return VERSION
    if path.stem == "error-masked":
        return MASKED
    return set()


def test_only_what_is_volatile_is_ignored() -> None:
    ignored = {
        short(path): set(trace_in(path).header.ignore) - may_be_ignored(path)
        for path in MADE
    }
    assert {path: fields for path, fields in ignored.items() if fields} == {}


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


def recorded_methods(revision: type[Revision]) -> dict[str, set[Any]]:
    """Return the methods in the traces of a revision, for each of its tables."""
    found: dict[str, set[Any]] = defaultdict(set)
    for path in (FOLDER / revision.name).glob("*.jsonl"):
        for sender, requests, notifications in (
            ("client", "requests", "notifications"),
            ("server", "server_requests", "server_notifications"),
        ):
            for message in messages(trace_in(path), sender):
                if "method" in message:
                    table = requests if "id" in message else notifications
                    found[table].add(message["method"])
                for question in asked_in_results(message):
                    found["server_requests"].add(question["method"])
    return found


@pytest.mark.parametrize("revision", TABLES.values(), ids=TABLES)
def test_each_method_of_a_revision_has_its_trace(revision: type[Revision]) -> None:
    found = recorded_methods(revision)
    assert revision.requests <= found["requests"]
    assert revision.notifications <= found["notifications"]
    assert revision.server_requests <= found["server_requests"]
    assert revision.server_notifications <= found["server_notifications"]


# Every example of every seed


def values(value: Any) -> Iterator[Any]:
    """Yield a value, and all values in it."""
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
    """Return every object in the messages of a seed's traces."""
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


@pytest.mark.parametrize("number", seed_examples.REVISION)
def test_every_example_of_a_seed_is_in_its_traces(number: int) -> None:
    missing = [
        f"example {place}, a {kind(example)}"
        for place, example in enumerate(seed_examples.examples(number))
        if not any(shows(said, example) for said in said_of_seed(number))
    ]
    assert missing == []


# The oracle


def test_the_oracle_agrees_with_what_each_server_says() -> None:
    problems = {short(path): problems_in(trace_in(path)) for path in FILES}
    assert {path: found for path, found in problems.items() if found} == {}


# Made again, and replayed


def test_each_trace_has_a_scenario() -> None:
    assert {short(scenario.path) for scenario in scenarios()} == {
        short(path) for path in MADE
    }


@pytest.mark.thorough
@pytest.mark.parametrize(
    "scenario", scenarios(), ids=lambda scenario: short(scenario.path)
)
async def test_a_trace_that_is_made_again_is_the_same(scenario: Scenario) -> None:
    assert (await played(scenario)).dump().decode() == scenario.path.read_text(
        encoding="utf-8"
    )


@pytest.fixture
def in_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to the project's folder, because the headers name servers in it."""
    monkeypatch.chdir(ROOT)


async def differences(trace: Trace, over: Any, way: str) -> list[Any]:
    run = Replay(trace, over, way)
    await run.against(trace.header.server)
    return [(over, way, *finding) for finding in run.findings]


def all_ways(path: Path) -> list[tuple[Any, str]]:
    """Return how a trace can be replayed, as pairs of a transport and a way."""
    trace = trace_in(path)
    return [(over, way) for over in transports_of(trace) for way in ways(trace, over)]


async def assert_replays(path: Path, pairs: list[tuple[Any, str]]) -> None:
    trace = trace_in(path)
    for over, way in pairs:
        assert await differences(trace, over, way) == []


def to_replay(path: Path) -> Any:
    """Return the parameter for a trace. Older revisions repeat what newer ones show."""
    is_older = path.parent.name in OPENING[:-1]
    marks = [pytest.mark.thorough] if is_older else []
    return pytest.param(path, id=short(path), marks=marks)


@pytest.mark.usefixtures("in_project")
@pytest.mark.parametrize("path", [to_replay(path) for path in MADE])
async def test_a_trace_replays(path: Path) -> None:
    await assert_replays(path, all_ways(path)[:1])


@pytest.mark.slow
@pytest.mark.usefixtures("in_project")
@pytest.mark.parametrize("path", FILES, ids=short)
async def test_a_trace_replays_in_every_other_way(path: Path) -> None:
    done = 1 if path in MADE else 0
    await assert_replays(path, all_ways(path)[done:])
