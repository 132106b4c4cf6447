"""Many clients of the official Python SDK, which resume the streams of their calls."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.clients.install import HERE, Unavailable, python_sdk
from tests.support.processes import ServerProcess


class ResumingClients:
    """The clients, as one process: see `tests/clients/resuming_python.py`."""

    def __init__(self, output: Iterator[str]) -> None:
        self._output = output

    def started(self) -> list[int]:
        """Wait until all have received some steps. Returns the process of each call."""
        return [int(message) for message in json.loads(next(self._output))]

    def reports(self, count: int) -> dict[int, dict[str, Any]]:
        """Wait until so many more calls have ended. Returns a report for each client."""
        found = [json.loads(next(self._output)) for _ in range(count)]
        return {report["number"]: report for report in found}


@contextmanager
def resuming_clients(
    count: int, steps: int, first: ServerProcess, later: ServerProcess, **arguments: Any
) -> Iterator[ResumingClients]:
    """Let clients call `advance` at one process, and resume the streams at another."""
    try:
        python = python_sdk(1)
    except Unavailable as reason:
        pytest.skip(f"cannot install the Python SDK: {reason}")
    urls = [f"http://127.0.0.1:{one.port}/mcp" for one in (first, later)]
    words = [str(HERE / "resuming_python.py"), str(count), str(steps), *urls]
    command = [str(python), *words, json.dumps(arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield ResumingClients(iter(process.stdout))
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
