"""TODO"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ..client.client import ungrouped
from ..client.target import is_url
from ..load_spec import UsageError
from .options import DEMO, PROG, SPEC_HELP, Parser, address, listening

if TYPE_CHECKING:
    from ..trace.record import Recorder

TRANSPORTS = ("stdio", "http", "sse", "ws")
ENDS = b'"ends":true}'  # a line of a trace on which no message is


# record


def record_arguments(parser: Parser) -> None:
    """What record takes."""
    parser.usage = f"{PROG} record -o FILE [OPTION...] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="the trace; if taken, FILE-2",
    )
    parser.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        type=address,
        help="stand there, before an HTTP server",
    )
    parser.add_argument(
        "--title", metavar="TEXT", default="", help="what the trace holds"
    )
    parser.add_argument(
        "--client", metavar="NAME", default="", help="who speaks to the server"
    )


def record(options: argparse.Namespace) -> int:
    """Write a trace of what passes between a client and a server.

    The exit code is the server's.
    """
    from ..trace.record import Recorder, create, record_stdio
    from ..trace.sniffer import public

    spec: str = options.spec or DEMO
    url = spec if is_url(spec) and not options.command else ""
    spec = public(url) or spec
    if url and not options.listen:
        raise UsageError(
            f"--listen [HOST:]PORT is wanted: where clients find what stands before {spec}"
        )
    if options.command and options.listen:
        raise UsageError(
            "a command is recorded on standard input and output, so that --listen is out of place"
        )
    if options.output.is_dir():
        raise UsageError(f"{options.output} is a folder; name a file")
    about = {
        "server": " ".join(options.command) or spec,
        "client": options.client,
        "title": options.title,
    }
    path = None
    try:
        path = create(options.output)
        recorder = Recorder(path, **about)
        if not options.listen:
            command = options.command or [sys.executable, "-m", "mcp_trio", "run", spec]
            return trio.run(record_stdio, command, recorder)
        with listening(options.listen):
            trio.run(_record_network, url, spec, options.listen, recorder)
        return 0
    except (OSError, ValueError) as error:
        raise UsageError(f"nothing can be recorded: {error}") from None
    finally:
        if (
            path
            and path.exists()
            and all(line.endswith(ENDS) for line in path.read_bytes().splitlines()[1:])
        ):
            path.unlink()  # nobody has said anything


async def _record_network(url: str, spec: str, listen: str, recorder: Recorder) -> None:
    """Until a signal comes."""
    from ..trace.record import record_network
    from ..trace.targets import on_a_port

    with (
        ungrouped(),
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
    ):
        async with (
            nullcontext() if url else on_a_port(spec) as here,
            trio.open_nursery() as nursery,
        ):
            where = await nursery.start(record_network, url or here, listen, recorder)
            print(f"Recording {spec} on {where}", file=sys.stderr)
            await anext(signals)
            nursery.cancel_scope.cancel()
