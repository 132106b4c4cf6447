"""The commands that look at a server from outside: inspect and call."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stdout
from typing import Any

import trio

from .cli_types import DEMO, PROG, SPEC_HELP, SPOKEN, Parser, at_terminal, client_arguments, token_of
from .client import Client, RemoteError, connect, is_url
from .loading import Problem, load
from .protocol.model import Json
from .terminal import answer, as_json, bar, printed, table
from .values import arguments, from_json, named

# An example of what `call` takes.
CALL = "server.py add a=1 b=2"


@asynccontextmanager
async def _client(spec: str | None, options: argparse.Namespace, **about: Any) -> AsyncIterator[Client]:
    """A client of a TARGET. What the target prints goes to stderr."""
    from . import testing

    revision = options.revision or SPOKEN
    with redirect_stdout(sys.stderr):
        if options.command or is_url(spec):
            about["token"] = token_of(options)
            found = connect(options.command or str(spec), revision, **about)
        else:
            found = testing.connect(load(DEMO if spec is None else spec), revision, **about)
        async with found as connected:
            yield connected


# inspect


def inspect_arguments(parser: Parser) -> None:
    """What inspect takes."""
    parser.usage = f"{PROG} inspect [OPTION...] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument("--json", action="store_true", help="print it as the wire has it")
    client_arguments(parser)


async def inspect(options: argparse.Namespace) -> int:
    """List the tools, resources, templates and prompts of a server."""
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
    try:
        return list(await list_all())
    except RemoteError as error:
        if error.code == -32601:  # a server need not have this kind at all
            return []
        raise


# call


def call_arguments(parser: Parser) -> None:
    """What call takes."""
    parser.usage = (
        f"{PROG} call [OPTION...] SPEC|URL TOOL [KEY=VALUE...]\n"
        f"       {PROG} call [OPTION...] TOOL [KEY=VALUE...] -- COMMAND..."
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SPEC TOOL KEY=VALUE",
        help="a VALUE is read as the tool's schema has it; LIST=A LIST=B makes a list, OBJECT.KEY=VALUE an object;"
        " KEY:=VALUE is JSON; the VALUE @FILE is what the file holds",
    )
    parser.add_argument("--json", metavar="OBJECT", help="the arguments, as one JSON object")
    client_arguments(parser)


async def call(options: argparse.Namespace) -> int:
    """Call a tool and print what it answers.

    A tool that fails is exit code 1, in every revision whose results say so: the first one's do not.
    """
    words = [None, *options.words] if options.command else options.words
    if len(words) < 2:
        raise Problem(f"call wants a target and a tool, as in: {PROG} call {CALL}")
    spec, name, *pairs = words
    given = from_json(options.json, "--json: one JSON object", Json) if options.json else {}
    asks: Json = {"capabilities": {"elicitation": {"form": {}}}, "answer": answer} if at_terminal() else {}
    async with _client(spec, options, **asks) as client:
        given = arguments(named(await client.list_tools(), name), pairs, given)
        async with trio.open_nursery() as nursery:
            if sys.stderr.isatty():
                nursery.start_soon(_show_progress, client)
            result = await client.call_tool(name, given, meta={"progressToken": "call"})
            nursery.cancel_scope.cancel()
    print(printed(result), file=sys.stderr if result.is_error else sys.stdout)
    return 1 if result.is_error else 0


async def _show_progress(client: Client) -> None:
    heard = await client.hear("notifications/progress")
    with bar() as tell:
        while True:
            params = heard[-1].get("params", {})
            done, total = (params.get(key) for key in ("progress", "total"))
            if isinstance(done, int | float) and isinstance(total, int | float | None):
                tell(done, total, str(params.get("message", "")))
            heard = await client.hear("notifications/progress", len(heard) + 1)
