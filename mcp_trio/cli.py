"""The command line. Each command is a function, with what its parser takes, in the table COMMANDS.

An error is one plain line on stderr and exit code 2; a tool that fails is exit code 1.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import trio
from msgspec.structs import replace

from . import Server, __version__, cli_access, cli_bench, cli_completion, cli_config, cli_look, cli_traces
from .cli_types import (
    DEMO,
    PROG,
    SPEC_HELP,
    Parser,
    address,
    at_terminal,
    leaves,
    listening,
    one_of,
    rate,
    seconds,
    timeout,
)
from .client import RemoteError, ServerGone, is_url
from .client_messages import NoMessage
from .loading import Problem, did_you_mean, load, what_and_where
from .logs import FORMATTERS
from .protocol.revisions import PROFILES, REVISIONS
from .serve import serve
from .server.app import LIFESPAN_FAILED

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
# What to do about what a server says.
WANTS_TOKEN = "; give one with --token, or in MCP_TRIO_TOKEN"
HINTS = dict.fromkeys(("Bearer TOKEN is wanted", "HTTP 401", "status 401"), WANTS_TOKEN)
HINTS["Nothing is served under this path"] = "; the URL of an endpoint mostly ends in /mcp"
LOG_LEVELS = ("debug", "info", "warning", "error")


class Command(NamedTuple):
    """One command: what it takes, and what it does, as its docstring says, in the loop or not: to its exit code."""

    arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], Any]
    example: str

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        return (self.run.__doc__ or "").partition("\n")[0]


def main(given: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # closed: nobody wants to read
    try:
        try:
            return _main(list(sys.argv[1:] if given is None else given))
        finally:
            sys.stdout.flush()  # while what comes of it can be told
    except BrokenPipeError:  # whoever reads has had enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _main(words: list[str]) -> int:
    if words and words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[:1] == ["--version"]:
        words = ["version"]
    if not words or words[0].startswith("-"):
        words.insert(0, "run")
    try:
        return _run(words[0], words[1:])
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        if (code := _failed(error)) is None:
            raise
        return code


def _run(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS).strip(" ()") or f"to serve a file: {PROG} run FILE"
        raise Problem(f"there is no command {name!r}, only {', '.join(COMMANDS)}; {hint}")
    command = COMMANDS[name]
    parser = Parser(
        prog=f"{PROG} {name}",
        description=command.summary,
        epilog=f"example: {PROG} {name} {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.arguments(parser)
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_intermixed_args(words[:end])
    for word in words[:end]:
        _must_lead_somewhere(word)
    options.command = words[end + 1 :]
    waits = inspect.iscoroutinefunction(command.run)
    code: int = trio.run(command.run, options) if waits else command.run(options)
    return code


def _must_lead_somewhere(word: str) -> None:
    """A URL, where a word is one, has a host, and a port that there is. Raises Problem."""
    try:
        parts = urlsplit(word) if is_url(word) else None
        wrong = "" if parts is None or (parts.hostname and parts.port != 0) else "it has no host, or no port"
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise Problem(f"{word} is no URL of a server: {wrong}; one such as http://127.0.0.1:8000/mcp is wanted")


def _failed(error: BaseException) -> int | None:
    """The exit code for exceptions that are told in a line each; None where one needs its traceback."""
    problems = leaves(error)
    if any(isinstance(problem, KeyboardInterrupt) for problem in problems):
        return 130
    lines = [_line(problem) for problem in problems]
    if None in lines:
        return None
    for line in dict.fromkeys(lines):
        told = re.sub(r"\[Errno \d+\] ", "", line or "")
        hint = next((hint for words, hint in HINTS.items() if words in told), "")
        print(f"{PROG}: {told}{hint}", file=sys.stderr)
    return 2


def _line(error: BaseException) -> str | None:
    """An exception in one line; None where it needs its traceback."""
    if LIFESPAN_FAILED in getattr(error, "__notes__", ()):
        return f"{what_and_where(error)}, {LIFESPAN_FAILED}"
    if isinstance(error, RemoteError) and error.is_ours:
        return f"no answer from the server: {error.message}"
    if isinstance(error, RemoteError):
        return f"the server answered with an error: {error}"
    if isinstance(error, trio.BrokenResourceError):
        return str(error) or f"the connection broke: {error.__cause__ or 'the other end has closed it'}"
    return str(error) if isinstance(error, Problem | NoMessage | ServerGone | OSError) else None


def _overview() -> str:
    lines = "".join(f"  {name:<12}{command.summary}\n" for name, command in COMMANDS.items())
    return (
        f"usage: {PROG} [COMMAND] [...]   ({PROG} COMMAND --help says more)\n\n"
        f"Serves, shows and calls MCP servers. Without a command it is `run`.\n\n{lines}\n"
        f"example: {PROG} run server.py"
    )


# run


def _port(text: str) -> int:
    """The number of a port; 0 is any that is free."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is wanted, a number up to 65535 such as 8000, not {text!r}")
    return int(text)


