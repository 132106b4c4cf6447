"""The command line. Each command is a function, with what its parser takes, in the table COMMANDS.

An error is one plain line on stderr and exit code 2; a tool that fails is exit code 1.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from msgspec.structs import replace

from ..client.target import is_url
from ..load_spec import UsageError, load
from ..protocol.revisions import PROFILES
from ..serve import serve
from ..server.app import Server
from . import token as cli_access
from .log_format import FORMATTERS
from .options import (
    DEMO,
    PROG,
    SPEC_HELP,
    Parser,
    address,
    at_terminal,
    listening,
    one_of,
    rate,
    seconds,
    timeout,
)

if TYPE_CHECKING:
    from .reload import Reloader

HTTP_ENGINES = ("native", "hypercorn")
TRANSPORTS = ("stdio", "http", "streamable-http", "sse", "ws")
SHORT = {"transport": ["-t"], "port": ["-p"], "host": ["-H"]}
# Flags without a value.
SWITCHES = {
    "stdio": "serve on standard input and output (the default)",
    "log_arguments": "log what calls were given, too",
    "cors": "let the pages of any site come: for development",
    "reload": "offer what a changed file of the SPEC says now; the lifespan and the options of Server(...) stay",
}
# Flags that say where to serve, in our way and in the other one.
PLACES, IN_WORDS = ("stdio", "http", "ws"), ("transport", "port", "host")
LOG_LEVELS = ("debug", "info", "warning", "error")


# run


def _port(text: str) -> int:
    """The number of a port; 0 is any that is free."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(
            f"a port is wanted, a number up to 65535 such as 8000, not {text!r}"
        )
    return int(text)


def _number(text: str) -> int:
    """A whole number, at least 1."""
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) > 0):
        raise argparse.ArgumentTypeError(
            f"a whole number is wanted, at least 1, not {text!r}"
        )
    return int(text)


def _switch(text: str) -> bool:
    """Whether something is to be."""
    if (word := text.lower()) not in (
        "1",
        "true",
        "yes",
        "on",
        "0",
        "false",
        "no",
        "off",
    ):
        raise argparse.ArgumentTypeError(f"1 or 0 is wanted, not {text!r}")
    return word in ("1", "true", "yes", "on")


def _listed(text: str) -> list[str]:
    """Words with commas between them."""
    return text.split(",")


def _run_arguments(parser: Parser) -> None:
    parser.description = f"{parser.description}\nEach flag can be given as MCP_TRIO_<NAME> in the environment too."
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    for name, help in SWITCHES.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", action="store_true", help=help
        )
    for name, (metavar, convert, help) in SETTINGS.items():
        action = "extend" if convert is _listed else "store"
        flags = [*SHORT.get(name, ()), f"--{name.replace('_', '-')}"]
        parser.add_argument(
            *flags, metavar=metavar, type=convert, action=action, help=help
        )


# The flags of `run` that have a value, which MCP_TRIO_<NAME> gives where they are left out.
SETTINGS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "http": ("[HOST:]PORT", address, "serve over HTTP (and WebSocket) there"),
    "http_engine": (
        "NAME",
        one_of(HTTP_ENGINES),
        "native; or hypercorn, for HTTP/2: slower, without WebSocket, and it does not see the end of a client that"
        " has sent more behind a request that runs",
    ),
    "ws": ("[HOST:]PORT", address, "serve WebSocket alone there"),
    "console": (
        "[HOST:]PORT",
        address,
        "serve a page there to look at the server, and call it, in a browser",
    ),
    "transport": (
        "NAME",
        one_of(TRANSPORTS),
        f"{', '.join(TRANSPORTS)}: --stdio, --http or --ws in other words; sse is HTTP, which has /sse too",
    ),
    "port": (
        "PORT",
        _port,
        "for --transport, which is http then unless it is given (8000)",
    ),
    "host": ("NAME", str, "for --transport, likewise (127.0.0.1)"),
    "path": ("PATH", str, "of the MCP endpoint on HTTP (/mcp)"),
    "allowed_host": ("NAME", _listed, "a name by which HTTP clients may come"),
    "allowed_origin": ("URL", _listed, "a site whose pages may come"),
    "token_file": (
        "FILE",
        str,
        "let those in over HTTP and WebSocket whose tokens it lists; `token` makes one",
    ),
    "tls_cert": ("FILE", str, "serve HTTP over TLS, with this certificate"),
    "tls_key": ("FILE", str, "and this key"),
    "grace": ("SECONDS", seconds, "what running requests get at the end (5)"),
    "timeout": (
        "SECONDS",
        timeout,
        "for each tool, resource or prompt that has none of its own",
    ),
    "rate": (
        "RATE",
        rate,
        "of calls, for each sender: 10/s, 100/m, 1000/h, with a burst 10/s:50",
    ),
    "max_in_flight": ("NUMBER", _number, "how many requests may run at once"),
    "threads": (
        "NUMBER",
        _number,
        "worker threads for functions that are not async (64)",
    ),
    "max_result": ("BYTES", _number, "of a result; texts that are longer are cut"),
    "profile": ("NAME", one_of(PROFILES), "pocket: for small agents"),
    "log_level": ("LEVEL", one_of(LOG_LEVELS), ", ".join(LOG_LEVELS)),
    "log_format": ("FORMAT", one_of(FORMATTERS), "text, or json: an object a line"),
}


def _given(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if getattr(options, name) is not None and getattr(options, name) is not False
    ]


