"""Runs the handler of a request, and encodes its result or its failure."""

import logging
import secrets
from math import inf
from time import perf_counter

import trio

from ..protocol import jsonrpc
from ..protocol.errors import (
    InternalError,
    InvalidRequest,
    ProtocolError,
    TooManyCalls,
)
from ..protocol.types import Text, ToolResult
from .accounts import account_of
from .app import Server
from .charges import charge_request
from .event_log import SLOW
from .exceptions import AskFailed, TimedOut, ToolError, Unanswered
from .handlers import HANDLERS, Handler, answer_by_extension
from .limits import out_of_memory
from .request import Request, RequestObserver
from .runner import TURN, Continuation
from .truncate import truncate_text

log = logging.getLogger("mcp_trio")


async def execute(
    server: Server, request: Request, handler: Handler | None = None
) -> bytes:
    """Run a request and return its reply. Failures become error replies.

    `handler` replaces the handler of the request's method.
    """
    call = request.call
    observers = server.request_observers
    began = _report_beginning(observers, request) if observers else 0.0
    try:
        # If there is an entry for this id, it must be that of this request.
        scope = request.conversation.cancel_scopes.get(call.id, request.scope)
        if scope is not request.scope:
            problem = f"{call.id!r} belongs to a request that is still running"
            raise InvalidRequest(f"Invalid request: $.id: {problem}")
        if handler is None:
            rate = server.limiter.rate
            if rate is not None:
                if server.shared_limiter is None:
                    server.limiter.take(request, rate)
                else:
                    await server.shared_limiter.take(request, rate)
            handler = HANDLERS.get(call.method, answer_by_extension)
        result = await handler(server, request)
        if result is None:
            result = jsonrpc.encode(call.revision.result({}))
        return jsonrpc.encode_result(call.id, result)
    except server.stops as stop:
        if _is_stale(stop):
            return _reply_to_failure(server, request, stop)
        request.outcome = "cancelled"
        raise
    except BaseException as failure:  # even SystemExit only ends its own request
        return _reply_to_any(server, request, failure)
    finally:
        request.ended = True
        if observers:
            _report_end(observers, request, perf_counter() - began)


def _report_beginning(
    observers: tuple[RequestObserver, ...], request: Request
) -> float:
    """Notify the observers that a request begins. Returns the current time."""
    began = perf_counter()
    for observer in observers:
        observer.began(request)
    return began


def _report_end(
    observers: tuple[RequestObserver, ...], request: Request, seconds: float
) -> None:
    """Notify the observers that a request has ended."""
    if request.scope is not None and request.scope.cancel_called:
        request.outcome = "cancelled"
    for observer in reversed(observers):
        observer.ended(request, seconds)


async def finish(
    server: Server,
    request: Request,
    continuation: Continuation[bytes | None],
    scope: trio.CancelScope,
) -> bytes | None:
    """Resume a request that is waiting. Cancelling `scope` cancels the request.

    Returns the reply, or None if the request was cancelled.
    """
    conversation = request.conversation
    request.scope = scope
    conversation.add_cancel_scope(request.call.id, scope)
    server.limiter.count(request, 1)
    charge_request(server.ledger, request, server.limiter.total)
    began = perf_counter()
    try:
        reply = await continuation
        return None if scope.cancel_called else reply
    except trio.Cancelled:
        if not request.given_up:
            raise
        return _encode_error(server, request, out_of_memory())
    finally:
        server.ledger.release(request)
        server.limiter.count(request, -1)
        now = perf_counter()
        if now - began > SLOW:
            server.event_log.log_slow(request, now - began)
        if request.turn_began and now - request.turn_began > TURN:
            server.turns.end(account_of(conversation, request.principal))
        del conversation.cancel_scopes[request.call.id]


def _is_stale(stop: BaseException) -> bool:
    """Whether this is a trio.Cancelled that a tool caught and raised again later."""
    is_cancelled = isinstance(stop, trio.Cancelled)
    return is_cancelled and trio.current_effective_deadline() > -inf