def _number(text: str) -> int:
    """A whole number, at least 1."""
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"a whole number is wanted, at least 1, not {text!r}")
    return int(text)


def _switch(text: str) -> bool:
    """Whether something is to be."""
    if (word := text.lower()) not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise argparse.ArgumentTypeError(f"1 or 0 is wanted, not {text!r}")
    return word in ("1", "true", "yes", "on")


def _listed(text: str) -> list[str]:
    """Words with commas between them."""
    return text.split(",")


def _run_arguments(parser: Parser) -> None:
    parser.description = f"{parser.description}\nEach flag can be given as MCP_TRIO_<NAME> in the environment too."
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    for name, help in SWITCHES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=help)
    for name, (metavar, convert, help) in SETTINGS.items():
        action = "extend" if convert is _listed else "store"
        flags = [*SHORT.get(name, ()), f"--{name.replace('_', '-')}"]
        parser.add_argument(*flags, metavar=metavar, type=convert, action=action, help=help)


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
    "console": ("[HOST:]PORT", address, "serve a page there to look at the server, and call it, in a browser"),
    "transport": (
        "NAME",
        one_of(TRANSPORTS),
        f"{', '.join(TRANSPORTS)}: --stdio, --http or --ws in other words; sse is HTTP, which has /sse too",
    ),
    "port": ("PORT", _port, "for --transport, which is http then unless it is given (8000)"),
    "host": ("NAME", str, "for --transport, likewise (127.0.0.1)"),
    "path": ("PATH", str, "of the MCP endpoint on HTTP (/mcp)"),
    "allowed_host": ("NAME", _listed, "a name by which HTTP clients may come"),
    "allowed_origin": ("URL", _listed, "a site whose pages may come"),
    "token_file": ("FILE", str, "let those in over HTTP and WebSocket whose tokens it lists; `token` makes one"),
    "tls_cert": ("FILE", str, "serve HTTP over TLS, with this certificate"),
    "tls_key": ("FILE", str, "and this key"),
    "grace": ("SECONDS", seconds, "what running requests get at the end (5)"),
    "timeout": ("SECONDS", timeout, "for each tool, resource or prompt that has none of its own"),
    "rate": ("RATE", rate, "of calls, for each sender: 10/s, 100/m, 1000/h, with a burst 10/s:50"),
    "max_in_flight": ("NUMBER", _number, "how many requests may run at once"),
    "max_result": ("BYTES", _number, "of a result; texts that are longer are cut"),
    "profile": ("NAME", one_of(PROFILES), "pocket: for small agents"),
    "log_level": ("LEVEL", one_of(LOG_LEVELS), ", ".join(LOG_LEVELS)),
    "log_format": ("FORMAT", one_of(FORMATTERS), "text, or json: an object a line"),
}


def _given(options: argparse.Namespace, names: Iterable[str]) -> list[str]:
    return [name for name in names if getattr(options, name) is not None and getattr(options, name) is not False]


def _fill_from_environment(options: argparse.Namespace) -> None:
    converters = {name: convert for name, (_, convert, _) in SETTINGS.items()} | dict.fromkeys(SWITCHES, _switch)
    told = {*_given(options, converters)}
    # Where a flag says where to serve, variables that say it in the other way do not count.
    told |= {name for one, other in ((PLACES, IN_WORDS), (IN_WORDS, PLACES)) if told & {*one} for name in other}
    for name in converters.keys() - told:
        variable = f"MCP_TRIO_{name.upper()}"
        if text := os.environ.get(variable):
            try:
                setattr(options, name, converters[name](text))
            except argparse.ArgumentTypeError as error:
                raise Problem(f"{variable}: {error}") from None


def _settle_where(options: argparse.Namespace) -> None:
    """Have --transport, --port and --host say it as --stdio, --http and --ws do."""
    in_words = [f"--{name}" for name in _given(options, IN_WORDS)]
    if not in_words:
        return
    if places := [f"--{name}" for name in _given(options, PLACES)]:
        raise Problem(f"{in_words[0]} and {places[0]} both say where to serve; give one of them")
    if options.transport == "stdio":
        if in_words[1:]:
            raise Problem(f"--transport stdio has no {in_words[1]}; leave it out, or give --transport http")
        options.stdio = True
        return
    host, port = options.host or "127.0.0.1", 8000 if options.port is None else options.port
    setattr(options, "ws" if options.transport == "ws" else "http", f"[{host.strip('[]')}]:{port}")