def _fill_from_environment(options: argparse.Namespace) -> None:
    converters = {
        name: convert for name, (_, convert, _) in SETTINGS.items()
    } | dict.fromkeys(SWITCHES, _switch)
    told = {*_given(options, converters)}
    # Where a flag says where to serve, variables that say it in the other way do not count.
    told |= {
        name
        for one, other in ((PLACES, IN_WORDS), (IN_WORDS, PLACES))
        if told & {*one}
        for name in other
    }
    for name in converters.keys() - told:
        variable = f"MCP_TRIO_{name.upper()}"
        if text := os.environ.get(variable):
            try:
                setattr(options, name, converters[name](text))
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"{variable}: {error}") from None


def _settle_where(options: argparse.Namespace) -> None:
    """Have --transport, --port and --host say it as --stdio, --http and --ws do."""
    in_words = [f"--{name}" for name in _given(options, IN_WORDS)]
    if not in_words:
        return
    if places := [f"--{name}" for name in _given(options, PLACES)]:
        raise UsageError(
            f"{in_words[0]} and {places[0]} both say where to serve; give one of them"
        )
    if options.transport == "stdio":
        if in_words[1:]:
            raise UsageError(
                f"--transport stdio has no {in_words[1]}; leave it out, or give --transport http"
            )
        options.stdio = True
        return
    host, port = (
        options.host or "127.0.0.1",
        8000 if options.port is None else options.port,
    )
    setattr(
        options,
        "ws" if options.transport == "ws" else "http",
        f"[{host.strip('[]')}]:{port}",
    )


def _serve(options: argparse.Namespace) -> int:
    """Serve a SPEC, or the demo server."""
    from ..transports.stdio import claim

    if options.command:
        raise UsageError(
            f"run serves a SPEC, not a command; to look at one: {PROG} inspect -- {' '.join(options.command)}"
        )
    if is_url(options.spec):
        raise UsageError(
            f"run serves a SPEC, not a URL; to look at what is there: {PROG} inspect {options.spec}"
        )
    _fill_from_environment(options)
    _settle_where(options)
    _log(options)
    on_stdio, by_hand = options.stdio or not (options.http or options.ws), at_terminal()
    if options.reload:
        sys.dont_write_bytecode = True  # it would be stale where a file changes within a second and keeps its size
    with (
        claim() if on_stdio else nullcontext(False) as stdio
    ):  # before the user's module is imported, which may print
        server = load(DEMO if options.spec is None else options.spec)
        reloader = _reloader(server, options.spec) if options.reload else None
        server.grace = server.grace if options.grace is None else options.grace
        _limit(server, options)
        server.event_log.with_arguments = options.log_arguments
        if options.profile is not None:
            server.use_profile(options.profile)
        if options.token_file is not None:
            cli_access.let_in(server, options.token_file)
        if on_stdio and by_hand:
            _explain(server)
        trio.run(_serve_and_say, server, options, stdio, reloader)
    return 0


def _limit(server: Server, options: argparse.Namespace) -> None:
    given = {
        name: getattr(options, name)
        for name in ("timeout", "rate", "max_in_flight", "max_result", "threads")
    }
    server.use_limits(
        replace(
            server.limits,
            **{name: value for name, value in given.items() if value is not None},
        )
    )


def _log(options: argparse.Namespace) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[options.log_format or "text"]())
    logging.basicConfig(
        level=(options.log_level or "warning").upper(), handlers=[handler]
    )


def _reloader(server: Server, spec: str | None) -> Reloader:
    from .reload import Reloader

    if spec is None:
        raise UsageError(
            f"--reload wants a SPEC, as in: {PROG} run server.py --reload; the demo does not change"
        )
    return Reloader(server, spec)


async def _serve_and_say(
    server: Server,
    options: argparse.Namespace,
    stdio: bool | tuple[int, int],
    reloader: Reloader | None,
) -> None:
    if (options.tls_cert is None) != (options.tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together")
    if options.tls_cert is not None:
        _must_be_a_pair(options.tls_cert, options.tls_key)
    chosen = {
        name: getattr(options, name)
        for name in ("http", "ws", "console", "http_engine", "path", "cors")
    }
    chosen |= {
        "allowed_hosts": options.allowed_host,
        "allowed_origins": options.allowed_origin,
    }
    chosen["tls"] = options.tls_cert and (options.tls_cert, options.tls_key)
    start = partial(
        serve,
        server,
        stdio=stdio,
        **{name: value for name, value in chosen.items() if value},
    )
    places = [place for place in (options.http, options.ws, options.console) if place]
    with listening(*places):
        async with (
            reloader.following() if reloader else nullcontext(),
            trio.open_nursery() as nursery,
        ):
            for url in await nursery.start(start):
                print(f"Serving {server.info.name!r} on {url}", file=sys.stderr)


def _must_be_a_pair(certificate: str, key: str) -> None:
    """Files that TLS can be served with. Raises UsageError."""
    import ssl

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            certificate, key
        )
    except OSError as error:
        missing = next(
            (file for file in (certificate, key) if not os.path.isfile(file)), None
        )
        why = (
            f"there is no file {missing}"
            if missing
            else f"they are no certificate and its key ({error})"
        )
        raise UsageError(
            f"--tls-cert {certificate} and --tls-key {key} cannot be used: {why}"
        ) from None


def _explain(server: Server) -> None:
    print(
        f"Serving {server.info.name!r} on standard input and output: waiting for a client's JSON-RPC messages.\n"
        "To see what it offers: python -m mcp_trio inspect [SPEC]. For all commands: python -m mcp_trio --help.\n"
        "To stop: Ctrl-C or Ctrl-D.",
        file=sys.stderr,
    )
