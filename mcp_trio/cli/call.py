"""The command `call`: call a tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack

import trio

from ..client.client import OPENS, Client, Result
from ..load_spec import UsageError
from ..protocol.extensions import TASKS
from ..protocol.types import Json
from .arguments import find_tool, from_json, read_arguments
from .options import DEFAULT_REVISION, PROG, Parser, at_terminal, client_arguments
from .output import ShowProgress, answer, format_result, progress_bar
from .target import connect_to_target

_PROGRESS = "notifications/progress"


def call_arguments(parser: Parser) -> None:
    """Declare the arguments of `call`."""
    parser.usage = (
        f"{PROG} call [OPTION...] SPEC|URL TOOL [KEY=VALUE...]\n"
        f"       {PROG} call [OPTION...] TOOL [KEY=VALUE...] -- COMMAND..."
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SPEC TOOL KEY=VALUE",
        help="the server, the tool and its arguments; the tool's schema says how to "
        "convert a VALUE; LIST=A LIST=B is a list, OBJECT.KEY=VALUE an object, "
        "KEY:=VALUE is JSON, and KEY=@FILE the content of a file",
    )
    parser.add_argument(
        "--json", metavar="OBJECT", help="the arguments, as a JSON object"
    )
    client_arguments(parser)


async def call(options: argparse.Namespace) -> int:
    """Call a tool and print its result.

    The exit code is 1 if the tool fails, which results of the first revision do not
    show.
    """
    words = list(options.words)
    spec = None
    if words and not options.command:
        spec = words.pop(0)
    if not words:
        raise UsageError(
            f"call: expected a server and a tool, for example: {PROG} call server.py "
            "add a=1 b=2"
        )
    tool, *pairs = words
    given: Json = {}
    if options.json:
        given = from_json(options.json, "--json", "a JSON object", Json)
    capabilities: Json = {}
    if not OPENS[options.revision or DEFAULT_REVISION]:
        capabilities["extensions"] = {TASKS: {}}
    if at_terminal():
        capabilities["elicitation"] = {"form": {}}
        connection = connect_to_target(
            spec, options, capabilities=capabilities, answer=answer
        )
    else:
        connection = connect_to_target(spec, options, capabilities=capabilities)
    async with connection as client:
        listed = find_tool(await client.list_tools(), tool)
        result = await _call(client, tool, read_arguments(listed, pairs, given))
    print(format_result(result), file=sys.stderr if result.is_error else sys.stdout)
    return 1 if result.is_error else 0


async def _call(client: Client, tool: str, arguments: Json) -> Result:
    """Call a tool, and show a progress bar if standard error is a terminal."""
    meta = {"progressToken": "call"}
    with ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            if sys.stderr.isatty():
                nursery.start_soon(_show_progress, client)
            result = await client.call_tool(
                tool, arguments, meta=meta, on_task=_show_task(stack)
            )
            nursery.cancel_scope.cancel()
    return result


def _show_task(stack: ExitStack) -> Callable[[Json], None]:
    """Return a function that shows a task in a progress bar, which `stack` removes."""
    bars: list[ShowProgress] = []

    def show(task: Json) -> None:
        if not bars:
            bars.append(stack.enter_context(progress_bar()))
        status = str(task["status"]).replace("_", " ")
        bars[0](None, None, str(task.get("statusMessage", status)))

    return show


async def _show_progress(client: Client) -> None:
    notifications = await client.hear(_PROGRESS)
    with progress_bar() as show:
        while True:
            params = notifications[-1].get("params", {})
            done = params.get("progress")
            total = params.get("total")
            if isinstance(done, int | float) and isinstance(total, int | float | None):
                show(done, total, str(params.get("message", "")))
            notifications = await client.hear(_PROGRESS, len(notifications) + 1)
