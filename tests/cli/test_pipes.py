"""`python -m mcp_trio` in a shell's pipe: lines in, lines out, exit code 0."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.checked import (
    ALL,
    MODERN,
    NEWEST,
    OPENING,
    asking,
    initialize,
    notification,
)
from tests.support.oracle import Oracle
from tests.support.paths import PROJECT, SEEDS

Json = dict[str, Any]

SECONDS = 30
WEATHER = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
SAID = {"content": [{"type": "text", "text": WEATHER}], "isError": False}

pytestmark = pytest.mark.slow


def piped(messages: list[Json], *arguments: str, revision: str) -> list[Json]:
    """What the program prints when these are its input, whole, from the start."""
    done = subprocess.run(
        [sys.executable, "-m", "mcp_trio", *arguments],
        input="".join(json.dumps(message) + "\n" for message in messages).encode(),
        capture_output=True,
        cwd=PROJECT,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    assert done.stdout.endswith(b"\n")
    printed: list[Json] = [json.loads(line) for line in done.stdout.splitlines()]
    check_by_schema(revision, messages, printed)
    return printed


def check_by_schema(revision: str, sent: list[Json], printed: list[Json]) -> None:
    oracle = Oracle(revision)
    oracle.sent_by_client(sent)
    problems = [problem for message in printed for problem in oracle.check(message)]
    assert problems == []


def opening(revision: str) -> list[Json]:
    """Return the messages before the first request."""
    return (
        [initialize(revision, id=1), notification("notifications/initialized")]
        if revision in OPENING
        else []
    )


def weather(revision: str, arguments: Json) -> list[Json]:
    return [
        *opening(revision),
        asking(
            revision, 2, "tools/call", {"name": "get_weather", "arguments": arguments}
        ),
    ]


def last_of(printed: list[Json], revision: str) -> Json:
    """Return the reply to the last request, when all are answered."""
    assert [message["id"] for message in printed] == (
        [1, 2] if revision in OPENING else [2]
    )
    if revision in OPENING:
        assert printed[0]["result"]["protocolVersion"] == revision
    return printed[-1]


@pytest.mark.parametrize("revision", ALL)
def test_the_weather_in_new_york_is_answered_over_a_pipe(revision: str) -> None:
    result = last_of(
        piped(weather(revision, {"location": "New York"}), revision=revision), revision
    )["result"]
    if revision == ALL[0]:
        assert result == {"toolResult": WEATHER}
    elif revision in MODERN:
        assert result.pop("_meta")
        assert result == {"resultType": "complete", **SAID}
    else:
        assert result == SAID


@pytest.mark.parametrize("revision", ALL)
def test_bad_arguments_are_answered_as_the_revision_demands(revision: str) -> None:
    reply = last_of(piped(weather(revision, {}), revision=revision), revision)
    missing = "Missing required argument: location"
    if revision == ALL[0]:
        assert reply["error"] == {
            "code": -32602,
            "message": "Invalid params",
            "data": {"reason": missing},
        }
    elif revision < "2025-11-25":
        assert reply["error"] == {
            "code": -32602,
            "message": f"Invalid arguments for tool get_weather: {missing}",
        }
    else:
        assert reply["result"]["isError"] is True
        assert missing in reply["result"]["content"][0]["text"]


def test_the_demo_server_can_wear_the_pocket_profile() -> None:
    revision = "2025-06-18"
    printed = piped(
        weather(revision, {"location": "New York"}),
        "--profile",
        "pocket",
        revision=revision,
    )
    assert last_of(printed, revision)["result"] == {**SAID, "structuredContent": {}}


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_a_seeds_server_runs_from_its_file(seed: int) -> None:
    revision = ("2025-06-18", "2025-11-25", "2024-10-07", "2024-11-05", "2025-06-18")[
        seed
    ]
    messages = [*opening(revision), asking(revision, 2, "tools/list")]
    tools = last_of(
        piped(messages, "run", str(SEEDS / f"seed_00{seed}.py"), revision=revision),
        revision,
    )
    assert tools["result"]["tools"][0]["name"] == (
        "greet" if seed == 4 else "get_weather"
    )


def test_what_still_runs_when_the_input_ends_is_answered() -> None:
    params = {"name": "count_slowly", "arguments": {"steps": 2, "seconds": 0.05}}
    [reply] = piped([asking(NEWEST, 1, "tools/call", params)], revision=NEWEST)
    assert reply["result"]["content"] == [{"type": "text", "text": "Counted to 2"}]
