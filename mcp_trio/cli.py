"""The command line. Each command is a function, with what its parser takes, in the table COMMANDS.

An error is one plain line on stderr and exit code 2; a tool that fails is exit code 1.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec
import trio

from . import Server, __version__
from .loading import Problem, load
from .protocol.model import Json
from .protocol.revisions import PROFILES, REVISIONS, Revisions

if TYPE_CHECKING:
    from .client import Client, Result

PROG = "mcp-trio"
SPEC_HELP = (
    "server.py, server.py:obj, package.module or package.module:obj (looks for server, mcp, app); default: a demo"
)
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
    """The exit code for an exception that is told in one line; None for one that needs its traceback."""
    from .client import RemoteError, ServerGone

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, msgspec.DecodeError):
        error = Problem("what answered is no MCP server: it wrote a line that is not JSON")
    if isinstance(error, RemoteError):
        error = Problem(f"the server answered with an error: {error}")
    if not isinstance(error, Problem | ServerGone | OSError):
        return None
    print(f"{PROG}: {error}", file=sys.stderr)
    return 2


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
    parser.add_argument("--grace", metavar="SECONDS", type=_seconds, help="what running requests get at the end (5)")
    parser.add_argument("--timeout", metavar="SECONDS", type=_timeout, help="for each tool that has none of its own")
    parser.add_argument("--profile", metavar="NAME", type=_one_of(PROFILES), help="pocket: for small agents")
    parser.add_argument("--log-level", metavar="LEVEL", type=_one_of(LOG_LEVELS), help=", ".join(LOG_LEVELS))


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


SETTINGS: dict[str, Callable[[str], Any]] = {
    "grace": _seconds,
    "timeout": _timeout,
    "profile": _one_of(PROFILES),
    "log_level": _one_of(LOG_LEVELS),
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
    from .serve import serve
    from .transports.stdio import claim

    at_terminal = _at_terminal()
    with claim() as descriptors:  # before the user's module is imported, which may print
        server = _load(options.spec)
        _set_up(server, options)
        if at_terminal:
            _explain(server)
        trio.run(lambda: serve(server, stdio=descriptors))
    return 0


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
        instructions = server.revisions.all[0].instructions
        server.revisions = Revisions(server.info, instructions, PROFILES[options.profile])


def _explain(server: Server) -> None:
    print(
        f"Serving {server.info.name!r} on standard input and output: waiting for a client's JSON-RPC messages.\n"
        "To see what it offers: python -m mcp_trio inspect [SPEC]. For all commands: python -m mcp_trio --help.\n"
        "To stop: Ctrl-C or Ctrl-D.",
        file=sys.stderr,
    )


# A TARGET: a server in this process, or a command's


def _target_arguments(parser: Parser) -> None:
    parser.add_argument("--revision", metavar="DATE", type=_one_of([r.name for r in REVISIONS]), help="to be spoken")


@asynccontextmanager
async def _client(spec: str | None, options: argparse.Namespace, **about: Any) -> AsyncIterator[Client]:
    """A client of a TARGET. What the target prints goes to stderr."""
    from .client import start, talk
    from .testing import connect

    revision = options.revision or SPOKEN
    with redirect_stdout(sys.stderr):
        if not options.command:
            async with connect(_load_target(spec), revision, **about) as client:
                yield client
            return
        try:
            async with start(options.command, patience=2.0) as wire, talk(wire, revision, **about) as client:
                yield client
        except (FileNotFoundError, PermissionError) as error:
            raise Problem(f"{options.command[0]} cannot be started: {error.strerror}") from None


def _load_target(spec: str | None) -> Server:
    if spec is not None and spec.startswith(("http://", "https://", "ws://", "wss://")):
        raise Problem(f"{spec}: http and ws targets are not supported yet; give a SPEC or -- COMMAND")
    return _load(spec)


# inspect


def _inspect_arguments(parser: Parser) -> None:
    parser.usage = f"{PROG} inspect [--json] [--revision DATE] [SPEC | -- COMMAND...]"
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
        f"{PROG} call [--json OBJECT] [--revision DATE] SPEC TOOL [KEY=VALUE...]\n"
        f"       {PROG} call [--json OBJECT] [--revision DATE] TOOL [KEY=VALUE...] -- COMMAND..."
    )
    parser.add_argument(
        "words", nargs="*", metavar="SPEC TOOL KEY=VALUE", help="a VALUE is read as the tool's schema has it"
    )
    parser.add_argument("--json", metavar="OBJECT", help="the arguments, as one JSON object")
    _target_arguments(parser)


def _call(options: argparse.Namespace) -> int:
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
