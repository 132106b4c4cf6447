"""Write files of a user that others must neither read nor tamper with.

The files may contain secrets, and other users may be able to write to their folders. So
new files are readable by their owner only, nothing is written through links of others,
and processes that write to the same folder wait for each other.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

# Seconds to wait for another process, and between attempts.
LOCK_TIMEOUT = 10.0
LOCK_INTERVAL = 0.05


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes.

    Raises TimeoutError if another process keeps it locked for too long, and OSError if
    the folder cannot be locked.
    """
    descriptor, path = _open_lock(folder)
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    None,
                    f"another process has locked the folder for {LOCK_TIMEOUT:g} s",
                )
            time.sleep(LOCK_INTERVAL)
        yield
    finally:
        os.close(descriptor)  # which also unlocks it
        if path is not None:
            with suppress(OSError):
                path.unlink()


def _open_lock(folder: Path) -> tuple[int, Path | None]:
    """Return a descriptor to lock, and the path of the file if one was made for it."""
    if sys.platform != "win32":
        return os.open(folder, os.O_RDONLY | os.O_CLOEXEC), None
    # Windows cannot open a folder.
    path = folder / ".mcp-trio.lock"
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600), path


def _try_lock(descriptor: int) -> bool:
    """Lock a file or a folder, unless another process has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def back_up(path: Path, content: bytes) -> Path:
    """Write the content to a new file next to `path`, and return its path."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    for number in count():
        backup = path.with_name(f"{path.name}.bak{number or ''}")
        try:
            # With O_EXCL, a symbolic link is not followed either.
            descriptor = os.open(backup, flags, 0o600)
        except FileExistsError:
            continue
        _write_all(descriptor, backup, content)
        return backup
    raise AssertionError("count() does not end")


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file, or leave the file unchanged if that fails.

    The file keeps its permissions. A new file is readable by its owner only.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    written = Path(name)
    _write_all(descriptor, written, content)
    try:
        if path.exists():
            shutil.copymode(path, written)
        written.replace(path)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def _write_all(descriptor: int, path: Path, content: bytes) -> None:
    """Write the content to a file that was just created. Remove it on failure."""
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
