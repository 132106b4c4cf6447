"""An event becomes a task with its own cancel scope, and the task a reply.

The fast path: a request runs in the turn of the task that read it until it first waits. Only then the reader's role
goes to a fresh task, and this one is the request's own, under the cancel scope that it read in. So a request that
does not wait costs no task, no wake-up and no scope of its own; see `Reader.run`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import copy_context
from functools import partial
from time import perf_counter
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from ..protocol import jsonrpc, params
from ..protocol.errors import InternalError, InvalidRequest, ProtocolError, kind_of
from ..protocol.jsonrpc import Id
from ..protocol.model import Json, Text, ToolResult
from ..protocol.session import Answer, Batch, Call, Event, Notice, Refusal, Session
from .failures import AskFailed, ToolError, Unanswered
from .handlers import HANDLERS

if TYPE_CHECKING:
    from ..protocol.revisions import Revision
    from .app import Server

log = logging.getLogger("mcp_trio")

TURN = 0.002
"""Seconds that a reader serves requests which do not wait, before others get their turn."""

Reply = Callable[[bytes | None], None]
Running = Coroutine[Any, Any, bytes]


class Channel(Protocol):
    """The way back to a client: of a whole connection, or of one HTTP request."""

    def send(self, message: bytes) -> None:
        """Put one message on its way. Never waits."""

    async def drained(self) -> None:
        """Wait while the client is too far behind to be sent more."""


class Wire(Channel, Protocol):
    """One client's stream of messages, both ways."""

    async def receive(self) -> list[bytes | None]:
        """Every message that is complete, at least one; None for one that was too large; nothing at the end."""

    def flush(self) -> None:
        """Ends the turn that `receive` began: write what was sent in it, in one write, as far as it goes at once."""


class Request:
    """One request while it is carried out."""

    __slots__ = ("call", "channel", "conversation", "ended", "error", "scope")

    def __init__(self, call: Call, conversation: Conversation, channel: Channel) -> None:
        self.call = call
        self.conversation = conversation
        self.channel = channel
        self.scope: trio.CancelScope | None = None  # from the first wait on
        self.ended = False
        self.error: ProtocolError | None = None  # what the reply says, where it is an error

    @property
    def server(self) -> Server:
        """The server that carries it out."""
        return self.conversation.server

    @property
    def principal(self) -> str | None:
        """On whose behalf it comes."""
        return self.conversation.principal

    def tell(self, method: str, params: Json) -> None:
        """Send the client a notification about this request, while it goes on."""
        cancelled = self.scope is not None and self.scope.cancel_called
        if not self.ended and not cancelled:
            self.conversation.tell(self.channel, self.call.revision, method, params)


class Pending:
    """A question on its way, until the client answers, or never will."""

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.answer: Answer | None = None

    def settle(self, answer: Answer | None) -> None:
        """This is the answer; None: there will be none."""
        self.answer = answer
        self.settled.set()


