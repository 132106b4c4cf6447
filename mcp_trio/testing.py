"""Testing a server: a client in the same process, and replays of traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from .auth.principal import Principal, owner
from .client.client import NEWEST, Client, talk, ungrouped
from .client.handlers import (
    AnswerCallback,
    ElicitationHandler,
    Handlers,
    LogHandler,
    ProgressHandler,
    Roots,
    SamplingHandler,
)
from .protocol.types import Json
from .server.app import Server
from .server.serve_conversation import serve_conversation
from .server.trio_loop import check_runs_on_trio
from .transports.memory import memory_pair

if TYPE_CHECKING:
    from .trace.format import Transport

__all__ = ["connect", "replay"]

# Seconds that a test waits for a reply by default.
TIMEOUT = 30.0


@asynccontextmanager
async def connect(
    server: Server[Any],
    revision: str = NEWEST,
    *,
    principal: Principal | None = None,
    capabilities: Json | None = None,
    answer: AnswerCallback | None = None,
    elicitation: ElicitationHandler | None = None,
    sampling: SamplingHandler | None = None,
    roots: Roots | None = None,
    progress: ProgressHandler | None = None,
    log: LogHandler | None = None,
    timeout: float | None = TIMEOUT,
) -> AsyncIterator[Client]:
    """Connect a client to a server in the same process, and open its session.

    The client declares the capabilities that the handlers give it.

    Args:
        server: The server.
        revision: The protocol revision to use; by default, the newest one.
        principal: The client's principal. By default, it is the owner of the process,
            with every scope.
        capabilities: Capabilities that the client declares in addition.
        answer: Answers all questions of the server that have no handler of their own.
        elicitation: Fills in forms for the user.
        sampling: Answers for the model.
        roots: The URIs of the folders that the server may work in.
        progress: Called with each report of progress.
        log: Called with each log message.
        timeout: A longer wait than this number of seconds raises TimeoutError. None
            waits forever.
    """
    check_runs_on_trio("mcp_trio.testing.connect")
    handlers = Handlers(
        answer=answer,
        elicitation=elicitation,
        sampling=sampling,
        roots=roots,
        progress=progress,
        log=log,
    )
    ours, theirs = memory_pair()
    if principal is None:
        principal = owner()
    with ungrouped():
        async with server.running(), trio.open_nursery() as nursery:
            nursery.start_soon(serve_conversation, server, theirs, principal)
            try:
                async with talk(
                    ours,
                    revision,
                    capabilities=capabilities,
                    handlers=handlers,
                    timeout=timeout,
                ) as client:
                    yield client
            finally:
                await ours.aclose()
                nursery.cancel_scope.cancel()


async def replay(
    trace: Path | str, server: Server[Any] | str, over: Transport = "stdio"
) -> None:
    """Replay a trace against a server, and check that it answers as recorded.

    Raises AssertionError with every difference.

    Args:
        trace: The file of the trace.
        server: A server, or a SPEC such as "server.py:server", which is loaded for each
            replay.
        over: The transport: "stdio", "http", "sse" or "ws".
    """
    # Deferred, because most tests do not replay traces.
    from .trace.format import read
    from .trace.replay import Replay, ways
    from .trace.suite import Result, report_lines

    result = Result(Path(trace))
    recorded = read(result.path)
    result.replays = [Replay(recorded, over, way) for way in ways(recorded, over)]
    for run in result.replays:
        await run.against(server)
    if result.findings:
        raise AssertionError("\n".join(report_lines(result)))
