"""A POST that contains requests: running them, and the response."""

from collections.abc import Coroutine
from time import perf_counter
from typing import Any

import trio
from msgspec import Struct

from ...auth.access import Access
from ...auth.principal import Principal
from ...protocol.session import Batch, Call
from ...server.app import Server
from ...server.event_log import SLOW
from ...server.execute import execute, finish
from ...server.limiter import LISTENS
from ...server.request import Request
from ...server.runner import Continuation, ScopeLeaked, start
from ...server.serve_conversation import execute_batch
from .feed import Feed
from .messages import Reply
from .metrics import Metrics
from .response import PostResponse
from .sessions import HttpSession, Sessions


class ServiceState(Struct, eq=False):
    """What all exchanges of a service share."""

    server: Server
    metrics: Metrics
    sessions: Sessions
    waiting: "set[Exchange]" = set()  # those whose requests are waiting


class Exchange(Struct, eq=False):
    """A POST with a request or a batch in it.

    A host calls `begin` as soon as it has read the POST. If that returns no reply, the
    task that called it continues with `rest`, and another task gets the response from
    `response`.
    """

    state: ServiceState
    conversation: HttpSession
    post_response: PostResponse
    token: str = ""
    _request: Request | None = None  # set while it waits; None for a batch
    _rest: Continuation[bytes | None] | None = None
    _scope: trio.CancelScope | None = None

    # Running

    def begin(self, work: Call | Batch) -> Reply | None:
        """Run a request, or a batch, until it ends or first waits.

        Returns the response if it is complete and not a stream. If the request left a
        cancel scope open, raises ScopeLeaked with the reply or this exchange.
        """
        server = self.state.server
        conversation = self.conversation
        response = self.post_response
        request: Request | None = None
        running: Coroutine[Any, Any, bytes | None]
        if isinstance(work, Call):
            request = Request(
                work,
                conversation,
                response,
                server.environment,
                conversation.principal,
            )
            running = execute(server, request)
        else:
            running = execute_batch(server, conversation, work.events, response)
        began = perf_counter()
        try:
            message, rest = start(running)
        except ScopeLeaked as leaked:
            self._finish(leaked.value, request)
            raise ScopeLeaked(response.reply or self) from None
        if rest is None:
            if request is not None:
                self._log_if_slow(request, perf_counter() - began)
            self._finish(message, request)
            return response.reply
        if request is not None:
            server.note_that_it_waits(request.call)
        self._request = request
        self._rest = rest
        self.state.waiting.add(self)
        return None

    async def rest(self, scope: trio.CancelScope) -> None:
        """Finish work that waits, in the task that began it.

        The scope belongs to the caller, and `stop` cancels it.
        """
        if self._rest is None:
            return
        self._scope = scope
        message = None
        try:
            message = await self._remaining(self._rest, scope)
        finally:
            # The request is not kept while a slow client reads the response.
            request = self._request
            self._request = None
            self._finish(message, request)
            self.state.waiting.discard(self)

    def stop(self) -> None:
        """Cancel the work if it is still running."""
        if self._scope is not None:
            self._scope.cancel()

    def client_disconnected(self) -> None:
        """Cancel the work, unless the client can reconnect and resume the response."""
        if not self.post_response.is_in_session:
            self.stop()

    def _remaining(
        self, rest: Continuation[bytes | None], scope: trio.CancelScope
    ) -> Continuation[bytes | None]:
        """Return an awaitable for the rest of the request, or of the batch."""
        request = self._request
        if request is None:
            return rest
        server = self.state.server
        rest = finish(server, request, rest, scope)
        if request.call.method != LISTENS:
            return rest
        if server.access is None or request.principal is None:
            return rest
        return self._while_authorized(rest, server.access, request.principal, scope)

    async def _while_authorized(
        self,
        rest: Continuation[bytes | None],
        access: Access,
        principal: Principal,
        scope: trio.CancelScope,
    ) -> bytes | None:
        """Run a subscription, and cancel it when its token is no longer valid."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(access.outlast, self.token, principal, scope.cancel)
            try:
                return await rest
            finally:
                nursery.cancel_scope.cancel()

    # The end

    async def response(self) -> Reply | Feed:
        """Wait until the kind of response is decided, and return the response."""
        decided = await self.post_response.decided()
        if isinstance(decided, Reply):
            # From now on only the host keeps it, until the client has read it.
            self.post_response.reply = None
            return decided
        return Feed(decided, self.state.metrics)

    def _finish(self, message: bytes | None, request: Request | None) -> None:
        """Complete the response.

        `message` is None if the work was cancelled or has no reply.
        """
        self.post_response.finish(message, request)
        if self.conversation.observer is not None and message is not None:
            self._observe(message)

    def _observe(self, message: bytes) -> None:
        """Pass the observer the result, or the refusal that is sent instead."""
        conversation = self.conversation
        reply = self.post_response.reply
        sent = message if reply is None else reply.body
        if conversation.observer is not None:
            conversation.observer(conversation, "server", sent)

    def _log_if_slow(self, request: Request, seconds: float) -> None:
        """Log a request that blocked all others for too long."""
        if seconds > SLOW:
            self.state.server.event_log.log_slow(request, seconds)