def _reply_to_any(server: Server, request: Request, failure: BaseException) -> bytes:
    """Encode the reply to a request that raised an exception or a group."""
    if isinstance(failure, BaseExceptionGroup):
        return _reply_to_group(server, request, failure)
    return _reply_to_failure(server, request, failure)


def _reply_to_group(
    server: Server, request: Request, group: BaseExceptionGroup[BaseException]
) -> bytes:
    """Encode the reply to a request that raised an exception group.

    Reraises the exceptions in it that stop the request from outside, if there are any.
    """
    stop_group, failures = group.split(server.stops)
    if stop_group is None:
        return _reply_to_failure(server, request, group)
    if failures is not None:
        method = request.call.method
        log.error("%s failed while being cancelled", method, exc_info=failures)
    request.outcome = "cancelled"
    raise stop_group from None


def _reply_to_failure(
    server: Server, request: Request, failure: BaseException
) -> bytes:
    """Encode the reply to a request that raised an exception."""
    try:
        if isinstance(failure, BaseExceptionGroup):
            failure = _representative(failure)
        if isinstance(failure, Unanswered):
            return jsonrpc.encode_result(request.call.id, failure.result())
        if isinstance(failure, ToolError | AskFailed):
            is_late = isinstance(failure, TimedOut)
            request.outcome = "timeout" if is_late else "tool_error"
            return _reply_to_tool_error(server, request, failure)
        if isinstance(failure, ProtocolError):
            is_ours = failure.kind is InternalError
            request.outcome = "error" if is_ours else "refused"
            return _encode_error(server, request, failure)
    except Exception as problem:  # its data cannot be encoded, or its str() fails
        failure = problem
    request.outcome = "error"
    reference = secrets.token_hex(4)
    server.event_log.log_failure(request, reference, failure)
    error = InternalError(f"Internal error (reference {reference})")
    return _encode_error(server, request, error)


def _reply_to_tool_error(
    server: Server, request: Request, failure: ToolError | AskFailed
) -> bytes:
    error = InternalError(
        truncate_text(str(failure), request.environment.limits.max_result)
    )
    level = logging.WARNING if isinstance(failure, TimedOut) else logging.INFO
    server.event_log.log_unsuccessful("failed", request, error.message, level)
    return _encode_error(server, request, error)


def _encode_error(server: Server, request: Request, error: ProtocolError) -> bytes:
    """Encode an error as an error response or, in some revisions, as a tool result."""
    call = request.call
    revision = call.revision
    if isinstance(error, TooManyCalls):
        server.event_log.log_unsuccessful("refused", request, error.message)
    if (
        call.method == "tools/call"
        and revision.kind_of(error) in revision.tool_failures
    ):
        failed = ToolResult([Text(error.message)], is_error=True)
        encoded = jsonrpc.encode(revision.tool_result(failed))
        return jsonrpc.encode_result(call.id, encoded)
    reply = jsonrpc.encode_error(call.id, revision.error(error))
    # Breaks the reference cycle of the error, its frames and the request.
    error.__traceback__ = None
    request.error = error
    return reply


def _representative(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the exception that stands for a group in the reply.

    If all of them are open questions, that is the first one. If all are tool errors, it
    is one tool error with their messages. Otherwise it is the group itself, whose
    message is hidden from the client.
    """
    failures = _leaves(group)
    if len(failures) == 1:
        return failures[0]
    if all(isinstance(failure, Unanswered) for failure in failures):
        return failures[0]
    if all(isinstance(failure, ToolError | AskFailed) for failure in failures):
        return ToolError("\n".join(map(str, failures)))
    return group


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the exceptions in a group and in nested groups."""
    found: list[BaseException] = []
    for failure in group.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            found += _leaves(failure)
        else:
            found.append(failure)
    return found
