"""Builds the contenders, and keeps the builds in the cache folder.

The name of a build has a hash of its sources. A build is made in a temporary folder and
moved when it is complete, so an unfinished build is never used.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ..cache import cache_folder
from .table import CONTENDERS, SOURCES, Contender
from .toolchains import TOOLCHAINS, CurrentEnvironment, Unavailable, installed_version

# The file in a build that says how it was made.
RECORD = "built.json"
AT_ONCE = 3


@dataclass(frozen=True)
class Build:
    """How to start a contender on this machine, and with which language it was built."""

    start: tuple[str, ...]
    language: str = ""
    seconds: float = 0.0

    def command(self, contender: Contender, transport: str, port: int = 0) -> list[str]:
        """Return the command that serves a transport. Stdio ignores the port."""
        return [*self.start, transport, str(port), *contender.arguments]


@dataclass
class Builds:
    """The contenders that were built, and the reasons why others were not, by name."""

    built: dict[str, Build] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def build_all(
    contenders: Sequence[Contender] = CONTENDERS,
    report: Callable[[str], None] = lambda line: None,
) -> Builds:
    """Build the contenders, several at once. `report` gets a line for each."""
    builds = Builds()
    possible = []
    for contender in contenders:
        packages = missing_packages(contender)
        if packages:
            reason = f"{', '.join(packages)} is not installed"
            builds.left_out[contender.name] = reason
        else:
            possible.append(contender)
    # Contenders that share a folder share a build.
    unbuilt = {
        build_folder(contender): contender
        for contender in possible
        if find_build(contender) is None
    }
    with ThreadPoolExecutor(max_workers=AT_ONCE) as executor:
        for contender in unbuilt.values():
            report(f"building {contender.name} …")
        problems = executor.map(_try_to_build, unbuilt.values())
        problem_by_folder = dict(zip(unbuilt, problems, strict=True))
    for contender in possible:
        problem = problem_by_folder.get(build_folder(contender))
        if problem is not None:
            builds.left_out[contender.name] = problem
        else:
            builds.built[contender.name] = build(contender)
    return builds


def missing_packages(contender: Contender) -> list[str]:
    """Return the packages that a contender needs and that are not installed."""
    return [name for name in contender.packages if installed_version(name) is None]


def _try_to_build(contender: Contender) -> str | None:
    """Build a contender, or return the reason why this is not possible."""
    try:
        build(contender)
    except Unavailable as reason:
        return str(reason)
    return None


def build(contender: Contender) -> Build:
    """Return the build of a contender, and make it if necessary. Raises Unavailable."""
    existing = find_build(contender)
    if existing is not None:
        return existing
    toolchain = TOOLCHAINS[contender.toolchain]
    folder = build_folder(contender)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="making-", dir=folder.parent, ignore_cleanup_errors=True
    ) as temporary:
        unfinished = Path(temporary) / "build"
        unfinished.mkdir()
        started = time.monotonic()
        language = toolchain.build(SOURCES / contender.folder, unfinished)
        seconds = round(time.monotonic() - started, 1)
        record = {"tools": language, "seconds": seconds}
        (unfinished / RECORD).write_text(json.dumps(record))
        _publish(unfinished, folder)
    return _load(contender, folder)


def find_build(contender: Contender) -> Build | None:
    """Return the build of a contender, or None if it has to be built first."""
    toolchain = TOOLCHAINS[contender.toolchain]
    if isinstance(toolchain, CurrentEnvironment):
        source = SOURCES / contender.folder
        start = toolchain.command(source, source, contender.program)
        return Build(start, toolchain.build(source, source))
    folder = build_folder(contender)
    if not folder.is_dir():
        return None
    return _load(contender, folder)


def _load(contender: Contender, folder: Path) -> Build:
    """Return the build in a folder."""
    record = json.loads((folder / RECORD).read_text())
    start = TOOLCHAINS[contender.toolchain].command(
        SOURCES / contender.folder, folder, contender.program
    )
    return Build(start, record["tools"], record["seconds"])


def _publish(unfinished: Path, folder: Path) -> None:
    """Move a complete build to its folder."""
    try:
        unfinished.rename(folder)
    except OSError:
        # Another process may have made the same build in the meantime.
        if not folder.is_dir():
            raise


def build_folder(contender: Contender) -> Path:
    """Return the folder of a build, which contenders of one source folder share."""
    version = source_hash(contender.folder, contender.toolchain)
    return cache_folder() / f"{contender.folder}-{version}"


def source_hash(folder: str, toolchain: str) -> str:
    """Return a hash of the sources, the interpreter and the operating system."""
    digest = hashlib.sha256(f"{sys.version} {sys.platform}".encode())
    for file in TOOLCHAINS[toolchain].inputs(SOURCES / folder):
        digest.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def versions(contender: Contender) -> dict[str, str]:
    """Return the versions of a contender's libraries, by name."""
    return TOOLCHAINS[contender.toolchain].versions(SOURCES / contender.folder)
