"""A recorder between a client and a server, each in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
MCP_TRIO = [sys.executable, "-m", "mcp_trio"]
SECONDS = 60


def recorder(trace: Path, *server: str) -> list[str]:
    """Return the command that replaces a server on stdio, and records it."""
    return [*MCP_TRIO, "record", "-o", str(trace), *server]


def recorded(trace: Path) -> Path:
    """Return the recorded conversation, the last one if there are several."""
    return max(
        trace.parent.glob(f"{trace.stem}*.jsonl"),
        key=lambda path: (len(path.name), path.name),
        default=trace,
    )


@contextmanager
def listening(trace: Path, server: str) -> Iterator[str]:
    """Run a recorder in front of an HTTP server, a SPEC or a URL. Yields its URL."""
    command = [*MCP_TRIO, "record", "-o", str(trace), "--listen", "0", server]
    with subprocess.Popen(
        command, cwd=PROJECT, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0


def run(command: Sequence[str], **environment: str) -> str:
    """Run a program that must succeed, and return its output."""
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def serve_conversation(client: Sequence[str], *arguments: str) -> dict[str, Any]:
    """Return what a client of tests/clients reports about a server."""
    report: dict[str, Any] = json.loads(run([*client, *arguments]))
    return report