class Conversation:
    """What goes on with one client: its session, its requests that wait, our questions to it."""

    def __init__(self, server: Server, channel: Channel, stated: Revision | None = None) -> None:
        self.server = server
        self.channel = channel
        self.principal: str | None = None
        self.session = Session(server.revisions, stated)
        self.waiting: dict[Id, Request] = {}
        self.subscribed: set[str] = set()
        self._asked: dict[str, Pending] = {}
        self._gone = False

    def tell(self, channel: Channel, revision: Any, method: str, params: Json) -> None:
        """Send a notification, if the revision has it."""
        if message := revision.notification(method, params):
            channel.send(message)

    def announce(self, method: str, params: Json) -> None:
        """Send a notification that belongs to no request."""
        self.tell(self.channel, self.session.revision, method, params)

    async def ask(self, request: Request, method: str, params: Json) -> msgspec.Raw:
        """Put a question to the client, in a revision whose server may ask, and wait for the answer."""
        revision = request.call.revision
        id = f"ask-{secrets.token_hex(8)}"  # not to be guessed: whoever knows it can answer
        pending = self._asked[id] = Pending()
        try:
            if not self._gone:
                request.channel.send(revision.question(id, method, params))
                await pending.settled.wait()
        except trio.Cancelled:
            cancelled = {"requestId": id, "reason": "the request that asked was cancelled"}
            self.tell(request.channel, revision, "notifications/cancelled", cancelled)
            raise
        finally:
            del self._asked[id]
        if pending.answer is None:
            raise AskFailed("the client has gone")
        if pending.answer.result is None:
            error = bytes(pending.answer.error or b"").decode()
            raise AskFailed(f"the client answered {method} with an error: {error}")
        return pending.answer.result

    def begin(self, call: Call, channel: Channel) -> tuple[Request, Running]:
        """A request, ready to run. Raises InvalidRequest where its id is in use."""
        if call.id in self.waiting:
            raise InvalidRequest(f"Invalid request: $.id: {call.id!r} belongs to a request that is still running")
        request = Request(call, self, channel)
        return request, serve(request)

    def note(self, event: Event) -> None:
        """Take in a notification, or an answer to a question."""
        if isinstance(event, Answer):
            if isinstance(event.id, str) and (pending := self._asked.get(event.id)):
                pending.settle(event)
        elif isinstance(event, Notice) and event.method == "notifications/cancelled":
            self._cancel(event)
        elif isinstance(event, Notice) and event.method == "notifications/initialized":
            self.server.subscriptions.opened(self)

    def _cancel(self, event: Notice) -> None:
        """End a request. Unknown, ended and malformed ones are passed over, as the specification has it."""
        try:
            cancelled: params.Cancelled = params.decode(event.method, event.raw)
        except msgspec.MsgspecError:
            return
        request = self.waiting.get(cancelled.request_id)
        if request is not None and request.scope is not None:
            log.debug("request %r cancelled by the client: %s", cancelled.request_id, cancelled.reason)
            request.scope.cancel()

    def hang_up(self) -> None:
        """The client sends no more: nothing will answer our questions, and nobody waits for news."""
        self._gone = True
        for pending in self._asked.values():
            pending.settle(None)
        self.server.subscriptions.closed(self)


async def serve(request: Request) -> bytes:
    """Carry a request out. Whatever fails in it, the reply says so; nothing else of it gets out."""
    call = request.call
    try:
        return jsonrpc.encode_result(call.id, await HANDLERS[call.method](request))
    except BaseException as problem:  # a handler that calls sys.exit() ends its request, not the server
        stop, failure = _parted(problem)
        if stop is not None:
            if failure is not None:
                log.error("%s failed while it was stopped", call.method, exc_info=failure)
            raise stop from None
        return _reply_to(request, failure)
    finally:
        request.ended = True


_STOPS = (trio.Cancelled, KeyboardInterrupt, GeneratorExit)


