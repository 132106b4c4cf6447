"""The command that tells a host, such as an editor or a chat program, of a server."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..client.target import is_url
from ..load_spec import UsageError, absolute, import_root, load
from ..protocol.types import Json
from .options import DEMO, PROG, SPEC_HELP, Parser, one_of
from .private_file import back_up, locked, replace_file


class Host(Struct, frozen=True):
    """How a host wants to be told of servers: where, under which key, and what an entry has besides."""

    file: str
    key: str = "mcpServers"
    starts: Json = {}  # what it wants said besides of a command, and of a URL
    reaches: Json = {}
    url: str = "url"  # the key of a URL; nothing: it takes none there


HOSTS = {
    "claude-desktop": Host("claude_desktop_config.json", url=""),
    "claude-code": Host(
        ".mcp.json", starts={"type": "stdio"}, reaches={"type": "http"}
    ),
    "cursor": Host(".cursor/mcp.json", starts={"type": "stdio"}),
    "vscode": Host(".vscode/mcp.json", "servers", {"type": "stdio"}, {"type": "http"}),
    "windsurf": Host("mcp_config.json", url="serverUrl"),
}
DEFAULT = "claude-desktop"


def arguments(parser: Parser) -> None:
    """What config takes."""
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument(
        "--for",
        dest="host",
        metavar="HOST",
        type=one_of(HOSTS),
        help=f"{', '.join(HOSTS)} (what FILE is called as, else {DEFAULT})",
    )
    parser.add_argument(
        "--into",
        metavar="FILE",
        type=Path,
        help="put it into the host's file, with a backup",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="what the host calls it (what the server calls itself)",
    )
    parser.add_argument(
        "--http",
        metavar="URL",
        help="the host is to reach it there, rather than to start it",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace an entry of the same name that says otherwise",
    )


def config(options: argparse.Namespace) -> int:
    """Print what a host's file says of a server, or put it there."""
    if options.command:
        raise UsageError(
            f"config takes a SPEC, not a command, as in: {PROG} config server.py"
        )
    if is_url(options.spec):
        raise UsageError(f"for a URL: {PROG} config --http {options.spec} --name NAME")
    name, host = options.name, options.host or _host_of(options.into)
    if options.http:
        entry = _to_reach(options.http, host)
    if not options.http or options.spec is not None:
        with redirect_stdout(sys.stderr):  # what the SPEC prints
            server = load(DEMO if options.spec is None else options.spec)
        name = name or re.sub(r"[^\w-]+", "-", server.info.name, flags=re.ASCII).strip(
            "-"
        )
    if not name:
        raise UsageError("--name NAME is wanted: what the host is to call the server")
    if not options.http:
        entry = HOSTS[host].starts | _to_start(options.spec)
    if options.into is None:
        print(
            json.dumps({HOSTS[host].key: {name: entry}}, indent=2, ensure_ascii=False)
        )
    else:
        print(_put(options.into, HOSTS[host].key, name, entry, force=options.force))
    return 0


def _host_of(file: Path | None) -> str:
    """The host whose file this is, as it is called."""
    path = f"/{file.absolute().as_posix()}" if file else ""
    return next(
        (name for name, host in HOSTS.items() if path.endswith(f"/{host.file}")),
        DEFAULT,
    )


def _to_reach(url: str, host: str) -> Json:
    about = HOSTS[host]
    if not is_url(url) or url.startswith("ws"):
        raise UsageError(
            f"--http wants a URL such as http://127.0.0.1:8000/mcp, not {url!r}"
        )
    if not about.url:
        raise UsageError(
            f"the file of {host} knows no URLs; give it a SPEC to start, or add the URL among its connectors"
        )
    return about.reaches | {about.url: url}


def _to_start(spec: str | None) -> Json:
    """The command that serves a SPEC that was loaded here, from wherever it is started."""
    run = {
        "command": sys.executable,
        "args": ["-m", "mcp_trio", "run", *([absolute(spec)] if spec else [])],
    }
    paths = [root] if spec and (root := import_root(spec)) else []
    paths += [
        os.path.abspath(path)
        for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if path
    ]
    return run | (
        {"env": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}} if paths else {}
    )


