"""Who the server is, and what this machine allows to do to it.

The system limits the threads of a user, but not those of root. If root runs the test,
the server runs as another user that may read all files, like root.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path

# No other process belongs to this user, so no other threads count.
LONELY = 64_321
CAP_NET_ADMIN = 12
FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"


def is_root() -> bool:
    """Return whether this process may do everything."""
    return os.getuid() == 0


def server_user() -> int:
    """Return the user that the server runs as."""
    return LONELY if is_root() else os.getuid()


def as_server_user(command: Sequence[str]) -> list[str]:
    """Return a command that runs as the server's user."""
    if not is_root():
        return list(command)
    words = ["setpriv", f"--reuid={LONELY}", f"--regid={LONELY}", "--clear-groups"]
    # Otherwise the server could not read a project that only root may read.
    words += ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override"]
    return [*words, "--", *command]


def missing_programs() -> list[str]:
    """Return the programs that are needed, but not installed."""
    needed = ["prlimit", *(["setpriv"] if is_root() else [])]
    return [name for name in needed if shutil.which(name) is None]


def can_administer_network() -> bool:
    """Return whether this process has the right CAP_NET_ADMIN."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = re.search(r"^CapEff:\s+(\w+)$", status, re.MULTILINE)
    assert effective is not None
    return bool(int(effective[1], 16) & 1 << CAP_NET_ADMIN)


def threads_of_server_user() -> int:
    """Return the number of threads that count for the limit of the server's user."""
    count = 0
    user = server_user()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "status").read_text(encoding="ascii", errors="replace")
        except OSError:  # it has just ended
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines())
        if int(fields["Uid"].split()[0]) == user:
            count += int(fields["Threads"])
    return count


# A clock that can be set


class Clock:
    """A real-time clock that is set for one process, by libfaketime.

    Only the clock on the wall jumps. The monotonic clock goes on.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0)

    @staticmethod
    def is_available() -> bool:
        """Return whether libfaketime is installed."""
        return bool(glob(FAKETIME))

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that the process needs."""
        if not self.is_available():
            return {}
        return {
            "LD_PRELOAD": glob(FAKETIME)[0],
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: int) -> None:
        """Set the offset of the clock, in seconds."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n", encoding="ascii")
        new.chmod(0o644)
        new.replace(self._file)


# A disk that is full soon


def _succeeds(command: Sequence[str]) -> bool:
    done = subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[int | None]:
    """Make the folder a disk of its own, which is full after so many bytes.

    Without the rights for that, yield the size that files may have instead.
    """
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "chaos", str(folder)]
    is_mounted = is_root() and _succeeds(mount)
    try:
        yield None if is_mounted else size
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
