"""Install packages into a tox environment, and share their files with the others.

Most environments hold the same packages. A file that is the same in two of them becomes
a hard link to one file, so each further environment takes little room.

This is safe because pip does not write into files that it has installed: it removes
them, and makes new ones.
"""

import filecmp
import os
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path


def main() -> int:
    # Compiling all of a package that is imported in part takes time and room.
    install = [sys.executable, "-I", "-m", "pip", "install", "--no-compile"]
    done = subprocess.run([*install, *sys.argv[1:]], check=False)
    if done.returncode == 0:
        share_with_siblings(Path(sys.prefix), Path(sysconfig.get_path("purelib")))
    return done.returncode


def share_with_siblings(environment: Path, packages: Path) -> None:
    """Share the packages of an environment with all others in the same folder."""
    for sibling in environment.parent.iterdir():
        theirs = sibling / packages.relative_to(environment)
        if sibling != environment and theirs.is_dir():
            share(packages, theirs)


def share(ours: Path, theirs: Path) -> None:
    """Replace each file of ours by a link to theirs, if both are the same."""
    for file in ours.rglob("*"):
        twin = theirs / file.relative_to(ours)
        # A file system without links, a file that is in use, or one that tox is
        # removing at the same time: then nothing is shared.
        with suppress(OSError):
            if _are_same(file, twin):
                _replace_by_link(file, twin)


def _are_same(file: Path, twin: Path) -> bool:
    """Return whether these are two files with the same content and permissions."""
    if file.is_symlink() or not file.is_file() or not twin.is_file():
        return False
    one = file.stat()
    other = twin.stat()
    if one.st_ino == other.st_ino or one.st_mode != other.st_mode:
        return False
    return filecmp.cmp(file, twin, shallow=False)


def _replace_by_link(file: Path, twin: Path) -> None:
    """Put a link to the twin in the place of a file, in one step."""
    link = file.with_name(f"{file.name}.{os.getpid()}.link")
    link.hardlink_to(twin)
    try:
        link.replace(file)
    finally:
        link.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
