"""A ready-made verifier: tokens in a file."""

import logging
import os
import re
import stat
from hashlib import sha256
from math import inf

import trio

from .principal import Principal, as_scopes

log = logging.getLogger("mcp_trio")

LINE = "NAME SHA256-HEX [SCOPE,SCOPE]"
# Seconds between two looks whether the file has changed.
LOOK_EVERY = 1.0
# Who else may write the file; and everybody, where they may read it.
_TOO_OPEN = 0o026


class token_file:
    """Tokens whose digests stand in a file: `python -m mcp_trio token` makes one, and the line that lets it in.

    Raises OSError or ValueError where the file cannot be used. It is read again when it has changed; while it cannot be
    used then, what it said before holds.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._known: dict[bytes, Principal] = {}  # by digest
        self._seen: tuple[int, ...] | None = (
            None  # what tells whether the file has changed
        )
        self._look_at = -inf
        self._read()

    async def __call__(self, token: str) -> Principal | None:
        """The principal whose token it is."""
        if (now := trio.current_time()) >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self._look_again()
        return self._known.get(sha256(token.encode()).digest())

    def _look_again(self) -> None:
        """Read the file if it has changed. What is wrong with it is told once."""
        try:
            status = os.stat(self._path)
            if (
                stat.S_ISREG(status.st_mode) and _state(status) != self._seen
            ):  # a pipe is read once
                self._read()
        except (OSError, ValueError) as problem:
            if self._seen is not None:
                log.warning("%s; the tokens known before stay", problem)
            if isinstance(
                problem, OSError
            ):  # what it says when it can be read again is not known yet
                self._seen = None

    def _read(self) -> None:
        with open(self._path, "rb") as file:
            status = os.fstat(
                file.fileno()
            )  # first: what changes from now on is seen the next time
            self._seen = _state(status)
            lines = file.read().splitlines()
        if os.name == "posix" and status.st_mode & _TOO_OPEN:
            log.warning(
                "%s: others may change or read it; chmod 600 keeps them out", self._path
            )
        self._known = self._tokens(lines)

    def _tokens(self, lines: list[bytes]) -> dict[bytes, Principal]:
        found: dict[bytes, Principal] = {}
        for number, line in enumerate(lines, 1):
            try:
                if words := line.decode("utf-8-sig").partition("#")[0].split():
                    digest, principal = _token(*words)
                    found[digest] = principal
            except (TypeError, ValueError):
                raise ValueError(
                    f"{self._path}, line {number}: {LINE} is wanted"
                ) from None
        return found


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _token(name: str, digest: str, scopes: str = "") -> tuple[bytes, Principal]:
    if not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise ValueError(digest)
    return bytes.fromhex(digest), Principal(
        name, as_scopes(scopes.split(",") if scopes else (), "scopes")
    )
