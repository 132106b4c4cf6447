"""examples/timezones answers three clients like the reference server `time`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.clients.install import (
    Unavailable,
    inspector,
    node_modules,
    python_sdk,
    python_with,
)
from tests.support.paths import PROJECT

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLIENTS = PROJECT / "tests" / "clients"
OURS = [sys.executable, "-m", "mcp_trio", "run"]
OURS.append(str(PROJECT / "examples" / "timezones" / "timezones.py"))
SECONDS = 120
# The exit code of the Inspector for a result that is an error.
IS_ERROR = 5


def conversion(source: str, time: str, target: str) -> list[Any]:
    arguments = {"source_timezone": source, "time": time, "target_timezone": target}
    return ["convert_time", arguments]


CALLS = [
    conversion("Europe/Paris", "12:30", "Asia/Kathmandu"),
    conversion("America/New_York", "00:00", "Australia/Lord_Howe"),
    conversion("Pacific/Kiritimati", "23:59", "Pacific/Pago_Pago"),
    conversion("UTC", "9:05", "UTC"),
    conversion("Asia/Kolkata", "25:00", "UTC"),
    conversion("Mars/Olympus", "12:00", "UTC"),
    conversion("UTC", "12:00", "Mars/Olympus"),
    ["get_current_time", {"timezone": "Asia/Tokyo"}],
    ["get_current_time", {"timezone": "America/St_Johns"}],
    ["get_current_time", {"timezone": "nowhere"}],
]

# A client takes a command and the calls. It returns the list of tools and the results.
Client = Callable[[list[str], Path], list[Any]]


def python_client(server: list[str], calls: Path) -> list[Any]:
    client = [str(python_sdk(2)), str(CLIENTS / "calls_client.py"), str(calls)]
    said = printed([*client, "--", *server])
    # Some servers have lists of prompts and resources too.
    results = said[-len(json.loads(calls.read_text(encoding="utf-8"))) :]
    return [said[2], *results]


def typescript_client(server: list[str], calls: Path) -> list[Any]:
    client = ["node", str(node_modules().parent / "calls.mjs"), str(calls)]
    return printed([*client, "--", *server])


def inspector_client(server: list[str], calls: Path) -> list[Any]:
    client = [*inspector(), "--cli", *server]
    results = [printed([*client, "--method", "tools/list"])]
    for name, arguments in json.loads(calls.read_text(encoding="utf-8")):
        options = ["--method", "tools/call", "--tool-name", name]
        for key, value in arguments.items():
            options += ["--tool-arg", f"{key}={json.dumps(value)}"]
        results.append(printed([*client, *options]))
    return results


@pytest.fixture(scope="module")
def reference() -> list[str]:
    """Return the command of the reference server."""
    try:
        return [str(python_with("reference-time")), "-m", "mcp_server_time"]
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("client", [python_client, typescript_client, inspector_client])
def test_both_servers_give_the_same_answers(
    client: Client, reference: list[str], tmp_path: Path
) -> None:
    calls = tmp_path / "calls.json"
    # The Inspector starts a server for each call.
    made = CALLS[:1] + CALLS[4:5] if client is inspector_client else CALLS
    calls.write_text(json.dumps(made), encoding="utf-8")
    try:
        our_tools, *ours = client(OURS, calls)
        their_tools, *theirs = client(reference, calls)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert described(our_tools) == described(their_tools)
    assert len(ours) == len(theirs) == len(made)
    for call, our, their in zip(made, ours, theirs, strict=True):
        same_answer(call, our, their)


def described(tools: dict[str, Any]) -> list[Any]:
    """What a model's choice and its arguments depend on, without the wording."""
    return [
        (
            tool["name"],
            tool.get("annotations"),
            tool["inputSchema"]["required"],
            [
                (key, one["type"])
                for key, one in tool["inputSchema"]["properties"].items()
            ],
        )
        for tool in tools["tools"]
    ]


def same_answer(call: list[Any], our: dict[str, Any], their: dict[str, Any]) -> None:
    assert bool(our.get("isError")) == bool(their.get("isError")), (call, our, their)
    if our.get("isError"):
        return
    our_value, their_value = value_of(our), value_of(their)
    pairs = [(our_value, their_value)]
    if "source" in our_value:
        assert our_value["time_difference"] == their_value["time_difference"]
        pairs = [(our_value[key], their_value[key]) for key in ("source", "target")]
    for one, other in pairs:
        assert one.keys() == other.keys()
        assert (one["timezone"], one["is_dst"]) == (other["timezone"], other["is_dst"])
        # Time passes between the two calls, perhaps past midnight.
        first, second = moment_of(one), moment_of(other)
        assert first.utcoffset() == second.utcoffset()
        assert abs(first - second) < timedelta(days=1, minutes=1)
        if call[0] == "convert_time":
            assert first.time() == second.time()


def value_of(result: dict[str, Any]) -> dict[str, Any]:
    return json.loads(result["content"][0]["text"])


def moment_of(described: dict[str, Any]) -> datetime:
    moment = datetime.fromisoformat(described["datetime"])
    assert f"{moment:%A}" == described["day_of_week"]
    return moment


def printed(command: list[str]) -> Any:
    """What a client prints."""
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode in (0, IS_ERROR), done.stderr
    return json.loads(done.stdout)