# A host's file


def _put(file: Path, key: str, name: str, entry: Json, *, force: bool) -> str:
    """Put an entry into a file, beside what is there; says what was done."""
    path = Path(os.path.realpath(file))
    with _alone_with(path):
        return _put_alone(file, path, key, name, entry, force=force)


def _put_alone(
    file: Path, path: Path, key: str, name: str, entry: Json, *, force: bool
) -> str:
    """Put an entry into the file at `path`, which the user calls `file`."""
    text = _text(path)
    config = _parsed(text, file) if text.strip() else {}
    others = {host.key for host in HOSTS.values()} - {key}
    if key not in config and (
        other := next((other for other in others if other in config), None)
    ):
        wanted = next(name for name, host in HOSTS.items() if host.key == other)
        raise UsageError(
            f"{file} has {other!r}, not {key!r}: it is another host's; give --for {wanted}"
        )
    servers = config.setdefault(key, {})
    if not isinstance(servers, dict):
        raise UsageError(
            f"{file}: {key!r} is no object; mend it, or move the file away"
        )
    if servers.get(name) == entry:
        return f"{file} has {name!r} already"
    if name in servers and not force:
        raise UsageError(
            f"{file} has {name!r} already, with other content; give --force to replace it, or another --name"
        )
    servers[name] = entry
    backup = _backup(path, text) if path.exists() else None
    _write(path, _in_the_manner_of(text, config))
    return f"{file} has {name!r} now" + (
        f"; as it was before: {backup}" if backup else ""
    )


def _text(path: Path) -> str:
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UsageError(
            f"{path} is a pipe or a device, not a file"
        )  # which would be waited for, and replaced
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise UsageError(f"{path} is read-only, and is left as it is")
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeError:
        raise UsageError(f"{path} is no JSON: it is not text in UTF-8") from None


def _parsed(text: str, file: Path) -> Json:
    def unique(pairs: list[tuple[str, Any]]) -> Json:
        if len(found := dict(pairs)) < len(pairs):
            raise UsageError(
                f"{file} has a name twice within one object, of which one would be lost; mend it first"
            )
        return found

    try:
        config = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        comments = re.search(r"(^|[\s,{\[])//|/\*|,\s*[}\]]", text)
        why = (
            "its comments and trailing commas would be lost"
            if comments
            else f"it is no JSON ({error})"
        )
        raise UsageError(
            f"{file} is left as it is: {why}; without --into it is printed, to be put in by hand"
        ) from None
    if not isinstance(config, dict):
        raise UsageError(f"{file} is left as it is: it holds no JSON object")
    return config


def _in_the_manner_of(text: str, config: Json) -> str:
    """JSON that is indented, and ends its lines, as a text is."""
    found = re.search(r"\n([ \t]+)\S", text)
    in_one_line = (
        bool(text.strip()) and "\n" not in text.strip() and text.strip() != "{}"
    )
    indent = None if in_one_line else found[1] if found else "  "
    written = json.dumps(config, indent=indent, ensure_ascii=False) + (
        "\n" if text.endswith("\n") or not text else ""
    )
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    return mark + (written.replace("\n", "\r\n") if "\r\n" in text else written)


@contextmanager
def _alone_with(path: Path) -> Iterator[None]:
    """Keep other runs of this command from writing a file. Raises UsageError."""
    try:
        path.parent.mkdir(exist_ok=True)
        with locked(path.parent):
            yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _backup(path: Path, text: str) -> Path:
    """Write a file's text into a new file beside it. Raises UsageError."""
    try:
        return back_up(path, text.encode())
    except OSError as error:
        raise UsageError(
            f"no backup of {path} can be written: {error.strerror}; it is left as it is"
        ) from None


def _write(path: Path, text: str) -> None:
    """Write all of the text or nothing. Raises UsageError."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
