"""Servers and clients of other projects: recorded, stabilised, replayed, mocked."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_trio.trace.format import read
from tests.clients.install import HERE as CLIENTS
from tests.clients.install import Unavailable
from tests.recorded.recording import MCP_TRIO, PROJECT, listening
from tests.support import official_servers as servers
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.integration]
SECONDS = 240
TIMES = 10

CALLS: dict[str, list[Any]] = {
    "everything": [
        ["echo", {"message": "hi"}],
        ["get-sum", {"a": 1, "b": 2}],
        ["get-tiny-image", {}],
        ["get-structured-content", {"location": "New York"}],
        ["get-annotated-message", {"messageType": "error"}],
        ["trigger-long-running-operation", {"duration": 0.2, "steps": 2}],
        ["get-resource-links", {"count": 2}],
        ["no-such", {}],
    ],
    "filesystem": [
        ["write_file", {"path": "FILES/b.txt", "content": "b"}],
        ["list_directory", {"path": "FILES"}],
        ["get_file_info", {"path": "FILES/b.txt"}],
        ["read_text_file", {"path": "/etc/passwd"}],
    ],
    "memory": [
        [
            "create_entities",
            {
                "entities": [
                    {"name": "Ann", "entityType": "person", "observations": ["tea"]}
                ]
            },
        ],
        ["search_nodes", {"query": "Ann"}],
        ["read_graph", {}],
        ["delete_entities", {"entityNames": ["Ann"]}],
    ],
    "go": [["greet", {"name": "Ann"}], ["greet", {}]],
    "python": [
        ["get_weather", {"location": "London"}],
        ["calculate_sum", {"a": 1, "b": 2}],
        ["get_weather", {"location": "Atlantis"}],
    ],
}


def command(name: str, folder: Path, port: int = 0) -> list[str]:
    """Return the command of a server on stdio, or at a port. Raises Unavailable."""
    if name == "everything":
        program = servers.npm_server(servers.EVERYTHING)
        return [program, "streamableHttp" if port else "stdio"]
    if name == "filesystem":
        return [servers.npm_server(servers.FILESYSTEM), str(folder)]
    if name == "memory":
        return [servers.npm_server(servers.MEMORY)]
    if name == "go":
        listen = ["-http", f"127.0.0.1:{port}"] if port else []
        return [servers.go_server(), *listen]
    script = str(PROJECT / "tests" / "recorded" / "servers" / "python_server.py")
    listen = ["--http", str(port)] if port else []
    return [servers.python_sdk(), script, *listen]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMORY_FILE_PATH", str(tmp_path / "graph.json"))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    files = tmp_path / "files"
    files.mkdir()
    for name, calls in CALLS.items():
        text = json.dumps(calls).replace("FILES", str(files))
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    return tmp_path


def run(*words: str, expected: int = 0) -> str:
    """Run a program, and return its output."""
    done = subprocess.run(
        words,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


def conversation(folder: Path, name: str, *target: str) -> list[Any]:
    """Return the official client's report about a server."""
    client = [servers.python_sdk(), str(CLIENTS / "calls_client.py")]
    said: list[Any] = json.loads(run(*client, str(folder / f"{name}.json"), *target))
    return said


def record(folder: Path, name: str, server: list[str]) -> tuple[Path, list[Any]]:
    """Record the official client with a server on stdio."""
    path = folder / f"{name}.jsonl"
    recorder = [*MCP_TRIO, "record", "-o", str(path), "--", *server]
    said = conversation(folder, name, "--", *recorder)
    # A client that finds an old server may start it a second time.
    traces = sorted(folder.glob(f"{name}*.jsonl"), key=lambda one: len(read(one).lines))
    return traces[-1], said


@contextmanager
def serving(words: list[str], port: int) -> Iterator[None]:
    environment = {**os.environ, "PORT": str(port)}
    null = subprocess.DEVNULL
    with subprocess.Popen(
        words, env=environment, stdin=null, stdout=null, stderr=null
    ) as process:
        try:
            until = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < until
                    time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGKILL)


def forget(folder: Path) -> None:
    """Remove the data of the servers, as each replay starts without any."""
    (folder / "graph.json").unlink(missing_ok=True)


def check_that_it_replays(folder: Path, path: Path, *target: str) -> None:
    over = read(path).header.transport
    replay = [*MCP_TRIO, "replay", "--timeout", "60", "--over", over]
    # The filesystem server says times to the second. Two runs within one do not differ.
    time.sleep(1.1)
    run(*replay, "--stabilise", str(path), *target)
    for _ in range(TIMES):
        forget(folder)
        assert "no differences" in run(*replay, str(path), *target)


@pytest.mark.parametrize("name", CALLS)
def test_a_server_is_recorded_on_stdio_and_replays_ten_times(
    folder: Path, name: str
) -> None:
    try:
        server = command(name, folder / "files")
        path, _ = record(folder, name, server)
    except Unavailable as reason:
        pytest.skip(f"cannot install: {reason}")
    check_that_it_replays(folder, path, "--", *server)


@pytest.mark.parametrize("name", ["everything", "go", "python"])
def test_a_server_is_recorded_over_http_and_replays_ten_times(
    folder: Path, name: str
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        server = command(name, folder / "files", port)
        servers.python_sdk()
    except Unavailable as reason:
        pytest.skip(f"cannot install: {reason}")
    path = folder / f"{name}.jsonl"
    with serving(server, port):
        with listening(path, url) as own_url:
            conversation(folder, name, "--url", own_url)
        check_that_it_replays(folder, path, url)


def test_a_newer_version_is_reported_with_what_it_changed(folder: Path) -> None:
    try:
        older = [servers.npm_server(servers.OLDER_EVERYTHING), "stdio"]
        newer = [servers.npm_server(servers.EVERYTHING), "stdio"]
        path, _ = record(folder, "everything", older)
    except Unavailable as reason:
        pytest.skip(f"cannot install: {reason}")
    check_that_it_replays(folder, path, "--", *older)
    report = folder / "report.md"
    words = [*MCP_TRIO, "replay", "--timeout", "60", "--report", str(report)]
    told = run(*words, str(path), "--", *newer, expected=1)
    assert f"{path}:" in told
    text = report.read_text(encoding="utf-8")
    assert "```diff" in text
    assert "The conversation now, over stdio" in text


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_the_official_client_sees_no_difference_between_a_server_and_its_mock(
    folder: Path, over: str
) -> None:
    try:
        path, said = record(
            folder, "everything", command("everything", folder / "files")
        )
    except Unavailable as reason:
        pytest.skip(f"cannot install: {reason}")
    mock = [*MCP_TRIO, "mock", str(path)]
    if over == "stdio":
        assert conversation(folder, "everything", "--", *mock) == said
        return
    with subprocess.Popen(
        [*mock, "--http", "0"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            assert conversation(folder, "everything", "--url", url) == said
        finally:
            process.send_signal(signal.SIGTERM)
