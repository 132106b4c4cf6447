"""The command line. Each command is a function, with what its parser takes, in the table COMMANDS.

An error is one plain line on stderr and exit code 2; a tool that fails is exit code 1.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec
import trio

from . import Server, __version__
from .loading import Problem, load, what_and_where
from .protocol.model import Json
from .protocol.revisions import PROFILES, REVISIONS
from .server.app import LIFESPAN_FAILED

if TYPE_CHECKING:
    from .client import Client, Result

PROG = "mcp-trio"
SPEC_HELP = (
    "server.py, server.py:obj, package.module or package.module:obj (looks for server, mcp, app); default: a demo"
)
HTTP_ENGINES = ("native", "hypercorn")
LOG_LEVELS = ("debug", "info", "warning", "error")
# What a server of any age understands: to those that open a session it is the newest, others agree on less.
SPOKEN = next(revision.name for revision in reversed(REVISIONS) if revision.opens)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says more\n")


class Command(NamedTuple):
    """One command: what it takes, and what it does, which returns the exit code."""

    arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], int]
    summary: str
    example: str


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
        epilog=f"example: {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.arguments(parser)
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_intermixed_args(words[:end])
    options.command = words[end + 1 :]
    return command.run(options)


def _failed(error: BaseException) -> int | None:
    """The exit code for exceptions that are told in a line each; None where one needs its traceback."""
    problems = list(_leaves(error))
    if any(isinstance(problem, KeyboardInterrupt) for problem in problems):
        return 130
    lines = [_line(problem) for problem in problems]
    if None in lines:
        return None
    for line in dict.fromkeys(lines):
        print(f"{PROG}: {line}", file=sys.stderr)
    return 2


def _leaves(error: BaseException, notes: Sequence[str] = ()) -> Iterator[BaseException]:
    """What groups are made of; what was noted on a group is noted on each."""
    notes = [*notes, *getattr(error, "__notes__", ())]
    if not isinstance(error, BaseExceptionGroup):
        error.__notes__ = notes
        yield error
        return
    for inner in error.exceptions:
        yield from _leaves(inner, notes)


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
    lines = [f"  {name:<10}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROG} [COMMAND] [...]   ({PROG} COMMAND --help says more)",
            "",
            "Serves, shows and calls MCP servers. Without a command it is `run`.",
            "",
            *lines,
            "",
            f"example: {PROG} run server.py",
        ]
    )


# run


def _run_arguments(parser: Parser) -> None:
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument("--stdio", action="store_true", help="serve on standard input and output (the default)")
    parser.add_argument("--http", metavar="[HOST:]PORT", type=_address, help="serve over HTTP (and WebSocket) there")
    parser.add_argument(
        "--http-engine",
        metavar="NAME",
        type=_one_of(HTTP_ENGINES),
        help="native; or hypercorn, for HTTP/2: slower, without WebSocket, and it does not see the end of a client that"
        " has sent more behind a request that runs",
    )
    parser.add_argument("--ws", metavar="[HOST:]PORT", type=_address, help="serve WebSocket alone there")
    parser.add_argument("--path", metavar="PATH", help="of the MCP endpoint on HTTP (/mcp)")
    parser.add_argument("--allowed-host", metavar="NAME", action="append", help="a name by which HTTP clients may come")
    parser.add_argument("--allowed-origin", metavar="URL", action="append", help="a site whose pages may come")
    parser.add_argument("--cors", action="store_true", help="let the pages of any site come: for development")
    parser.add_argument("--tls-cert", metavar="FILE", help="serve HTTP over TLS, with this certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="and this key")
    parser.add_argument("--grace", metavar="SECONDS", type=_seconds, help="what running requests get at the end (5)")
    parser.add_argument("--timeout", metavar="SECONDS", type=_timeout, help="for each tool that has none of its own")
    parser.add_argument("--profile", metavar="NAME", type=_one_of(PROFILES), help="pocket: for small agents")
    parser.add_argument("--log-level", metavar="LEVEL", type=_log_level, help=", ".join(LOG_LEVELS))


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


def _log_level(text: str) -> str:
    return _one_of(LOG_LEVELS)(text.lower())


SETTINGS: dict[str, Callable[[str], Any]] = {
    "http": _address,
    "ws": _address,
    "http_engine": _one_of(HTTP_ENGINES),
    "path": str,
    "allowed_host": lambda text: text.split(","),
    "allowed_origin": lambda text: text.split(","),
    "tls_cert": str,
    "tls_key": str,
    "grace": _seconds,
    "timeout": _timeout,
    "profile": _one_of(PROFILES),
    "log_level": _log_level,
}
"""The flags of `run` that MCP_TRIO_<NAME> sets where they are not given."""


def _fill_from_environment(options: argparse.Namespace) -> None:
    for name, convert in SETTINGS.items():
        variable = f"MCP_TRIO_{name.upper()}"
        if getattr(options, name) is None and (text := os.environ.get(variable)):
            try:
                setattr(options, name, convert(text))
            except argparse.ArgumentTypeError as error:
                raise Problem(f"{variable}: {error}") from None


def _serve(options: argparse.Namespace) -> int:
    if options.command:
        raise Problem(
            f"run serves a SPEC, not a command; to look at one: {PROG} inspect -- {' '.join(options.command)}"
        )
    _fill_from_environment(options)
    _log(options.log_level or "warning")
    if (options.http or options.ws) and not options.stdio:
        server = _load(options.spec)
        _set_up(server, options)
        trio.run(_serve_and_say, server, options, False)
        return 0
    from .transports.stdio import claim

    at_terminal = _at_terminal()
    with claim() as descriptors:  # before the user's module is imported, which may print
        server = _load(options.spec)
        _set_up(server, options)
        if at_terminal:
            _explain(server)
        trio.run(_serve_and_say, server, options, descriptors)
    return 0


async def _serve_and_say(server: Server, options: argparse.Namespace, stdio: bool | tuple[int, int]) -> None:
    from .serve import serve

    if (options.tls_cert is None) != (options.tls_key is None):
        raise Problem("--tls-cert and --tls-key go together")
    async with trio.open_nursery() as nursery:
        start = partial(
            serve,
            server,
            stdio=stdio,
            http=options.http,
            ws=options.ws,
            http_engine=options.http_engine or "native",
            path=options.path or "/mcp",
            allowed_hosts=options.allowed_host or (),
            allowed_origins=options.allowed_origin or (),
            cors=options.cors,
            tls=(options.tls_cert, options.tls_key) if options.tls_cert else None,
        )
        for url in await nursery.start(start):
            print(f"Serving {server.info.name!r} on {url}", file=sys.stderr)


def _at_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _log(level: str) -> None:
    import logging

    logging.basicConfig(level=level.upper(), format="%(levelname)s %(name)s: %(message)s")


def _load(spec: str | None) -> Server:
    if spec is not None:
        return load(spec)
    from .demo import server

    return server


def _set_up(server: Server, options: argparse.Namespace) -> None:
    if options.grace is not None:
        server.grace = options.grace
    if options.timeout is not None:
        server.timeout = options.timeout
    if options.profile is not None:
        server.use_profile(options.profile)


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
    from . import client as clients
    from .testing import connect

    revision = options.revision or SPOKEN
    with redirect_stdout(sys.stderr):
        if options.command:
            try:
                async with (
                    clients.start(options.command, patience=2.0) as wire,
                    clients.talk(wire, revision, **about) as client,
                ):
                    yield client
            except (FileNotFoundError, PermissionError) as error:
                raise Problem(f"{options.command[0]} cannot be started: {error.strerror}") from None
        elif spec is not None and spec.startswith(("http://", "https://", "ws://", "wss://")):
            async with clients.connect(spec, revision, **about) as client:
                yield client
        else:
            async with connect(_load(spec), revision, **about) as client:
                yield client


# inspect


def _inspect_arguments(parser: Parser) -> None:
    parser.usage = f"{PROG} inspect [--json] [--revision DATE] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument("--json", action="store_true", help="print it as the wire has it")
    _target_arguments(parser)


def _inspect(options: argparse.Namespace) -> int:
    from .terminal import as_json, table

    offered = trio.run(_offered, options)
    print(as_json(offered) if options.json else table(offered))
    return 0


async def _offered(options: argparse.Namespace) -> Json:
    async with _client(options.spec, options) as client:
        return {
            **client.server,
            "tools": await _listed(client.list_tools),
            "resources": await _listed(client.list_resources),
            "resourceTemplates": await _listed(client.list_templates),
            "prompts": await _listed(client.list_prompts),
        }


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


def _call(options: argparse.Namespace) -> int:
    """A tool that fails is exit code 1, in every revision whose results say so: the first one's do not."""
    from .terminal import printed

    words = [None, *options.words] if options.command else options.words
    if len(words) < 2:
        raise Problem(f"call wants a target and a tool, as in: {COMMANDS['call'].example}")
    result = trio.run(lambda: _result(options, words[0], str(words[1]), words[2:]))
    failed = result.is_error
    print(printed(result), file=sys.stderr if failed else sys.stdout)
    return 1 if failed else 0


