"""Run a client against the server, and check what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.clients.install import Unavailable
from tests.clients.matrix.clients import CLIENTS, Client
from tests.clients.matrix.features import CLEAN_EXIT, FEATURES, REVISION, Feature
from tests.clients.matrix.install import command_of
from tests.support.paths import PROJECT

SERVER = PROJECT / "tests" / "clients" / "matrix" / "server.py"
# A driver imports a framework, and each feature has a timeout of its own.
SECONDS = 300
# The time that clients give a server on stdio before a signal; two seconds are common.
ENDING_SECONDS = 10
CORE_TRANSPORTS = ("stdio", "http")
# Without this, some frameworks send usage data to their makers.
NO_TELEMETRY = {
    "AGNO_TELEMETRY": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "false",
    "MASTRA_TELEMETRY_DISABLED": "1",
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
    "OTEL_SDK_DISABLED": "true",
}
PATHS = {"http": "/mcp", "sse": "/sse", "ws": "/mcp"}


@dataclass(frozen=True)
class Run:
    """A client on one transport, with one revision."""

    client: Client
    transport: str
    revision: str

    @property
    def name(self) -> str:
        return f"{self.client.name}/{self.transport}/{self.revision}"

    @property
    def is_core(self) -> bool:
        """Return whether CI runs it."""
        return self.client.is_core and self.transport in CORE_TRANSPORTS

    def fault(self, feature: Feature) -> str:
        """Return why the client itself fails here, or an empty string."""
        return self.client.faults.get(self._key(feature), "")

    def fails_always(self, feature: Feature) -> bool:
        """Return whether the client fails here in every run."""
        return self._key(feature) not in self.client.sometimes

    def _key(self, feature: Feature) -> str:
        """Return the key of the feature in the client's faults."""
        run = f"{self.transport}/{self.revision}"
        for where in (run, self.transport, self.revision):
            key = f"{feature.name} {where}"
            if key in self.client.faults:
                return key
        return feature.name

    @property
    def features(self) -> list[Feature]:
        """Return the features that the protocol has here."""
        return [
            feature
            for feature in FEATURES
            if feature.exists(self.transport, self.revision)
        ]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one feature."""

    kind: str
    """`pass`, `fail`, `unsupported` by the client, or `skip` if the client is not installed."""
    reason: str = ""


def all_runs() -> list[Run]:
    return [
        Run(client, transport, revision)
        for client in CLIENTS
        for transport, revisions in client.runs.items()
        for revision in revisions
    ]


@cache
def outcomes_of(run: Run) -> dict[str, Outcome]:
    """Run the client once, and return the outcome of each feature."""
    try:
        command = command_of(run.client)
    except Unavailable as reason:
        why = f"cannot install {run.client.packages[0]}: {reason}"
        return {feature.name: Outcome("skip", why) for feature in run.features}
    outcomes: dict[str, Outcome] = {}
    for server in ("server", "paged"):
        features = [
            feature
            for feature in run.features
            if feature.server == server and feature is not CLEAN_EXIT
        ]
        with TemporaryDirectory() as folder:
            ended = Path(folder) / "ended"
            lines, errors = drive(command, run, server, features, ended)
            for feature in features:
                line = lines.get(feature.name, {"error": errors or "no report"})
                outcomes[feature.name] = judge(feature, line, run.revision)
            if server == "server" and CLEAN_EXIT in run.features:
                outcomes[CLEAN_EXIT.name] = judge_ending(ended)
    return outcomes


def drive(
    command: list[str], run: Run, server: str, features: list[Feature], ended: Path
) -> tuple[dict[str, Any], str]:
    """Return the driver's report of each feature, and its stderr."""
    names = [feature.name for feature in features]
    with served(run.transport, f"{SERVER}:{server}") as target:
        try:
            done = subprocess.run(
                [*command, run.transport, target, run.revision, *names],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                cwd=PROJECT,
                env={**os.environ, **NO_TELEMETRY, "LIFESPAN_FILE": str(ended)},
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return {}, f"not done after {SECONDS} s: {late.stderr!r}"[-2000:]
    return reports(done.stdout), done.stderr[-2000:]


def reports(output: str) -> dict[str, Any]:
    """Return the reports of a driver. Frameworks print other lines too."""
    found = {}
    for line in output.splitlines():
        if line.startswith("{") and '"feature":' in line:
            report = json.loads(line)
            found[report["feature"]] = report
    return found


@contextmanager
def served(transport: str, spec: str) -> Iterator[str]:
    """Serve a server. Yields the target for the driver."""
    serve = [sys.executable, "-m", "mcp_trio", "run", spec]
    if transport == "stdio":
        yield json.dumps(serve)
        return
    with subprocess.Popen(
        [*serve, "--http", "0", "--grace", "0"],
        cwd=PROJECT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        try:
            url = url.replace("/mcp", PATHS[transport])
            yield url.replace("http:", "ws:") if transport == "ws" else url
        finally:
            process.terminate()


def judge(feature: Feature, line: dict[str, Any], revision: str) -> Outcome:
    """Compare a client's report with the expected one."""
    if "unsupported" in line:
        return Outcome("unsupported", line["unsupported"])
    if "error" in line:
        return Outcome("fail", line["error"])
    expected = revision if feature.expected is REVISION else feature.expected
    if expected == line["saw"]:
        return Outcome("pass")
    return Outcome("fail", f"expected {expected!r}, got {line['saw']!r}")


def judge_ending(ended: Path) -> Outcome:
    """Return whether the lifespan of the server ends after the client has left."""
    end = time.monotonic() + ENDING_SECONDS
    while time.monotonic() < end:
        if ended.exists():
            return Outcome("pass")
        time.sleep(0.05)
    return Outcome("fail", "the server's lifespan did not end")
