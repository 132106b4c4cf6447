"""Run the tests that reach a mutant, in a copy of the package."""

from __future__ import annotations

import os
import py_compile
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import coverage

from tests.mutate.contexts import TESTS_RUN
from tests.mutate.mutants import Mutant
from tests.support.paths import PROJECT

PACKAGE = "mcp_trio"
FAST = "not slow and not integration and not load and not types"
# The folders whose tests reach a folder of the package without starting a process.
FOLDERS = {
    "protocol": ["protocol", "server", "support", "transports", "security"],
    "auth": ["auth"],
    "transports": ["transports", "security", "auth"],
    "server": ["server", "protocol", "auth", "transports", "console"],
}
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly"]
# Tests of one function that are run at first. The others are run if these notice
# nothing.
AT_FIRST = 2
# A mutant that does not end is noticed: it gets as long as this, or as many times as
# long as the tests take when nothing is changed.
SECONDS = 60
TIMES = 10


class Copy:
    """A copy of the project, with one module at a time changed.

    Only the package is copied. Everything else is a link.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._output = folder / "output"
        self._patience: float = SECONDS
        for path in PROJECT.iterdir():
            if path.name != PACKAGE and not path.name.startswith("."):
                (folder / path.name).symlink_to(path)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / PACKAGE, folder / PACKAGE, ignore=ignored)
        for file in (folder / PACKAGE).rglob("*.py"):
            py_compile.compile(str(file))

    def environment(self) -> dict[str, str]:
        """Return an environment that imports this copy."""
        own = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **own}

    def reaching(self, module: Path, tests: list[str]) -> dict[int, list[str]]:
        """Return the ids of the tests that run each line of a module.

        `tests` are paths. By default they are the folders that belong to the module.
        Raises SystemExit if a test fails before anything is changed.
        """
        data = self.folder / "coverage"
        room = module.relative_to(PACKAGE).parts[0]
        folders = tests or [f"tests/{name}" for name in FOLDERS.get(room, [room])]
        command = [sys.executable, "-m", "coverage", "run", f"--data-file={data}"]
        command += [f"--include={self.folder / module}", "--rcfile=/dev/null"]
        command += ["-m", "pytest", *OPTIONS, "-p", "tests.mutate.contexts"]
        command += ["-m", FAST, *folders]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(), check=False
        )
        if done.returncode:
            raise SystemExit("a test fails before anything is changed")
        measured = coverage.CoverageData(basename=str(data))
        measured.read()
        lines = measured.contexts_by_lineno(str(self.folder / module))
        everything = sorted({id for ids in lines.values() for id in ids if id})
        # What runs when the module is imported matters to every test.
        return {
            line: [id for id in ids if id] or everything for line, ids in lines.items()
        }

    def tests_run(self) -> list[str]:
        """Return the ids of all tests that `reaching` ran.

        Some reach the module only in a process that they start.
        """
        return (self.folder / TESTS_RUN).read_text(encoding="utf-8").splitlines()

    def require_passing(self, tests: list[str]) -> None:
        """Raise SystemExit if a test fails though nothing is changed."""
        first, others = _in_two_rounds(tests)
        started = time.monotonic()
        for tests_of_round in (first, others):
            if tests_of_round and self._fails(tests_of_round):
                print(self._output.read_text(encoding="utf-8"))
                raise SystemExit("a test fails in a fork before anything is changed")
        self._patience = max(SECONDS, TIMES * (time.monotonic() - started))

    def notices(self, module: Path, mutant: Mutant, tests: list[str]) -> bool:
        """Return whether one of these tests fails in the mutant."""
        file = self.folder / module
        original = file.read_text(encoding="utf-8")
        compiled = Path(py_compile.compile(str(file)) or "")
        compiled.unlink()
        file.write_text(mutant.source, encoding="utf-8")
        try:
            first, others = _in_two_rounds(tests)
            return any(self._fails(tests) for tests in (first, others) if tests)
        finally:
            file.write_text(original, encoding="utf-8")
            py_compile.compile(str(file))

    def _fails(self, tests: list[str]) -> bool:
        """Run tests in a fork, which has imported the libraries already."""
        child = os.fork()
        if child == 0:
            _run_and_exit(tests, self.folder, self.environment(), self._output)
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return status != 0
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True


def _in_two_rounds(tests: list[str]) -> tuple[list[str], list[str]]:
    """Divide tests into a few of each function, and the others."""
    seen: dict[str, int] = defaultdict(int)
    first, others = [], []
    for test in tests:
        function = test.partition("[")[0]
        seen[function] += 1
        chosen = first if seen[function] <= AT_FIRST else others
        chosen.append(test)
    return first, others


def preload() -> None:
    """Import the modules that every test needs and no test changes."""
    import hypothesis  # noqa: F401
    import msgspec  # noqa: F401
    import pytest  # noqa: F401
    import trio.testing  # noqa: F401


def _run_and_exit(
    tests: list[str], folder: Path, environment: dict[str, str], output: Path
) -> None:
    """Run tests in this process, and end it. What is printed goes to a file."""
    os.setpgid(0, 0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    import pytest

    # What is preloaded cannot be rewritten, and need not be.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = 1
    try:
        code = int(pytest.main([*OPTIONS, *quiet, *tests]))
    finally:
        os._exit(code)
