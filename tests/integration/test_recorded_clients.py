"""The recorder between real clients and servers, which do not notice it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_trio.trace.format import Trace, read
from tests.clients.install import HERE as CLIENTS
from tests.clients.install import Unavailable, command_of, node_modules, python_sdk
from tests.recorded.recording import (
    MCP_TRIO,
    PROJECT,
    SECONDS,
    listening,
    recorded,
    recorder,
    run,
    serve_conversation,
)
from tests.support.ports import free_port

pytestmark = pytest.mark.integration

TRACES = [
    read(path) for path in sorted((PROJECT / "traces" / "clients").glob("*.jsonl"))
]
CONVERSATIONS = [
    ("python 1", "newest"),
    ("python 2", "newest"),
    ("python 2", "legacy"),
    ("typescript 1", "newest"),
    ("typescript 2", "newest"),
    ("typescript 2", "legacy"),
]

TELLING = re.compile(
    r'127\.0\.0\.1|localhost|/home|/root|/tmp|/Users|file:|"(?:host|cookie|authorization)":'
)

each_trace = pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.path.stem)
each_conversation = pytest.mark.parametrize(("client", "revision"), CONVERSATIONS)


def test_every_client_was_recorded_over_stdio_and_over_http() -> None:
    there = {
        (trace.header.client.split()[0], trace.header.transport) for trace in TRACES
    }
    clients = [
        "mcp",
        "fastmcp",
        *(f"@modelcontextprotocol/{name}" for name in ("sdk", "client", "inspector")),
    ]
    assert {
        (client, transport) for client in clients for transport in ("stdio", "http")
    } <= there
    assert len(TRACES) >= 12


@each_trace
def test_a_trace_is_of_a_version_that_is_installed(trace: Trace) -> None:
    package, version = trace.header.client.split()
    assert version in pinned()[package]


def pinned() -> dict[str, list[str]]:
    """Return the versions of each package in tests/clients."""
    found: dict[str, list[str]] = {}
    for path in CLIENTS.glob("requirements-*.txt"):
        for name, version in re.findall(
            r"^([a-z]+)\S*==(\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            found.setdefault(name, []).append(version)
    for path in CLIENTS.rglob("package.json"):
        packages: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))[
            "dependencies"
        ]
        for name, version in packages.items():
            found.setdefault(name, []).append(version)
    return found


@each_trace
def test_a_trace_does_not_show_where_it_was_recorded(trace: Trace) -> None:
    assert not TELLING.findall(trace.dump().decode())


@pytest.mark.slow
@each_conversation
def test_on_stdio_neither_side_notices_the_recorder(
    client: str, revision: str, tmp_path: Path
) -> None:
    server = server_of(client)
    alone = spoken(client, revision, "--", *server)
    trace = tmp_path / "trace.jsonl"
    assert spoken(client, revision, "--", *recorder(trace, "--", *server)) == alone
    check_that_it_replays(recorded(trace), "--", *server)


@pytest.mark.slow
@each_conversation
def test_on_http_neither_side_notices_the_recorder(
    client: str, revision: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    with serving(server_of(client)) as url:
        alone = spoken(client, revision, "--url", url)
        with listening(trace, url) as before_it:
            assert spoken(client, revision, "--url", before_it) == alone
        check_that_it_replays(trace, url)


def check_that_it_replays(trace: Path, *server: str) -> None:
    """Values that the SDK's server changes are detected. Nothing else differs."""
    assert run([*MCP_TRIO, "replay", "--stabilise", str(trace), *server]).endswith(
        "no differences\n"
    )


def spoken(client: str, revision: str, *server: str) -> dict[str, Any]:
    try:
        said = serve_conversation(command_of(client), "--revision", revision, *server)
        return without_last_report(said)
    except Unavailable as reason:
        pytest.skip(f"cannot install the client {client}: {reason}")


def without_last_report(said: dict[str, Any]) -> dict[str, Any]:
    """Return a client's report without the last progress notification.

    The TypeScript SDK removes the progress callback when it has read the result. So it
    can lose the last notification if it reads both at once.
    """
    if "counted" in said:
        said["counted"]["progress"] = said["counted"]["progress"][:2]
    return said


def server_of(client: str) -> list[str]:
    """Return the small server that is written with the client's own SDK."""
    sdk, version = client.split()
    try:
        if sdk == "python":
            return [
                str(python_sdk(int(version))),
                str(PROJECT / "tests" / "recorded" / "servers" / "python_server.py"),
            ]
        return [
            "node",
            str(node_modules().parent / f"typescript_server_v{version}.mjs"),
        ]
    except Unavailable as reason:
        pytest.skip(f"cannot install the SDK {client}: {reason}")


@contextmanager
def serving(server: list[str]) -> Iterator[str]:
    """Where a server is served over HTTP."""
    port = free_port()
    command, nothing = [*server, "--http", str(port)], subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nothing, stderr=nothing) as process:
        try:
            wait_for(port, process)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"nothing listens on port {port}")
