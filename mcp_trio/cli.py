"""The command line. Each command is a function, with what its parser takes, in the table COMMANDS.

An error is one plain line on stderr and exit code 2; a tool that fails is exit code 1.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec
import trio

from . import Server, __version__, cli_bench, cli_traces
from .loading import FORMS, NAMES, Problem, load, what_and_where
from .protocol.model import Json
from .protocol.revisions import PROFILES, REVISIONS
from .server.app import LIFESPAN_FAILED

if TYPE_CHECKING:
    from .client import Client

PROG = "mcp-trio"
SPEC_HELP = f"{FORMS} (looks for {', '.join(NAMES)}); default: a demo"
DEMO = f"{__package__}.demo"
HTTP_ENGINES = ("native", "hypercorn")
LOG_LEVELS = ("debug", "info", "warning", "error")
# What a server of any age understands: to those that open a session it is the newest, others agree on less.
SPOKEN = next(revision.name for revision in reversed(REVISIONS) if revision.opens)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")


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
    words = list(sys.argv[1:] if given is None else given)
    if words and words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[:1] == ["--version"]:
        words = ["version"]
    if not words or words[0].startswith("-"):
        words.insert(0, "run")
    try:
        return _run(words[0], words[1:])
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        if (code := _failed(error)) is None:
            raise
        return code


def _run(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        raise Problem(f"there is no command {name!r}, only {', '.join(COMMANDS)}; to serve a file: {PROG} run FILE")
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
    options.command = words[end + 1 :]
    waits = inspect.iscoroutinefunction(command.run)
    code: int = trio.run(command.run, options) if waits else command.run(options)
    return code


def _failed(error: BaseException) -> int | None:
    """The exit code for exceptions that are told in a line each; None where one needs its traceback."""
    problems = _leaves(error)
    if any(isinstance(problem, KeyboardInterrupt) for problem in problems):
        return 130
    lines = [_line(problem) for problem in problems]
    if None in lines:
        return None
    for line in dict.fromkeys(lines):
        print(f"{PROG}: {line}", file=sys.stderr)
    return 2


def _leaves(error: BaseException, notes: Sequence[str] = ()) -> list[BaseException]:
    """What groups are made of; what was noted on a group is noted on each."""
    error.__notes__ = [*notes, *getattr(error, "__notes__", ())]
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner, error.__notes__)]
    return [error]


def _line(error: BaseException) -> str | None:
    """An exception in one line; None where it needs its traceback."""
    from .client import RemoteError, ServerGone

    if LIFESPAN_FAILED in getattr(error, "__notes__", ()):
        return f"{what_and_where(error)}, {LIFESPAN_FAILED}"
    if isinstance(error, msgspec.DecodeError):
        return "what answered is no MCP server: it wrote a line that is not JSON"
    if isinstance(error, RemoteError):
        return f"the server answered with an error: {error}"
    return str(error) if isinstance(error, Problem | ServerGone | OSError) else None


def _overview() -> str:
    lines = "".join(f"  {name:<10}{command.summary}\n" for name, command in COMMANDS.items())
    return (
        f"usage: {PROG} [COMMAND] [...]   ({PROG} COMMAND --help says more)\n\n"
        f"Serves, shows and calls MCP servers. Without a command it is `run`.\n\n{lines}\n"
        f"example: {PROG} run server.py"
    )


# run


def _run_arguments(parser: Parser) -> None:
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument("--stdio", action="store_true", help="serve on standard input and output (the default)")
    parser.add_argument("--cors", action="store_true", help="let the pages of any site come: for development")
    for name, (metavar, convert, help) in SETTINGS.items():
        action = "extend" if convert is _words else "store"
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, metavar=metavar, type=convert, action=action, help=help)


def _address(text: str) -> str:
    from .serve import address

    try:
        address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds is wanted, such as 5 or 0.5, not {text!r}")
    return seconds


def _timeout(text: str) -> float:
    if (seconds := _seconds(text)) == 0:
        raise argparse.ArgumentTypeError("a timeout of 0 seconds leaves no time for anything")
    return seconds


def _one_of(words: Sequence[str] | dict[str, Any]) -> Callable[[str], str]:
    def one(text: str) -> str:
        if text not in words:
            raise argparse.ArgumentTypeError(f"{' or '.join(words)} is wanted, not {text!r}")
        return text

    return one


def _words(text: str) -> list[str]:
    return text.split(",")


# The flags of `run` that have a value, which MCP_TRIO_<NAME> gives where they are left out.
SETTINGS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "http": ("[HOST:]PORT", _address, "serve over HTTP (and WebSocket) there"),
    "http_engine": (
        "NAME",
        _one_of(HTTP_ENGINES),
        "native; or hypercorn, for HTTP/2: slower, without WebSocket, and it does not see the end of a client that"
        " has sent more behind a request that runs",
    ),
    "ws": ("[HOST:]PORT", _address, "serve WebSocket alone there"),
    "console": ("[HOST:]PORT", _address, "serve a page there to look at the server, and call it, in a browser"),
    "path": ("PATH", str, "of the MCP endpoint on HTTP (/mcp)"),
    "allowed_host": ("NAME", _words, "a name by which HTTP clients may come"),
    "allowed_origin": ("URL", _words, "a site whose pages may come"),
    "tls_cert": ("FILE", str, "serve HTTP over TLS, with this certificate"),
    "tls_key": ("FILE", str, "and this key"),
    "grace": ("SECONDS", _seconds, "what running requests get at the end (5)"),
    "timeout": ("SECONDS", _timeout, "for each tool that has none of its own"),
    "profile": ("NAME", _one_of(PROFILES), "pocket: for small agents"),
    "log_level": ("LEVEL", lambda text: _one_of(LOG_LEVELS)(text.lower()), ", ".join(LOG_LEVELS)),
}


def _fill_from_environment(options: argparse.Namespace) -> None:
    for name, (_, convert, _) in SETTINGS.items():
        variable = f"MCP_TRIO_{name.upper()}"
        if getattr(options, name) is None and (text := os.environ.get(variable)):
            try:
                setattr(options, name, convert(text))
            except argparse.ArgumentTypeError as error:
                raise Problem(f"{variable}: {error}") from None


def _serve(options: argparse.Namespace) -> int:
    """Serve a SPEC, or the demo server."""
    from .transports.stdio import claim

    if options.command:
        raise Problem(
            f"run serves a SPEC, not a command; to look at one: {PROG} inspect -- {' '.join(options.command)}"
        )
    _fill_from_environment(options)
    level = (options.log_level or "warning").upper()
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    on_stdio, at_terminal = options.stdio or not (options.http or options.ws), _at_terminal()
    with claim() if on_stdio else nullcontext(False) as stdio:  # before the user's module is imported, which may print
        server = load(options.spec or DEMO)
        server.grace = server.grace if options.grace is None else options.grace
        server.timeout = server.timeout if options.timeout is None else options.timeout
        if options.profile is not None:
            server.use_profile(options.profile)
        if on_stdio and at_terminal:
            _explain(server)
        trio.run(_serve_and_say, server, options, stdio)
    return 0


async def _serve_and_say(server: Server, options: argparse.Namespace, stdio: bool | tuple[int, int]) -> None:
    from .serve import serve

    if (options.tls_cert is None) != (options.tls_key is None):
        raise Problem("--tls-cert and --tls-key go together")
    chosen = {name: getattr(options, name) for name in ("http", "ws", "console", "http_engine", "path", "cors")}
    chosen |= {"allowed_hosts": options.allowed_host, "allowed_origins": options.allowed_origin}
    chosen["tls"] = options.tls_cert and (options.tls_cert, options.tls_key)
    start = partial(serve, server, stdio=stdio, **{name: value for name, value in chosen.items() if value})
    async with trio.open_nursery() as nursery:
        for url in await nursery.start(start):
            print(f"Serving {server.info.name!r} on {url}", file=sys.stderr)


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _explain(server: Server) -> None:
    print(
        f"Serving {server.info.name!r} on standard input and output: waiting for a client's JSON-RPC messages.\n"
        "To see what it offers: python -m mcp_trio inspect [SPEC]. For all commands: python -m mcp_trio --help.\n"
        "To stop: Ctrl-C or Ctrl-D.",
        file=sys.stderr,
    )


# A TARGET: a server in this process, a command's, or one at a URL


def _target_arguments(parser: Parser) -> None:
    parser.add_argument("--revision", metavar="DATE", type=_one_of([r.name for r in REVISIONS]), help="to be spoken")


@asynccontextmanager
async def _client(spec: str | None, options: argparse.Namespace, **about: Any) -> AsyncIterator[Client]:
    """A client of a TARGET. What the target prints goes to stderr."""
    from . import client, testing

    revision = options.revision or SPOKEN
    with redirect_stdout(sys.stderr):
        if options.command or client.is_url(spec):
            found = client.connect(options.command or str(spec), revision, **about)
        else:
            found = testing.connect(load(spec or DEMO), revision, **about)
        async with found as connected:
            yield connected


# inspect


def _inspect_arguments(parser: Parser) -> None:
    parser.usage = f"{PROG} inspect [--json] [--revision DATE] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument("--json", action="store_true", help="print it as the wire has it")
    _target_arguments(parser)


async def _inspect(options: argparse.Namespace) -> int:
    """List the tools, resources, templates and prompts of a server."""
    from .terminal import as_json, table

    async with _client(options.spec, options) as client:
        offered = {
            **client.server,
            "tools": await _listed(client.list_tools),
            "resources": await _listed(client.list_resources),
            "resourceTemplates": await _listed(client.list_templates),
            "prompts": await _listed(client.list_prompts),
        }
    print(as_json(offered) if options.json else table(offered))
    return 0


async def _listed(list_all: Callable[[], Any]) -> list[Json]:
    from .client import RemoteError

    try:
        return list(await list_all())
    except RemoteError as error:
        if error.code == -32601:  # a server need not have this kind at all
            return []
        raise


# call


def _call_arguments(parser: Parser) -> None:
    parser.usage = (
        f"{PROG} call [--json OBJECT] [--revision DATE] SPEC|URL TOOL [KEY=VALUE...]\n"
        f"       {PROG} call [--json OBJECT] [--revision DATE] TOOL [KEY=VALUE...] -- COMMAND..."
    )
    parser.add_argument(
        "words", nargs="*", metavar="SPEC TOOL KEY=VALUE", help="a VALUE is read as the tool's schema has it"
    )
    parser.add_argument("--json", metavar="OBJECT", help="the arguments, as one JSON object")
    _target_arguments(parser)


async def _call(options: argparse.Namespace) -> int:
    """Call a tool and print what it answers.

    A tool that fails is exit code 1, in every revision whose results say so: the first one's do not.
    """
    from .terminal import answer, arguments, named, printed

    words = [None, *options.words] if options.command else options.words
    if len(words) < 2:
        raise Problem(f"call wants a target and a tool, as in: {PROG} call {COMMANDS['call'].example}")
    spec, name, *pairs = words
    given = _object(options.json) if options.json else {}
    asks: Json = {"capabilities": {"elicitation": {"form": {}}}, "answer": answer} if _at_terminal() else {}
    async with _client(spec, options, **asks) as client:
        given |= arguments(named(await client.list_tools(), name), pairs)
        async with trio.open_nursery() as nursery:
            if sys.stderr.isatty():
                nursery.start_soon(_show_progress, client)
            result = await client.call_tool(name, given, meta={"progressToken": "call"})
            nursery.cancel_scope.cancel()
    print(printed(result), file=sys.stderr if result.is_error else sys.stdout)
    return 1 if result.is_error else 0


def _object(text: str) -> Json:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Problem(f"--json: one JSON object is wanted: {error}") from None


async def _show_progress(client: Client) -> None:
    shown = 0
    while True:
        heard = await client.hear("notifications/progress", shown + 1)
        for params in [message["params"] for message in heard[shown:]]:
            of = f"/{params['total']:g}" if "total" in params else ""
            print(f"{params['progress']:g}{of} {params.get('message', '')}".rstrip(), file=sys.stderr)
        shown = len(heard)


# version


def _version_arguments(parser: Parser) -> None:
    """It takes none."""


def _version(options: argparse.Namespace) -> int:
    """Print the versions, of itself and of the protocol."""
    print(f"mcp_trio {__version__} on Python {sys.version.split()[0]}, trio {trio.__version__}")
    print(f"speaks {', '.join(revision.name for revision in REVISIONS)}")
    return 0


COMMANDS = {
    "run": Command(_run_arguments, _serve, "server.py --grace 2"),
    "inspect": Command(_inspect_arguments, _inspect, "-- npx some-server"),
    "call": Command(_call_arguments, _call, "server.py add a=1 b=2"),
    "record": Command(cli_traces.record_arguments, cli_traces.record, "-o new.jsonl server.py"),
    "replay": Command(cli_traces.replay_arguments, cli_traces.replay, "traces/ server.py"),
    "show": Command(cli_traces.show_arguments, cli_traces.show, "new.jsonl"),
    "bench": Command(cli_bench.arguments, cli_bench.bench, "server.py add a=1 b=2"),
    "version": Command(_version_arguments, _version, ""),
}
