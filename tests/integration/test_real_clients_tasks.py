"""Clients of the official SDKs call tools that may be, or have to be, tasks.

Only the Python SDK 2.x can be given the extension. All others do not declare it, and
wait for the result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.install import Unavailable, command_of, python_sdk
from tests.support.command_line import ENVIRONMENT
from tests.support.paths import PROJECT

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SECONDS = 60
SERVER = """
from msgspec import Struct
from mcp_trio import Context
from mcp_trio.demo import server


class Choice(Struct):
    in_color: bool


@server.tool(task="optional", poll_interval=0.05)
async def print_report(ctx: Context, pages: int) -> str:
    for page in range(pages):
        await ctx.progress(page, pages, f"printing page {page + 1}")
    return f"Printed {pages} pages."


@server.tool(task="required", poll_interval=0.05)
async def only_as_task(ctx: Context, pages: int) -> str:
    answer = await ctx.elicit("In color?", Choice)
    assert answer.content is not None
    return f"Printed {pages} pages, {answer.content.in_color}."
"""
CLIENTS = [
    ("python 1", "newest", "2025-11-25"),
    ("python 2", "newest", "2026-07-28"),
    ("python 2", "legacy", "2025-11-25"),
    ("typescript 1", "newest", "2025-11-25"),
    ("typescript 2", "newest", "2026-07-28"),
    ("typescript 2", "legacy", "2025-11-25"),
]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("tasks") / "reports_server.py"
    file.write_text(SERVER, "utf-8")
    return str(file)


@pytest.fixture(scope="module")
def url(spec: str) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "mcp_trio", "run", spec, "--http", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def report_of(command: list[str]) -> dict[str, Any]:
    """Run a client, and return its report."""
    done = subprocess.run(
        command,
        cwd=PROJECT,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def client(name: str) -> list[str]:
    try:
        return command_of(name)
    except Unavailable as reason:
        pytest.skip(f"cannot install the client {name}: {reason}")


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("name", "choice", "revision"), CLIENTS)
def test_a_client_without_the_extension_gets_the_plain_result(
    name: str, choice: str, revision: str, transport: str, url: str, spec: str
) -> None:
    target = ["--url", url]
    if transport == "stdio":
        target = ["--", sys.executable, "-m", "mcp_trio", "run", spec]
    report = report_of([*client(name), "--revision", choice, *target])
    assert report["revision"] == revision
    assert report["report"]["kind"] == "result"
    assert not report["report"]["is_error"]
    assert report["report"]["text"] == "Printed 2 pages."
    # What can only be a task says so, or does not exist.
    is_modern = revision == "2026-07-28"
    assert ("only_as_task" in report["tools"]) is is_modern
    refused = report["only_as_task"]
    code = -32021 if is_modern else -32602
    assert (refused["kind"], refused["code"]) == ("error", code)


@pytest.mark.parametrize(
    ("tool", "text", "states"),
    [
        ("print_report", "Printed 3 pages.", {"completed"}),
        (
            "only_as_task",
            "Printed 3 pages, True.",
            {"input_required", "completed"},
        ),
    ],
)
def test_the_official_python_client_drives_a_task(
    tool: str, text: str, states: set[str], url: str
) -> None:
    try:
        python = str(python_sdk(2))
    except Unavailable as reason:
        pytest.skip(f"cannot install the client: {reason}")
    program = str(PROJECT / "tests" / "clients" / "tasks_python.py")
    report = report_of([python, program, url, tool])
    assert report["revision"] == "2026-07-28"
    assert report["text"] == text
    assert states <= set(report["states"])
