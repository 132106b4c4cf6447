"""The command `inspect`: list the features of a server."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable

from ..client.errors import RemoteError
from ..protocol.errors import MethodNotFound
from ..protocol.types import Json
from .options import PROG, SPEC_HELP, Parser, client_arguments
from .output import as_json, table
from .target import connect_to_target


def inspect_arguments(parser: Parser) -> None:
    """Declare the arguments of `inspect`."""
    parser.usage = f"{PROG} inspect [OPTION...] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument(
        "--json", action="store_true", help="print the JSON that the server sent"
    )
    client_arguments(parser)


async def inspect(options: argparse.Namespace) -> int:
    """List the tools, resources, templates and prompts of a server."""
    async with connect_to_target(options.spec, options) as client:
        features = {
            **client.server,
            "tools": await _list(client.list_tools),
            "resources": await _list(client.list_resources),
            "resourceTemplates": await _list(client.list_templates),
            "prompts": await _list(client.list_prompts),
        }
    print(as_json(features) if options.json else table(features))
    return 0


async def _list(list_all: Callable[[], Awaitable[list[Json]]]) -> list[Json]:
    try:
        return await list_all()
    except RemoteError as error:
        # A server may lack features of some kind.
        if error.code == MethodNotFound.code:
            return []
        raise
