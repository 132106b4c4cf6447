"""The command `work`: run the tasks of a server, without any transport."""

from __future__ import annotations

import argparse
import sys

import trio

from ..load_spec import UsageError, load
from ..serve import run_tasks
from .options import PROG, SPEC_HELP, Parser
from .run import require_store, set_up_logging, use_store
from .run_options import SETTINGS, add_setting, fill_settings

# The options that `work` shares with `run`.
SHARED_SETTINGS = ("store", "grace", "log_level", "log_format")
MEMORY = "memory:"


def work_arguments(parser: Parser) -> None:
    """Declare the arguments of `work`."""
    parser.add_argument("spec", metavar="SPEC", help=SPEC_HELP)
    for name in SHARED_SETTINGS:
        add_setting(parser, name)
    add_setting(
        parser,
        "concurrency",
        SETTINGS["task_slots"]._replace(help="how many tasks may run at once (16)"),
    )


async def work(options: argparse.Namespace) -> int:
    """Run tasks until a signal arrives."""
    fill_settings(options, SHARED_SETTINGS)
    if options.store in (None, MEMORY):
        raise UsageError(
            "work: expected the --store that the servers use; for example: "
            f"{PROG} work {options.spec} --store redis://127.0.0.1:6379/0"
        )
    require_store(options.store)
    set_up_logging(options)
    server = load(options.spec)
    use_store(server, options.store)
    if not server.has_tasks:
        raise UsageError(
            f"work: expected a tool with `task=` in {server.info.name!r}, found none"
        )
    if options.grace is not None:
        server.grace = options.grace
    server.task_slots = options.concurrency
    async with trio.open_nursery() as nursery:
        await nursery.start(run_tasks, server)
        print(f"Running the tasks of {server.info.name!r}", file=sys.stderr)
    return 0