def _parted(problem: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """What stops a request from outside, and what failed in it, taken out of the groups that nurseries make."""
    if not isinstance(problem, BaseExceptionGroup):
        return (problem, None) if isinstance(problem, _STOPS) else (None, problem)
    stop: BaseException | None
    failure: BaseException | None
    stop, failure = problem.split(_STOPS)
    while isinstance(failure, BaseExceptionGroup):
        if len(failure.exceptions) > 1 and failure.split(Unanswered)[1] is not None:
            break
        failure = failure.exceptions[0]
    return stop, failure


def _reply_to(request: Request, failure: BaseException | None) -> bytes:
    """The reply to a request that failed."""
    call = request.call
    if isinstance(failure, Unanswered):
        return jsonrpc.encode_result(call.id, failure.result())
    if isinstance(failure, ToolError | AskFailed):
        failure = InternalError(str(failure))
    if isinstance(failure, ProtocolError):
        try:
            return _failure(request, failure)
        except (TypeError, ValueError, RecursionError) as problem:  # its data is no JSON
            failure = problem
    reference = secrets.token_hex(4)
    log.error("%s failed (reference %s)", call.method, reference, exc_info=failure)
    return _failure(request, InternalError(f"Internal error (reference {reference})"))


def _failure(request: Request, error: ProtocolError) -> bytes:
    """The reply that says what went wrong: an error, or where the revision has it so, a tool's result."""
    call, revision = request.call, request.call.revision
    if call.method == "tools/call" and kind_of(error) in revision.tool_failures:
        result = ToolResult([Text(error.message)], is_error=True)
        return jsonrpc.encode_result(call.id, revision.encode_tool_result(result))
    reply = jsonrpc.encode_error(call.id, revision.error(error))
    request.error = error
    return reply


class Gather:
    """The replies to a batch, which go out together when the last is there."""

    def __init__(self, events: list[Event], reply: Reply) -> None:
        self._reply = reply
        self._owed = sum(isinstance(event, Call | Refusal) for event in events)
        self._replies: list[bytes] = []

    def __call__(self, message: bytes | None) -> None:
        if message is not None:
            self._replies.append(message)
        self._owed -= 1
        if self._owed == 0 and self._replies:
            self._reply(b"[%b]" % b",".join(self._replies))


class Reader:
    """Serves one client on a wire, until its input ends."""

    def __init__(self, conversation: Conversation, wire: Wire, nursery: trio.Nursery) -> None:
        self._conversation = conversation
        self._wire = wire
        self._nursery = nursery
        self._events: Iterator[tuple[Event, Reply]] = iter(())

    async def run(self) -> None:
        """Read and serve, until a request waits: from then on this task is that request's, and a fresh one reads.

        What is read and not served yet stands in `self._events`, where the fresh task goes on.
        """
        with trio.CancelScope() as scope:
            turn_ends = perf_counter() + TURN
            while True:
                for event, reply in self._events:
                    if type(event) is not Call:
                        self._conversation.note(event)
                    elif (waits := self._start(event, reply)) is not None:
                        await self._carry_on(scope, *waits, reply)
                        return
                    if perf_counter() > turn_ends:
                        self._wire.flush()
                        await trio.lowlevel.checkpoint()
                        turn_ends = perf_counter() + TURN
                self._wire.flush()
                await self._wire.drained()
                messages = await self._wire.receive()
                if not messages:  # the input has ended: what runs may finish, within the grace
                    self._conversation.hang_up()
                    self._nursery.cancel_scope.deadline = trio.current_time() + self._conversation.server.grace
                    return
                turn_ends = perf_counter() + TURN
                self._events = self._read(messages)

    def _read(self, messages: list[bytes | None]) -> Iterator[tuple[Event, Reply]]:
        """What the messages mean, each looked at when those before it have been begun."""
        receive, reply = self._conversation.session.receive, self._reply
        for data in messages:
            event = receive(data)
            if type(event) is Call:  # as most are
                yield event, reply
                continue
            to = Gather(event.events, reply) if type(event) is Batch else reply
            for part in event.events if type(event) is Batch else [event]:
                if isinstance(part, Refusal):
                    to(part.data)
                elif part is not None:
                    yield part, to

    def _start(self, call: Call, reply: Reply) -> tuple[Request, Running, Any] | None:
        """Run a request up to its end, or to its first wait: then the request, its coroutine and what it waits for."""
        try:
            request, running = self._conversation.begin(call, self._wire)
        except InvalidRequest as error:
            reply(jsonrpc.encode_error(call.id, call.revision.error(error)))
            return None
        message, trap = first_step(running)
        if message is None:
            return request, running, trap
        reply(message)
        return None

    async def _carry_on(
        self, scope: trio.CancelScope, request: Request, running: Running, trap: Any, reply: Reply
    ) -> None:
        """Be the task of a request that waits, having handed the reader's role on."""
        request.scope = scope
        waiting = self._conversation.waiting
        waiting[request.call.id] = request
        self._wire.flush()
        self._nursery.start_soon(self.run)
        message = None  # there is no reply to a request that was cancelled
        try:
            message = await resume(running, trap)
        finally:
            del waiting[request.call.id]
            reply(message if not scope.cancel_called else None)

    def _reply(self, message: bytes | None) -> None:
        if message is not None:
            self._wire.send(message)


def first_step(running: Running) -> tuple[bytes | None, Any]:
    """Run a request in this task's turn, until it ends or first waits: its reply, or None and what it waits for.

    It runs in a copy of the context, so that what it sets there does not reach the next request. Where it waits, the
    copy becomes this task's: the request goes on in it, by `resume`.
    """
    context = copy_context()
    try:
        trap = context.run(running.send, None)
    except StopIteration as done:
        return done.value, None
    trio.lowlevel.current_task().context = context
    return None, trap


@coroutine
def resume(running: Running, trap: Any) -> Generator[Any, Any, bytes]:
    """Go on with a coroutine that has waited once already: this and every later wait becomes the task's own."""
    while True:
        try:
            sent = yield trap
        except BaseException as problem:  # passed on, whatever it is
            step = partial(running.throw, problem)
        else:
            step = partial(running.send, sent)
        try:
            trap = step()
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


async def converse(server: Server, wire: Wire) -> None:
    """Serve one client until its input ends and what it asked for is done."""
    conversation = Conversation(server, wire)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Reader(conversation, wire, nursery).run)
    finally:
        conversation.hang_up()
