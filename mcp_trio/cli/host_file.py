"""Add an entry to a host's configuration file, without changing anything else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..load_spec import UsageError
from ..protocol.types import Json
from .private_file import back_up, locked, replace_file

_BYTE_ORDER_MARK = "\ufeff"


def put_entry(
    file: Path,
    key: str,
    name: str,
    entry: Json,
    *,
    force: bool,
    other_hosts: Mapping[str, str],
) -> str:
    """Add an entry to the object at `key`, and return a message about it.

    `other_hosts` are hosts by the key that they use instead. If this raises UsageError,
    the file is unchanged.
    """
    path = Path(os.path.realpath(file))
    with _locked(path):
        return _put_entry(file, path, key, name, entry, force, other_hosts)


def _put_entry(
    file: Path,
    path: Path,
    key: str,
    name: str,
    entry: Json,
    force: bool,
    other_hosts: Mapping[str, str],
) -> str:
    """Add an entry to the file at `path`, which messages call `file`."""
    text = _read(path)
    config = _parse(text, file) if text.strip() else {}
    _check_key(file, key, config, other_hosts)
    servers = config.setdefault(key, {})
    if not isinstance(servers, dict):
        raise UsageError(f"{file}: expected {key!r} to be an object; correct it first")
    if servers.get(name) == entry:
        return f"{file} already has {name!r}"
    if name in servers and not force:
        raise UsageError(
            f"{file} already has a different {name!r}; replace it with --force, or "
            "choose another --name"
        )
    servers[name] = entry
    backup = _back_up(path, text) if path.exists() else None
    _write(path, _format_like(text, config))
    done = f"added {name!r} to {file}"
    return f"{done}; backup: {backup}" if backup else done


def _check_key(
    file: Path, key: str, config: Json, other_hosts: Mapping[str, str]
) -> None:
    """Raise UsageError if the file seems to belong to another host."""
    if key in config:
        return
    for other, host in other_hosts.items():
        if other in config:
            raise UsageError(
                f"{file}: expected the key {key!r}, found {other!r}: it belongs to "
                f"another host; try --for {host}"
            )


def _read(path: Path) -> str:
    if path.exists():
        if not path.is_file() and not path.is_dir():
            # Reading a pipe would block, and writing would replace a device.
            raise UsageError(f"{path}: expected a file, got a pipe or a device")
        if not os.access(path, os.W_OK):
            raise UsageError(f"{path} is read-only; it was not changed")
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise UsageError(f"{path}: expected JSON in UTF-8, got other bytes") from None


def _parse(text: str, file: Path) -> Json:
    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> Json:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise UsageError(
                f"{file} has the same name twice in one object, and one of them would "
                "be lost; correct it first"
            )
        return found

    text = text.removeprefix(_BYTE_ORDER_MARK)
    try:
        config = json.loads(text, object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        problem = f"it is not valid JSON ({error})"
        if re.search(r"(^|[\s,{\[])//|/\*|,\s*[}\]]", text):
            problem = "its comments and trailing commas would be lost"
        raise UsageError(
            f"{file} was not changed: {problem}; to add the entry by hand, print it "
            "without --into"
        ) from None
    if not isinstance(config, dict):
        raise UsageError(f"{file} was not changed: expected a JSON object in it")
    return config


def _format_like(text: str, config: Json) -> str:
    """Return JSON with the indentation and the line ends of a text."""
    indent: str | None = "  "
    indented = re.search(r"\n([ \t]+)\S", text)
    stripped = text.strip()
    if indented is not None:
        indent = indented[1]
    elif stripped not in ("", "{}") and "\n" not in stripped:
        indent = None
    written = json.dumps(config, indent=indent, ensure_ascii=False)
    if text.endswith("\n") or not text:
        written += "\n"
    if "\r\n" in text:
        written = written.replace("\n", "\r\n")
    if text.startswith(_BYTE_ORDER_MARK):
        written = _BYTE_ORDER_MARK + written
    return written


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes of this command from writing a file. Raises UsageError."""
    try:
        path.parent.mkdir(exist_ok=True)
        with locked(path.parent):
            yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _back_up(path: Path, text: str) -> Path:
    """Write a file's text to a new file next to it."""
    try:
        return back_up(path, text.encode())
    except OSError as error:
        raise UsageError(
            f"no backup of {path} can be written: {error.strerror}; it was not changed"
        ) from None


def _write(path: Path, text: str) -> None:
    """Write the whole file, or leave it unchanged."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
