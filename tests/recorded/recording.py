"""The recorder between a client and a server, each a process of its own."""

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
    """The command that stands for a server on stdio, and records it."""
    return [*MCP_TRIO, "record", "-o", str(trace), *server]


def recorded(trace: Path) -> Path:
    """The conversation that was recorded: where the server was started several times, the last."""
    return max(
        trace.parent.glob(f"{trace.stem}*.jsonl"),
        key=lambda path: (len(path.name), path.name),
        default=trace,
    )


@contextmanager
def listening(trace: Path, server: str) -> Iterator[str]:
    """The recorder before an HTTP server, given as a SPEC or a URL: where it is found."""
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
    """What a program that ends well prints."""
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
    """What one of the clients of tests/clients saw of the server that the arguments name."""
    report: dict[str, Any] = json.loads(run([*client, *arguments]))
    return report
