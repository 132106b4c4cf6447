"""Builds the contenders, and prints their versions and differences."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .builds import Build, Builds, build_all, versions
from .table import CONTENDERS, Contender


def main(names: Sequence[str]) -> int:
    """Build contenders, all of them without names. Returns the exit code."""
    by_name = {contender.name: contender for contender in CONTENDERS}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        known = ", ".join(by_name)
        message = f"expected names of contenders ({known}), got {', '.join(unknown)}"
        print(message, file=sys.stderr)
        return 2
    chosen = [by_name[name] for name in names] or list(CONTENDERS)
    builds = build_all(chosen, _print_progress)
    print("\n".join(table(chosen, builds)))
    for contender in chosen:
        print()
        print("\n".join(describe(contender)))
    return 0


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def table(contenders: Sequence[Contender], builds: Builds) -> list[str]:
    """Return a line for each contender: its build and its libraries."""
    rows = [("contender", "build", "language", "libraries")]
    for contender in contenders:
        reason = builds.left_out.get(contender.name)
        if reason is not None:
            rows.append((contender.name, "left out", "", " ".join(reason.split())))
        else:
            rows.append(_row(contender, builds.built[contender.name]))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[3]]))
    return lines


def _row(contender: Contender, build: Build) -> tuple[str, str, str, str]:
    """Return the row of a contender that was built."""
    took = "not needed"
    if build.seconds:
        took = f"{build.seconds:g} s"
    libraries = [f"{name} {version}" for name, version in versions(contender).items()]
    return contender.name, took, build.language, ", ".join(libraries)


def describe(contender: Contender) -> list[str]:
    """Return what a contender serves, and how it differs from mcp_trio."""
    serves = []
    for transport, revisions in contender.transports.items():
        serves.append(f"{transport} ({', '.join(revisions) or 'echo'})")
    cores = "runs on one core"
    if contender.uses_all_cores:
        cores = "would use all cores: it is given one, as the others"
    return [
        f"{contender.name}: {contender.title}",
        f"  serves {', '.join(serves)}",
        f"  - {cores}",
        *(f"  - {difference}" for difference in contender.differences),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
