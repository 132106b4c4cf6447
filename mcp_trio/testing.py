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

# Seconds that a test waits for a reply, unless it says otherwise.
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

    `principal` is the client's principal: by default the owner of the process, with
    every scope.

    `elicitation`, `sampling` and `roots` answer the server's questions, and `answer`
    any other; `progress` and `log` are called with what the server reports. The client
    declares the capabilities that they give, and `capabilities` in addition. A wait of
    more than `timeout` seconds raises TimeoutError; None waits for ever.

    async with connect(server, revision=...) as client:
        result = await client.call_tool("get_weather", {"location": "New York"})
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

    `server` is a server, or a SPEC such as "server.py:server", which is loaded for each
    replay. Raises AssertionError with every difference.

    await replay("traces/weather.jsonl", server, over="http")
    """
    # Deferred, as most tests replay nothing.
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
