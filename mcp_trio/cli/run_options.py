"""The options of `run`, which can also be set as environment variables."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..load_spec import UsageError
from ..protocol.revisions import PROFILES
from ..transports.http.settings import (
    check_host,
    check_origin,
    check_path,
    check_public_url,
)
from ..transports.http.trusted_proxies import check_cidr
from .log_format import FORMATTERS
from .options import (
    PROG,
    SPEC_HELP,
    Parser,
    address,
    checked_by,
    memory_size,
    one_of,
    rate,
    seconds,
    timeout,
)

HTTP_ENGINES = ("native", "hypercorn")
LOG_LEVELS = ("debug", "info", "warning", "error")
TRANSPORTS = ("stdio", "http", "streamable-http", "sse", "ws")
# There are two ways to say where to serve: `--http 8000`, and `-t http -p 8000`.
PLACES = ("stdio", "http", "ws")
PLACES_IN_WORDS = ("transport", "port", "host")

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


class Setting(NamedTuple):
    """An option with a value. It can also be set by the variable MCP_TRIO_<NAME>."""

    metavar: str
    convert: Callable[[str], object]
    help: str
    short: tuple[str, ...] = ()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"expected a port between 0 and 65535, got {text!r}"
        )
    return int(text)


def _positive(text: str) -> int:
    # A longer number is certainly wrong, and slow to parse.
    is_number = text.isascii() and text.isdigit() and len(text) < 18
    if not is_number or int(text) == 0:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1, got {text!r}"
        )
    return int(text)


class _comma_separated:
    """A type for comma-separated words, which `check` checks."""

    def __init__(self, check: Callable[[str], None]) -> None:
        self._convert = checked_by(check)

    def __call__(self, text: str) -> list[str]:
        """Parse the words."""
        return [self._convert(word.strip()) for word in text.split(",")]


def _switch(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE + _FALSE:
        raise argparse.ArgumentTypeError(f"expected 1 or 0, got {text!r}")
    return word in _TRUE


# Options without a value, and their help.
SWITCHES = {
    "stdio": "serve on standard input and output (the default)",
    "log_arguments": "include the arguments of calls in the log",
    "otel": "report requests and sessions to OpenTelemetry",
    "cors": "allow pages of every origin to call the server, for development",
    "stateless": (
        "serve HTTP without sessions in every revision, so that any process can serve "
        "any request"
    ),
    "reload": (
        "reload the SPEC, its pages and skills when a file changes, except for the "
        "lifespan and the options of Server(...)"
    ),
}
SETTINGS = {
    "http": Setting("[HOST:]PORT", address, "serve HTTP, and WebSocket, on this port"),
    "http_engine": Setting(
        "NAME",
        one_of(HTTP_ENGINES),
        "native, or hypercorn for HTTP/2; hypercorn is slower, has no WebSocket, and "
        "misses some disconnects of clients that pipeline requests",
    ),
    "ws": Setting("[HOST:]PORT", address, "serve WebSocket only on this port"),
    "console": Setting(
        "[HOST:]PORT",
        address,
        "serve a page on this port to inspect and call the server in a browser",
    ),
    "transport": Setting(
        "NAME",
        one_of(TRANSPORTS),
        f"{', '.join(TRANSPORTS)}: the same as --stdio, --http or --ws; sse is the "
        "same as http, which also serves /sse",
        ("-t",),
    ),
    "port": Setting(
        "PORT", _port, "the port for --transport, or else for HTTP (8000)", ("-p",)
    ),
    "host": Setting("NAME", str, "the host for --transport (127.0.0.1)", ("-H",)),
    "path": Setting(
        "PATH", checked_by(check_path), "the path of the MCP endpoint over HTTP (/mcp)"
    ),
    "public_url": Setting(
        "URL",
        checked_by(check_public_url),
        "the URL of the MCP endpoint for clients, if a proxy is in front of it",
    ),
    "trusted_proxy": Setting(
        "CIDR",
        _comma_separated(check_cidr),
        "trust X-Forwarded-For from proxies in this network, such as 10.0.0.0/8",
    ),
    "allowed_host": Setting(
        "NAME", _comma_separated(check_host), "accept this Host header"
    ),
    "allowed_origin": Setting(
        "URL",
        _comma_separated(check_origin),
        "allow pages of this origin to call the server",
    ),
    "token_file": Setting(
        "FILE",
        str,
        f"require a token from this file over HTTP and WebSocket; see {PROG} token",
    ),
    "tls_cert": Setting("FILE", str, "serve HTTP over TLS with this certificate"),
    "tls_key": Setting("FILE", str, "the private key of the certificate"),
    "store": Setting(
        "URL",
        str,
        "keep the state that processes share, such as tasks, in this Redis: "
        "redis://HOST:PORT/DB; or memory: (the default)",
    ),
    "workers": Setting(
        "NUMBER",
        _positive,
        "serve with this many processes; SIGHUP replaces them one after the other",
    ),
    "worker_timeout": Setting(
        "SECONDS",
        seconds,
        "kill and replace a worker that hangs for longer; 0 for never (30)",
    ),
    "skills": Setting(
        "FOLDER", str, "serve the skills in this folder, with or without a SPEC"
    ),
    "grace": Setting(
        "SECONDS", seconds, "how long running requests have to finish at shutdown (5)"
    ),
    "timeout": Setting(
        "SECONDS",
        timeout,
        "the time limit for each tool, resource or prompt that does not set its own",
    ),
    "rate": Setting(
        "RATE",
        rate,
        "the rate limit for each client: 10/s, 100/m, 1000/h, or with a burst 10/s:50",
    ),
    "max_in_flight": Setting(
        "NUMBER", _positive, "how many requests may run at the same time"
    ),
    "max_sessions": Setting(
        "NUMBER",
        _positive,
        "how many HTTP sessions may exist at the same time (10,000)",
    ),
    "task_slots": Setting(
        "NUMBER", _positive, "how many tasks may run at the same time (16)"
    ),
    "memory": Setting(
        "SIZE",
        memory_size,
        "the most memory that the server uses for all clients together, such as 512M "
        "(256M)",
    ),
    "threads": Setting(
        "NUMBER",
        _positive,
        "the number of worker threads for functions that are not async (64)",
    ),
    "max_result": Setting(
        "BYTES", _positive, "the largest result; longer texts are truncated"
    ),
    "profile": Setting("NAME", one_of(PROFILES), "pocket: for small agents"),
    "log_level": Setting("LEVEL", one_of(LOG_LEVELS), ", ".join(LOG_LEVELS)),
    "log_format": Setting(
        "FORMAT", one_of(FORMATTERS), "text, or json for one object per line"
    ),
}


def run_arguments(parser: Parser) -> None:
    """Declare the arguments of `run`."""
    parser.description = (
        f"{parser.description}\n"
        "Every option can also be set in the environment, as MCP_TRIO_<NAME>."
    )
    # argparse would list all options, which takes as long as parsing them.
    parser.usage = f"{PROG} run [OPTION...] [SPEC]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    for name, help in SWITCHES.items():
        parser.add_argument(_flag(name), action="store_true", help=help)
    for name, setting in SETTINGS.items():
        add_setting(parser, name, setting)


def add_setting(parser: Parser, name: str, setting: Setting | None = None) -> None:
    """Declare an option with a value; by default, the one of `run`."""
    if setting is None:
        setting = SETTINGS[name]
    parser.add_argument(
        *setting.short,
        _flag(name),
        metavar=setting.metavar,
        type=setting.convert,
        action="extend" if isinstance(setting.convert, _comma_separated) else "store",
        help=setting.help,
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def given(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return the names that have a value in the options."""
    return [name for name in names if getattr(options, name) not in (None, False)]


