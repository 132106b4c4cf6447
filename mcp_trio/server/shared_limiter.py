"""Holds all processes of a server together to its rates.

The buckets are in the store that the processes share, so that every request with a rate
waits for the store. Everything else is limited by each process: the requests at once,
and floods of HTTP requests.
"""

from ..protocol.errors import ServiceUnavailable, TooManyCalls
from .limiter import LimitedTool, Limiter, too_many
from .limits import Rate
from .request import Request
from .shared_state import SharedState


class SharedLimiter:
    """Takes from shared buckets what a `Limiter` takes from its own.

    While the store is away, each process counts for itself. So it does for clients that
    only it can have, such as that of a pipe.
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
        """Admit a tool call, which counts against the tool's own limits.

        The server's rate has admitted it before. Raises TooManyCalls.
        """
        try:
            # A request that waits is counted, but not yet for its tool.
            is_counted = request.scope is not None
            self._limiter.check_tool(request, tool)
            if is_counted:
                self._limiter.count_tool(request)
            if tool.rate is not None:
                await self._take(request, tool.name, tool.rate, 1.0)
        except TooManyCalls:
            rate = self._limiter.rate
            if rate is not None:
                # It was refused for another reason, so it does not count.
                await self._take(request, None, rate, -1.0)
            raise

    async def _take(
        self, request: Request, tool: str | None, rate: Rate, weight: float
    ) -> None:
        """Take from a bucket, or put back a negative weight. Raises TooManyCalls."""
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
    """Return whose limits a request counts against, in every process.

    Returns None for a client of this process only.
    """
    if request.principal is not None:
        return f"principal:{request.principal.name}"
    if request.conversation.address:
        return f"address:{request.conversation.address}"
    return None
