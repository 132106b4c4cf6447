"""A worker process of `run --workers`: `python -m mcp_trio.cli.worker DESCRIPTOR`.

The descriptor is the socket to the parent process, which sends the options.
"""

from __future__ import annotations

import argparse
import socket
import sys
from functools import partial
from typing import Any

import trio

from ..serve import Supervision, serve
from ..server.app import Server
from ..workers.member import Member, end_with_parent, have_spare_core
from ..workers.messages import Begin, Ready, receive_begin
from .main import report
from .run import configure, load_server, serve_options, set_up_logging

# A worker whose parent has exited is killed after this many grace periods and seconds,
# even if its event loop is blocked.
GRACES = 3
END_TIME = 5.0


def run_worker(words: list[str]) -> int:
    """Serve until the parent tells the worker to stop. Returns the exit code."""
    connection = socket.socket(fileno=int(words[0]))
    connection.set_inheritable(False)
    begin = receive_begin(connection)
    sys.path[:] = begin.import_path
    options = argparse.Namespace(**begin.options)
    set_up_logging(options, worker=begin.worker)
    try:
        _load_and_serve(options, begin, Member(begin, connection))
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        code = report(error)
        if code is None:
            raise
        return code
    return 0


def _load_and_serve(options: argparse.Namespace, begin: Begin, member: Member) -> None:
    server = load_server(options)
    configure(server, options)
    server.process_group = member
    end_with_parent(begin.lifeline, GRACES * server.grace + END_TIME)
    supervision = Supervision(
        member.listeners,
        member.stop,
        member.stop_at_once,
        busy_wait=have_spare_core(options.workers),
    )
    start = partial(serve, server, supervision=supervision, **serve_options(options))
    trio.run(_serve, server, member, start)


async def _serve(server: Server, member: Member, start: partial[Any]) -> None:
    async def serve_to_the_end(task_status: trio.TaskStatus[list[str]]) -> None:
        await start(task_status=task_status)
        await member.leave()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        urls = await nursery.start(serve_to_the_end)
        await member.announce(Ready(server.info.name, urls, server.grace))


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:]))
