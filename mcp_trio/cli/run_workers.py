"""`run --workers`: bind the sockets, and serve on them with several processes."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from socket import socket

import trio

from ..load_spec import UsageError
from ..transports.address import bind, parse_address
from ..workers.messages import Ready
from ..workers.supervisor import Supervisor, WorkersFailed, WorkersPlan
from .options import listening
from .run_options import SETTINGS, SWITCHES

MEMORY = "memory:"
TRANSPORTS = ("http", "ws")
# The default of --worker-timeout, in seconds.
TIMEOUT = 30.0


def run_workers(options: argparse.Namespace) -> int:
    """Serve with several processes, and return the exit code. Raises UsageError."""
    try:
        trio.run(_supervise, options)
    except WorkersFailed as failed:
        if failed.is_explained:
            return 2
        raise UsageError(str(failed)) from None
    return 0


async def _supervise(options: argparse.Namespace) -> None:
    timeout = options.worker_timeout
    names = ["spec", *SWITCHES, *SETTINGS]
    plan = WorkersPlan(
        options.workers,
        {name: getattr(options, name) for name in names},
        await _bind(options),
        keeps_store=options.store in (None, MEMORY),
        timeout=TIMEOUT if timeout is None else timeout,
    )
    await Supervisor(plan, partial(_announce, options.workers)).run()


async def _bind(options: argparse.Namespace) -> dict[str, list[socket]]:
    """Return the sockets of each transport. Raises UsageError."""
    bound = {}
    for transport in TRANSPORTS:
        place = getattr(options, transport)
        if place is not None:
            with listening(place):
                bound[transport] = await bind(*parse_address(place))
    return bound


def _announce(workers: int, ready: Ready) -> None:
    count = "1 worker" if workers == 1 else f"{workers} workers"
    for url in ready.urls:
        print(f"Serving {ready.server!r} on {url} with {count}", file=sys.stderr)