def fill_from_environment(options: argparse.Namespace) -> None:
    """Set the options that were not given from the environment. Raises UsageError."""
    settled = set(given(options, [*SWITCHES, *SETTINGS]))
    # An option that says where to serve overrides variables of the other form.
    if settled.intersection(PLACES):
        settled.update(PLACES_IN_WORDS)
    elif settled.intersection(PLACES_IN_WORDS):
        settled.update(PLACES)
    for name in SWITCHES:
        if name not in settled:
            _set_from_environment(options, name, _switch)
    fill_settings(options, SETTINGS.keys() - settled)


def fill_settings(options: argparse.Namespace, names: Iterable[str]) -> None:
    """Set the named options that have no value from the environment.

    Raises UsageError.
    """
    missing = set(names).difference(given(options, names))
    for name, setting in SETTINGS.items():
        if name in missing:
            _set_from_environment(options, name, setting.convert)


def _set_from_environment(
    options: argparse.Namespace, name: str, convert: Callable[[str], object]
) -> None:
    variable = f"MCP_TRIO_{name.upper()}"
    text = os.environ.get(variable)
    if not text:
        return
    try:
        setattr(options, name, convert(text))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{variable}: {error}") from None


def resolve_places(options: argparse.Namespace) -> None:
    """Turn --transport, --port and --host into --stdio, --http or --ws.

    Raises UsageError for options that contradict each other.
    """
    in_words = [_flag(name) for name in given(options, PLACES_IN_WORDS)]
    if not in_words:
        return
    places = [_flag(name) for name in given(options, PLACES)]
    if places:
        raise UsageError(
            f"{in_words[0]} and {places[0]} both say where to serve; use one of them"
        )
    if options.transport == "stdio":
        if len(in_words) > 1:
            raise UsageError(
                f"{in_words[1]} does not apply to --transport stdio; leave it out, or "
                "use --transport http"
            )
        options.stdio = True
        return
    host = (options.host or "127.0.0.1").strip("[]")
    port = 8000 if options.port is None else options.port
    place = f"[{host}]:{port}"
    if options.transport == "ws":
        options.ws = place
    else:
        options.http = place
