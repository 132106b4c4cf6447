"""The command `record`: write a trace of a conversation."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from contextlib import AbstractAsyncContextManager, nullcontext
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


def record_arguments(parser: Parser) -> None:
    """Add the arguments of `record`."""
    parser.usage = f"{PROG} record -o FILE [OPTION...] [SPEC | URL | -- COMMAND...]"
    parser.add_argument("spec", nargs="?", metavar="SPEC", help=SPEC_HELP)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="write the trace to this file, or to FILE-2 if it exists",
    )
    parser.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        type=address,
        help="record HTTP: listen on this port, in front of the server",
    )
    parser.add_argument(
        "--title", metavar="TEXT", default="", help="the title of the trace"
    )
    parser.add_argument(
        "--client", metavar="NAME", default="", help="the name of the recorded client"
    )
    parser.add_argument(
        "--redact",
        metavar="POINTER",
        type=_pointer,
        action="append",
        default=[],
        help="replace the value at this JSON Pointer in each message by a placeholder",
    )
    parser.add_argument(
        "--redact-pattern",
        metavar="REGEX",
        type=_regex,
        action="append",
        default=[],
        help="replace each text that matches by a placeholder",
    )
    parser.add_argument(
        "--keep-query",
        action="store_true",
        help="keep the query parameters of URLs, unless they look like secrets",
    )


def _pointer(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(
            f"expected a JSON Pointer such as /params/arguments/password, got {text!r}"
        )
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise argparse.ArgumentTypeError(
            f"expected a regular expression, got {text!r}: {problem}"
        ) from None
    return text


def record(options: argparse.Namespace) -> int:
    """Record the conversation between a client and a server as a trace.

    The exit code is the server's.
    """
    from ..trace.privacy import Redactor
    from ..trace.record import Recorder, create
    from ..trace.sniffer import public, say

    spec: str = options.spec or DEMO
    url = spec if is_url(spec) and not options.command else ""
    # The SPEC, or the URL without its secrets.
    shown = public(url) or spec
    _check(options, url, shown)
    try:
        path = create(options.output)
    except OSError as error:
        raise UsageError(f"cannot record: {error}") from None
    redactor = Redactor(
        options.redact, options.redact_pattern, keep_query=options.keep_query
    )
    try:
        recorder = Recorder(
            path,
            server=" ".join(options.command) or shown,
            client=options.client,
            title=options.title,
            redactor=redactor,
        )
        return _run(options, recorder, url, shown)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot record: {error}") from None
    finally:
        _remove_if_empty(path)
        if redactor.replaced:
            say(f"placeholders for secrets: {redactor.replaced}")


def _check(options: argparse.Namespace, url: str, shown: str) -> None:
    """Check that the options can be combined. Raises UsageError."""
    if url and not options.listen:
        raise UsageError(
            "--listen: expected [HOST:]PORT with a URL, got no port; clients connect "
            f"to it, and the recorder connects to {shown}"
        )
    if options.command and options.listen:
        raise UsageError(
            "--listen: expected a SPEC or a URL, got a command, which is recorded on "
            "standard input and output; leave out --listen"
        )
    if options.output.is_dir():
        raise UsageError(f"--output: expected a file, got the folder {options.output}")


def _run(options: argparse.Namespace, recorder: Recorder, url: str, spec: str) -> int:
    """Record until the conversation ends or a signal arrives. Returns the exit code."""
    from ..trace.record import record_stdio

    if options.listen:
        with listening(options.listen):
            trio.run(_record_network, url, spec, options.listen, recorder)
        return 0
    command = options.command or [sys.executable, "-m", "mcp_trio", "run", spec]
    return trio.run(record_stdio, command, recorder)


async def _record_network(url: str, spec: str, listen: str, recorder: Recorder) -> None:
    """Record the server at a URL, or a SPEC that is loaded here, until a signal."""
    from ..trace.record import record_network
    from ..trace.targets import serve_on_free_port

    served: AbstractAsyncContextManager[str]
    served = nullcontext(url) if url else serve_on_free_port(spec)
    signals = trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
    with ungrouped(), signals as received:
        async with served as upstream, trio.open_nursery() as nursery:
            own_url = await nursery.start(record_network, upstream, listen, recorder)
            print(f"Recording {spec} on {own_url}", file=sys.stderr)
            await anext(received)
            nursery.cancel_scope.cancel()


def _remove_if_empty(path: Path) -> None:
    """Remove a trace without any messages."""
    if not path.exists():
        return
    _, *rows = path.read_bytes().splitlines()
    if all(row.endswith(b'"ends":true}') for row in rows):
        path.unlink()
