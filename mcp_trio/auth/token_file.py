"""Verify tokens with a file that contains their digests."""

import logging
import os
import re
import stat
from hashlib import sha256
from math import inf

import trio

from .principal import Principal, as_scopes

log = logging.getLogger("mcp_trio")

# The format of a line in the file.
LINE = "NAME SHA256-HEX [SCOPE,SCOPE]"
# Seconds between two checks for changes of the file.
CHECK_INTERVAL = 1.0
# Permissions that the file should not have: writable by the group or by others, or
# readable by others.
_TOO_OPEN = 0o026


class token_file:
    """Verify tokens with a file that contains their digests.

    `python -m mcp_trio token` creates a token and its line for the file. Raises OSError
    or ValueError if the file cannot be read or a line is not valid.

    The file is read again when it has changed. If that fails, or if the file is empty,
    for example while a program rewrites it, the previous tokens stay valid. To revoke
    all tokens, leave only a comment in the file.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        # Digest -> the principal of that token.
        self._known: dict[bytes, Principal] = {}
        # The state of the file when it was last read. None if it must be read again.
        self._seen: tuple[int, ...] | None = None
        self._check_at = -inf
        self._read()

    async def __call__(self, token: str) -> Principal | None:
        """Return the principal of a token, or None if the token is unknown."""
        now = trio.current_time()
        if now >= self._check_at:
            self._check_at = now + CHECK_INTERVAL
            self._read_if_changed()
        return self._known.get(sha256(token.encode()).digest())

    def _read_if_changed(self) -> None:
        """Read the file if it has changed. A problem is logged once."""
        try:
            status = os.stat(self._path)
            # A pipe can be read only once.
            if stat.S_ISREG(status.st_mode) and _state(status) != self._seen:
                self._read()
        except (OSError, ValueError) as problem:
            if self._seen is not None:
                log.warning("%s; the tokens read before remain valid", problem)
            # Read the file as soon as possible, even if it does not change.
            if isinstance(problem, OSError):
                self._seen = None

    def _read(self) -> None:
        with open(self._path, "rb") as file:
            # Before reading, so that a change during the read is detected later.
            status = os.fstat(file.fileno())
            self._seen = _state(status)
            content = file.read()
        if os.name == "posix" and status.st_mode & _TOO_OPEN:
            log.warning(
                "%s: other users can read or change this file; run chmod 600 on it",
                self._path,
            )
        if self._known and not content.strip():
            raise ValueError(
                f"{self._path} is empty; to revoke all tokens, leave a comment in it"
            )
        self._known = self._parse(content.splitlines())

    def _parse(self, lines: list[bytes]) -> dict[bytes, Principal]:
        found: dict[bytes, Principal] = {}
        for number, line in enumerate(lines, 1):
            try:
                words = line.decode("utf-8-sig").partition("#")[0].split()
                if words:
                    digest, principal = _parse_words(*words)
                    found[digest] = principal
            except (TypeError, ValueError):  # TypeError: a wrong number of words
                raise ValueError(
                    f"{self._path}, line {number}: expected {LINE}, as printed by: "
                    "mcp-trio token NAME"
                ) from None
        return found


def _state(status: os.stat_result) -> tuple[int, ...]:
    """Return values that change whenever the file changes."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def _parse_words(name: str, digest: str, scopes: str = "") -> tuple[bytes, Principal]:
    """Return the digest and the principal from a line."""
    if not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ValueError(digest)
    names = scopes.split(",") if scopes else []
    return bytes.fromhex(digest), Principal(name, as_scopes(names, "scopes"))
