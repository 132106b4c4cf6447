"""Enforces a server's rates across all of its processes.

The buckets are in the shared store, so every request that has a rate waits for the
store. Other limits apply to each process: requests in progress, and floods of HTTP
requests.
"""

from ..protocol.errors import ServiceUnavailable, TooManyCalls
from .limiter import LimitedTool, Limiter, too_many
from .limits import Rate
from .request import Request
from .shared_state import SharedState


class SharedLimiter:
    """Like a `Limiter`, with buckets that all processes share.

    While the store is unavailable, each process uses its own buckets. It does so too
    for clients that only this process can have, such as the client on stdio.
    """

    def __init__(self, limiter: Limiter, store: SharedState, server: str) -> None:
        self._limiter = limiter
        self._store = store
        self._server = server

    async def take(self, request: Request, rate: Rate) -> None:
        """Count a request of any method against its sender's rate.

        Raises TooManyCalls.
        """
        weight = self._limiter.weight(request)
        if weight:
            await self._take(request, None, rate, weight)

    async def admit(self, request: Request, tool: LimitedTool) -> None:
        """Count a tool call against the tool's own limits.

        It has already been counted against the server's rate. Raises TooManyCalls.
        """
        try:
            # A request that waits has been counted, but not for its tool.
            is_counted = request.scope is not None
            self._limiter.check_tool(request, tool)
            if is_counted:
                self._limiter.count_tool(request)
            if tool.rate is not None:
                await self._take(request, tool.name, tool.rate, 1.0)
        except TooManyCalls:
            rate = self._limiter.rate
            if rate is not None:
                # A refused call does not count.
                await self._take(request, None, rate, -1.0)
            raise

    async def _take(
        self, request: Request, tool: str | None, rate: Rate, weight: float
    ) -> None:
        """Take from a bucket. A negative weight puts back. Raises TooManyCalls."""
        sender = _shared_sender(request)
        if sender is None:
            self._limiter.take_from(request, tool, rate, weight)
            return
        bucket = f"{self._server}/{tool or ''}/{sender}"
        try:
            wait = await self._store.take(bucket, rate, weight)
        except ServiceUnavailable:
            self._limiter.take_from(request, tool, rate, weight)
            return
        if wait:
            raise too_many(tool, rate, weight, wait)


def _shared_sender(request: Request) -> str | None:
    """Return the sender of a request, by a name that is the same in all processes.

    Returns None for a client that only this process can have.
    """
    if request.principal is not None:
        return f"principal:{request.principal.name}"
    if request.conversation.address:
        return f"address:{request.conversation.address}"
    return None
