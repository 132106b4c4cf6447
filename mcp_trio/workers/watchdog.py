"""Detects workers that hang, so that they are replaced."""

from __future__ import annotations

import logging

import trio

from .worker_process import WorkerProcess

log = logging.getLogger("mcp_trio")

# The time between two checks, as a fraction of the time to respond.
PAUSE = 0.1


async def watch(worker: WorkerProcess, timeout: float) -> None:
    """Kill a worker that does not respond for `timeout` seconds while it is serving.

    A worker that is starting or stopping may take longer. One that takes longer to
    start is logged.
    """
    await _until_settled(worker, timeout)
    while worker.is_serving:
        if await worker.responds(timeout):
            with trio.move_on_after(PAUSE * timeout):
                await worker.ended.wait()
        elif worker.is_serving:
            log.error(
                "%s has not responded for %g s, so a function blocks its event loop; "
                "killing it. The traceback below shows the function. Use `def` instead "
                "of `async def` for functions that block, or change --worker-timeout",
                *(worker, timeout),
            )
            await worker.abort()


async def _until_settled(worker: WorkerProcess, timeout: float) -> None:
    """Wait until a worker is ready or has ended."""
    with trio.move_on_after(timeout):
        await worker.settled.wait()
        return
    log.warning(
        "%s has been starting for %g s; if it hangs, look at what the server does when "
        "it is imported, and at its lifespan",
        *(worker, timeout),
    )
    await worker.settled.wait()
