"""The command `mock`: act as the server of a trace."""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ..client.client import ungrouped
from .options import PROG, Parser, address, listening

if TYPE_CHECKING:
    from ..trace.mock import MockScript


def mock_arguments(parser: Parser) -> None:
    """Add the arguments of `mock`."""
    parser.usage = f"{PROG} mock TRACE [--http [HOST:]PORT]"
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file *.jsonl")
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        type=address,
        help="serve Streamable HTTP on this port, at /mcp; default: stdio",
    )


def mock(options: argparse.Namespace) -> int:
    """Act as the server of a trace, to test a client without the real server.

    A request that is not in the trace gets an error with a list of those that are.
    """
    from ..trace.format import read
    from ..trace.mock import MockScript
    from ..trace.mock_server import mock_stdio

    script = MockScript(read(options.trace))
    if options.http:
        with listening(options.http):
            trio.run(partial(_serve_http, script, options.http))
    else:
        trio.run(mock_stdio, script)
    return 0


async def _serve_http(script: MockScript, listen: str) -> None:
    """Serve until a signal."""
    from ..trace.mock_server import MockHttpServer

    signals = trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
    with ungrouped(), signals as received:
        async with trio.open_nursery() as nursery:
            url = await nursery.start(MockHttpServer(script).serve, listen)
            print(f"Serving {script.name} on {url}", file=sys.stderr)
            await anext(received)
            nursery.cancel_scope.cancel()