async def _result(options: argparse.Namespace, spec: str | None, name: str, pairs: list[str]) -> Result:
    from .terminal import answer, arguments

    given = _object(options.json) if options.json else {}
    asks: Json = {"capabilities": {"elicitation": {"form": {}}}, "answer": answer} if _at_terminal() else {}
    async with _client(spec, options, **asks) as client:
        tool = _found(await client.list_tools(), name)
        given |= arguments(tool, pairs)
        async with trio.open_nursery() as nursery:
            if sys.stderr.isatty():
                nursery.start_soon(_show_progress, client)
            result = await client.call_tool(name, given, meta={"progressToken": "call"})
            nursery.cancel_scope.cancel()
    return result


def _object(text: str) -> Json:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Problem(f"--json: one JSON object is wanted: {error}") from None


def _found(tools: list[Json], name: str) -> Json:
    for tool in tools:
        if tool["name"] == name:
            return tool
    raise Problem(f"there is no tool {name!r}, only {', '.join(tool['name'] for tool in tools) or 'none at all'}")


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
    print(f"mcp_trio {__version__} on Python {sys.version.split()[0]}, trio {trio.__version__}")
    print(f"speaks {', '.join(revision.name for revision in REVISIONS)}")
    return 0


COMMANDS = {
    "run": Command(_run_arguments, _serve, "Serve a SPEC, or the demo server.", f"{PROG} run server.py --grace 2"),
    "inspect": Command(
        _inspect_arguments,
        _inspect,
        "List the tools, resources, templates and prompts of a server.",
        f"{PROG} inspect -- npx some-server",
    ),
    "call": Command(
        _call_arguments, _call, "Call a tool and print what it answers.", f"{PROG} call server.py add a=1 b=2"
    ),
    "version": Command(
        _version_arguments, _version, "Print the versions, of itself and of the protocol.", f"{PROG} version"
    ),
}
