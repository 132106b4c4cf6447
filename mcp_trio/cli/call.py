"""TODO"""

from __future__ import annotations

import argparse
import sys

import trio

from ..client.client import Client
from ..load_spec import UsageError
from ..protocol.types import Json
from .arguments import arguments, from_json, named
from .options import (
    PROG,
    Parser,
    at_terminal,
    client_arguments,
)
from .output import answer, bar, printed
from .target import _client

# An example of what `call` takes.
CALL = "server.py add a=1 b=2"


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
    parser.add_argument(
        "--json", metavar="OBJECT", help="the arguments, as one JSON object"
    )
    client_arguments(parser)


async def call(options: argparse.Namespace) -> int:
    """Call a tool and print what it answers.

    A tool that fails is exit code 1, in every revision whose results say so: the first one's do not.
    """
    words = [None, *options.words] if options.command else options.words
    if len(words) < 2:
        raise UsageError(f"call wants a target and a tool, as in: {PROG} call {CALL}")
    spec, name, *pairs = words
    given = (
        from_json(options.json, "--json: one JSON object", Json) if options.json else {}
    )
    asks: Json = (
        {"capabilities": {"elicitation": {"form": {}}}, "answer": answer}
        if at_terminal()
        else {}
    )
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
