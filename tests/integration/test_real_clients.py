"""Clients of the official SDKs use the demo server on stdio, HTTP and HTTP+SSE."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.install import Unavailable, node_modules, python_sdk
from tests.support.paths import PROJECT

pytestmark = pytest.mark.integration

DEMO_SERVER = [sys.executable, "-m", "mcp_trio"]
WEATHER = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
SECONDS = 60

CONVERSATIONS = [
    ("python-v1", "newest", "2025-11-25"),
    ("python-v2", "newest", "2026-07-28"),
    ("python-v2", "legacy", "2025-11-25"),
    ("typescript-v1", "newest", "2025-11-25"),
    ("typescript-v2", "newest", "2026-07-28"),
    ("typescript-v2", "legacy", "2025-11-25"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("client", "choice", "revision"), CONVERSATIONS)
def test_a_real_client_lists_and_calls_the_tools_over_stdio(
    client: str, choice: str, revision: str
) -> None:
    check(
        serve_conversation(client, "--revision", choice, "--", *DEMO_SERVER), revision
    )


@pytest.mark.slow
@pytest.mark.parametrize(("client", "choice", "revision"), CONVERSATIONS)
def test_a_real_client_lists_and_calls_the_tools_over_http(
    client: str, choice: str, revision: str, url: str
) -> None:
    check(serve_conversation(client, "--revision", choice, "--url", url), revision)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["python-v1", "typescript-v1"])
def test_an_older_client_lists_and_calls_the_tools_over_sse(
    client: str, url: str
) -> None:
    check(
        serve_conversation(client, "--sse", url.replace("/mcp", "/sse")), "2025-11-25"
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where the demo server is served over HTTP."""
    with subprocess.Popen(
        [*DEMO_SERVER, "--http", "0"], cwd=PROJECT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]
        process.terminate()
        assert process.wait(SECONDS) == 0


def check(report: dict[str, Any], revision: str) -> None:
    """What every client has to have seen."""
    assert report["revision"] == revision
    assert report["server"]["name"]
    assert {"get_weather", "calculate_sum"} <= set(report["tools"])
    assert (report["weather"], report["weather_is_error"]) == (WEATHER, False)
    assert report["sum"] == 5.5
    check_failures(report)


def check_failures(report: dict[str, Any]) -> None:
    """In these revisions, bad arguments cause a result that the model can read."""
    bad_arguments, unknown_tool = report["bad_arguments"], report["unknown_tool"]
    assert (bad_arguments["kind"], bad_arguments.get("is_error")) == ("result", True), (
        bad_arguments
    )
    assert "location" in bad_arguments["text"]
    assert (unknown_tool["kind"], unknown_tool.get("code")) == ("error", -32602), (
        unknown_tool
    )
    assert "no_such_tool" in unknown_tool["text"]


def serve_conversation(client: str, *arguments: str) -> dict[str, Any]:
    """Return the client's report about a server.

    The arguments are `-- COMMAND…`, `--url URL` or `--sse URL`.
    """
    command = [*command_of(client), *arguments]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def command_of(client: str) -> list[str]:
    sdk, version = client.split("-v")
    try:
        if sdk == "python":
            return [
                str(python_sdk(int(version))),
                str(PROJECT / "tests" / "clients" / "python_client.py"),
            ]
        return ["node", str(node_modules().parent / f"typescript_v{version}.mjs")]
    except Unavailable as reason:
        pytest.skip(f"cannot install the client {client}: {reason}")
