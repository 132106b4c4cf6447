"""Remove or change one guard after the other, and list those that no test notices.

`python -m tests.mutate mcp_trio/protocol mcp_trio/auth/jwt.py`. The package is changed
in a copy, in a temporary folder. The exit code is 1 if a mutant survived.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutate.mutants import Mutant, mutants
from tests.mutate.running import Copy, preload
from tests.support.paths import PROJECT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--lines", default="", help="only these, such as 10-20")
    parser.add_argument("--tests", nargs="+", default=[], help="paths of tests to run")
    options = parser.parse_args()
    preload()
    total = 0
    survivors: list[str] = []
    for module in _modules(options.paths):
        with tempfile.TemporaryDirectory() as folder:
            made, found = _check(Copy(Path(folder)), module, options)
        total += made
        survivors += found
    print(f"{total} mutants, {len(survivors)} survived")
    for survivor in survivors:
        print(f"  {survivor}")
    return 1 if survivors else 0


def _modules(paths: list[Path]) -> list[Path]:
    """Return the modules at these paths, relative to the project."""
    modules: list[Path] = []
    for path in paths:
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        modules += [file.resolve().relative_to(PROJECT) for file in found]
    return modules


def _check(
    copy: Copy, module: Path, options: argparse.Namespace
) -> tuple[int, list[str]]:
    """Try every mutant of a module. Return how many there are, and the survivors."""
    source = (PROJECT / module).read_text(encoding="utf-8")
    chosen = [mutant for mutant in mutants(source) if _is_within(mutant, options.lines)]
    if not chosen:
        return 0, []
    reaching = copy.reaching(module, options.tests)
    everything = copy.tests_run()
    copy.require_passing(everything)
    survivors = []
    for number, mutant in enumerate(chosen, 1):
        tests = reaching.get(mutant.line, [])
        if tests and copy.notices(module, mutant, tests):
            continue
        # A test may reach it in another process, which is not measured. Or no test
        # reached it, because a cache had the result of an earlier test.
        if copy.notices(module, mutant, everything):
            continue
        reason = "" if tests else " (no test gets there)"
        told = f"{module}:{mutant.line}: {mutant.before} -> {mutant.after}{reason}"
        print(f"[{number}/{len(chosen)}] survived: {told}", flush=True)
        survivors.append(told)
    print(f"{module}: {len(chosen)} mutants, {len(survivors)} survived", flush=True)
    return len(chosen), survivors


def _is_within(mutant: Mutant, lines: str) -> bool:
    if not lines:
        return True
    first, _, last = lines.partition("-")
    return int(first) <= mutant.line <= int(last or first)


if __name__ == "__main__":
    sys.exit(main())