def _serve(options: argparse.Namespace) -> int:
    """Serve a SPEC, or the demo server."""
    from .transports.stdio import claim

    if options.command:
        raise Problem(
            f"run serves a SPEC, not a command; to look at one: {PROG} inspect -- {' '.join(options.command)}"
        )
    if is_url(options.spec):
        raise Problem(f"run serves a SPEC, not a URL; to look at what is there: {PROG} inspect {options.spec}")
    _fill_from_environment(options)
    _settle_where(options)
    _log(options)
    on_stdio, by_hand = options.stdio or not (options.http or options.ws), at_terminal()
    if options.reload:
        sys.dont_write_bytecode = True  # it would be stale where a file changes within a second and keeps its size
    with claim() if on_stdio else nullcontext(False) as stdio:  # before the user's module is imported, which may print
        server = load(DEMO if options.spec is None else options.spec)
        reloader = _reloader(server, options.spec) if options.reload else None
        server.grace = server.grace if options.grace is None else options.grace
        _limit(server, options)
        server.journal.with_arguments = options.log_arguments
        if options.profile is not None:
            server.use_profile(options.profile)
        if options.token_file is not None:
            cli_access.let_in(server, options.token_file)
        if on_stdio and by_hand:
            _explain(server)
        trio.run(_serve_and_say, server, options, stdio, reloader)
    return 0


def _limit(server: Server, options: argparse.Namespace) -> None:
    given = {name: getattr(options, name) for name in ("timeout", "rate", "max_in_flight", "max_result")}
    server.use_limits(replace(server.limits, **{name: value for name, value in given.items() if value is not None}))


def _log(options: argparse.Namespace) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[options.log_format or "text"]())
    logging.basicConfig(level=(options.log_level or "warning").upper(), handlers=[handler])


def _reloader(server: Server, spec: str | None) -> Reloader:
    from .reload import Reloader

    if spec is None:
        raise Problem(f"--reload wants a SPEC, as in: {PROG} run server.py --reload; the demo does not change")
    return Reloader(server, spec)


async def _serve_and_say(
    server: Server, options: argparse.Namespace, stdio: bool | tuple[int, int], reloader: Reloader | None
) -> None:
    if (options.tls_cert is None) != (options.tls_key is None):
        raise Problem("--tls-cert and --tls-key go together")
    if options.tls_cert is not None:
        _must_be_a_pair(options.tls_cert, options.tls_key)
    chosen = {name: getattr(options, name) for name in ("http", "ws", "console", "http_engine", "path", "cors")}
    chosen |= {"allowed_hosts": options.allowed_host, "allowed_origins": options.allowed_origin}
    chosen["tls"] = options.tls_cert and (options.tls_cert, options.tls_key)
    start = partial(serve, server, stdio=stdio, **{name: value for name, value in chosen.items() if value})
    places = [place for place in (options.http, options.ws, options.console) if place]
    with listening(*places):
        async with reloader.following() if reloader else nullcontext(), trio.open_nursery() as nursery:
            for url in await nursery.start(start):
                print(f"Serving {server.info.name!r} on {url}", file=sys.stderr)


def _must_be_a_pair(certificate: str, key: str) -> None:
    """Files that TLS can be served with. Raises Problem."""
    import ssl

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:
        missing = next((file for file in (certificate, key) if not os.path.isfile(file)), None)
        why = f"there is no file {missing}" if missing else f"they are no certificate and its key ({error})"
        raise Problem(f"--tls-cert {certificate} and --tls-key {key} cannot be used: {why}") from None


def _explain(server: Server) -> None:
    print(
        f"Serving {server.info.name!r} on standard input and output: waiting for a client's JSON-RPC messages.\n"
        "To see what it offers: python -m mcp_trio inspect [SPEC]. For all commands: python -m mcp_trio --help.\n"
        "To stop: Ctrl-C or Ctrl-D.",
        file=sys.stderr,
    )


# version


def _version(options: argparse.Namespace) -> int:
    """Print the versions, of itself and of the protocol."""
    print(f"mcp_trio {__version__} on Python {sys.version.split()[0]}, trio {trio.__version__}")
    print(f"speaks {', '.join(revision.name for revision in REVISIONS)}")
    return 0


COMMANDS = {
    "run": Command(_run_arguments, _serve, "server.py --grace 2"),
    "inspect": Command(cli_look.inspect_arguments, cli_look.inspect, "-- npx some-server"),
    "call": Command(cli_look.call_arguments, cli_look.call, cli_look.CALL),
    "record": Command(cli_traces.record_arguments, cli_traces.record, "-o new.jsonl server.py"),
    "replay": Command(cli_traces.replay_arguments, cli_traces.replay, "traces/ server.py"),
    "show": Command(cli_traces.show_arguments, cli_traces.show, "new.jsonl"),
    "bench": Command(cli_bench.arguments, cli_bench.bench, "server.py add a=1 b=2"),
    "token": Command(cli_access.arguments, cli_access.token, "alice --scope admin"),
    "config": Command(cli_config.arguments, cli_config.config, "server.py --into .cursor/mcp.json"),
    "completion": Command(cli_completion.arguments, cli_completion.completion, "bash"),
    "version": Command(lambda parser: None, _version, ""),
}
