"""The command `config`: the entry for a server in a host's configuration."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

from msgspec import Struct

from ..load_spec import UsageError, absolute, import_root, load
from ..protocol.types import Json
from .host_file import put_entry
from .options import DEMO, PROG, SPEC_HELP, Parser, looks_like_url, one_of


class HostFormat(Struct, frozen=True):
    """How a host is configured."""

    # The end of the path of its configuration file.
    file: str
    # The key of the object that contains the servers.
    key: str = "mcpServers"
    # Further values of an entry with a command, and of one with a URL.
    with_command: Json = {}
    with_url: Json = {}
    # The key of a URL; empty if URLs are not supported.
    url_key: str = "url"


HOSTS = {
    "claude-desktop": HostFormat("claude_desktop_config.json", url_key=""),
    "claude-code": HostFormat(
        ".mcp.json", with_command={"type": "stdio"}, with_url={"type": "http"}
    ),
    "cursor": HostFormat(".cursor/mcp.json", with_command={"type": "stdio"}),
    "vscode": HostFormat(
        ".vscode/mcp.json",
        key="servers",
        with_command={"type": "stdio"},
        with_url={"type": "http"},
    ),
    "windsurf": HostFormat("mcp_config.json", url_key="serverUrl"),
}
DEFAULT_HOST = "claude-desktop"


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        # Without the value, which may be a secret.
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {name!r}")
    return name, value


def config_arguments(parser: Parser) -> None:
    """Declare the arguments of `config`."""
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument(
        "--for",
        dest="host",
        metavar="HOST",
        type=one_of(HOSTS),
        help=f"{', '.join(HOSTS)}; default: the host of FILE, or {DEFAULT_HOST}",
    )
    parser.add_argument(
        "--into",
        metavar="FILE",
        type=Path,
        help="add the entry to this file of the host, after a backup",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="the server's name in the host; default: its own name",
    )
    parser.add_argument(
        "--env",
        metavar="KEY=VALUE",
        type=_variable,
        action="append",
        default=[],
        help="start the server with this environment variable; may be repeated",
    )
    parser.add_argument(
        "--http",
        metavar="URL",
        help="connect to the server at this URL instead of starting it",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace a different entry of the same name",
    )


def config(options: argparse.Namespace) -> int:
    """Print an entry for a server, or add it to a host's file."""
    host_name = options.host or _host_of_file(options.into)
    _check(options, host_name)
    host = HOSTS[host_name]
    name = _name(options)
    if options.http:
        entry = host.with_url | {host.url_key: options.http}
    else:
        entry = host.with_command | _entry_with_command(options.spec, options.env)
    if options.into is None:
        whole = {host.key: {name: entry}}
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        print(
            put_entry(
                options.into,
                host.key,
                name,
                entry,
                force=options.force,
                other_hosts=_other_hosts(host.key),
            )
        )
    return 0


def _name(options: argparse.Namespace) -> str:
    """Return the server's name in the host. Raises UsageError.

    A SPEC is always loaded, because an entry for a broken server would be useless.
    """
    name = ""
    if options.spec is not None or not options.http:
        name = _load_name(options.spec)
    name = options.name or name
    if not name:
        raise UsageError("config: expected --name NAME, the server's name in the host")
    return name


def _other_hosts(key: str) -> dict[str, str]:
    """Return a host for each of the other keys."""
    found: dict[str, str] = {}
    for name, host in HOSTS.items():
        if host.key != key:
            found.setdefault(host.key, name)
    return found


def _check(options: argparse.Namespace, host_name: str) -> None:
    """Raise UsageError for options that cannot be used, or not together."""
    if options.command:
        raise UsageError(
            f"config: expected a SPEC, got a command; for example: {PROG} config "
            "server.py"
        )
    if looks_like_url(options.spec):
        raise UsageError(
            f"config: expected a SPEC, got a URL; run: {PROG} config --http "
            f"{options.spec} --name NAME"
        )
    if options.http:
        if not looks_like_url(options.http) or options.http.startswith("ws"):
            raise UsageError(
                "--http: expected a URL such as http://127.0.0.1:8000/mcp, got "
                f"{options.http!r}"
            )
        if not HOSTS[host_name].url_key:
            raise UsageError(
                f"--http: the file of {host_name} does not support URLs; give a SPEC "
                "to start, or add the URL in its settings for connectors"
            )
        if options.env:
            raise UsageError(
                "--env: cannot be combined with --http, because the host does not "
                "start a server at a URL; leave out one of them"
            )


def _host_of_file(file: Path | None) -> str:
    """Return the host that a configuration file belongs to."""
    path = f"/{file.absolute().as_posix()}" if file else ""
    for name, host in HOSTS.items():
        if path.endswith(f"/{host.file}"):
            return name
    return DEFAULT_HOST


def _load_name(spec: str | None) -> str:
    """Return the name that a server gives itself, as hosts accept it."""
    # Standard output is for the entry, and not for what the user's module prints.
    with redirect_stdout(sys.stderr):
        server = load(DEMO if spec is None else spec)
    words = re.sub(r"[^\w-]+", "-", server.info.name, flags=re.ASCII)
    return words.strip("-")


def _entry_with_command(spec: str | None, variables: list[tuple[str, str]]) -> Json:
    """Return the command that serves a loaded SPEC, from any folder."""
    arguments = ["-m", "mcp_trio", "run"]
    paths = []
    if spec is not None:
        arguments.append(absolute(spec))
        root = import_root(spec)
        if root is not None:
            paths.append(root)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths += [os.path.abspath(path) for path in inherited if path]
    env = {}
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    env.update(variables)
    entry: Json = {"command": sys.executable, "args": arguments}
    if env:
        entry["env"] = env
    return entry
