"""The commands that look at a server from outside: inspect and call."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..client.errors import RemoteError
from ..protocol.types import Json
from .options import (
    PROG,
    SPEC_HELP,
    Parser,
    client_arguments,
)
from .output import as_json, table
from .target import _client

# inspect


def inspect_arguments(parser: Parser) -> None:
    """What inspect takes."""
    parser.usage = f"{PROG} inspect [OPTION...] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument(
        "--json", action="store_true", help="print it as the wire has it"
    )
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
