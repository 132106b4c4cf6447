"""An event becomes a task with its own cancel scope, and the task a reply.

The fast path: a request runs in the turn of the task that read it until it first waits. Only then the reader's role
goes to a fresh task, and this one is the request's own, under the cancel scope that it read in. So a request that
does not wait costs no task, no wake-up and no scope of its own; see `Relay`.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from contextvars import copy_context
from math import inf
from time import perf_counter
from types import coroutine
from typing import Any, Protocol

import msgspec
import trio

from ..protocol import jsonrpc, params
from ..protocol.errors import InternalError, InvalidRequest, ProtocolError, TooManyCalls
from ..protocol.model import Json, Text, ToolResult
from ..protocol.revisions import Revision
from ..protocol.session import Answer, Batch, Call, Event, Notice, Refusal, Session
from .access import Principal
from .app import Server
from .context import AskFailed, TimedOut, ToolError, Unanswered
from .fitting import cut
from .handlers import HANDLERS
from .journal import SLOW

log = logging.getLogger("mcp_trio")

# Seconds that a reader serves requests which do not wait, before others get their turn.
TURN = 0.002

# Seconds that a reader stays awake for clients that go on as quickly: to be woken takes longer than most requests.
AWAKE = 0.0001

# trio's RuntimeError says that a request has left a cancel scope open, or closed one that is not its own.
SPOILED = "a request has spoiled the task that it ran in"

Running = Coroutine[Any, Any, bytes | None]
Rest = Awaitable[bytes | None]
Work = Call | Batch


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


class Request(msgspec.Struct, eq=False):
    """One request while it is carried out."""

    call: Call
    conversation: Conversation
    channel: Channel
    server: Server
    principal: Principal | None
    scope: trio.CancelScope | None = None  # from the first wait on
    ended: bool = False
    error: ProtocolError | None = None  # what the reply says, where it is an error
    tool: str | None = None  # by whose limit it is counted

    def tell(self, method: str, params: Json) -> None:
        """Send the client a notification about this request, while it goes on."""
        if not (self.ended or (self.scope and self.scope.cancel_called)):
            self.conversation.tell(method, params, self.channel, self.call.revision)


class Pending(msgspec.Struct):
    """A question on its way, until it is settled: the client has answered, or never will."""

    settled: trio.Event
    answer: Answer | None = None


# What a conversation begins with. It is never put into but replaced before: of ten thousand sessions most are idle.
NONE: dict[Any, Any] = {}


class Conversation:
    """What goes on with one client: its session, its requests that wait, our questions to it."""

    __slots__ = ("_asked", "_gone", "address", "channel", "principal", "server", "session", "under_way", "waiting")
    lasts = True  # beyond one message

    def __init__(self, server: Server, channel: Channel, stated: Revision | None = None) -> None:
        self.address = ""  # the client's, where it has one
        self.under_way = 0  # how many requests wait
        self.server = server
        self.channel = channel
        self.principal: Principal | None = None
        self.session = Session(server.revisions, stated)
        self.waiting: dict[jsonrpc.Id, trio.CancelScope] = NONE
        self._asked: dict[str, Pending] = NONE
        self._gone = False

    def tell(self, method: str, params: Json, channel: Channel | None = None, revision: Any = None) -> None:
        """Send a notification, if the revision has it; by default one that belongs to no request."""
        spoken: Any = revision or self.session.revision
        if message := spoken.notification(method, params):
            (channel or self.channel).send(message)

    async def ask(self, request: Request, method: str, params: Json) -> msgspec.Raw:
        """Put a question to the client, in a revision whose server may ask, and wait for the answer."""
        revision = request.call.revision
        id = f"ask-{secrets.token_hex(8)}"  # not to be guessed: whoever knows it can answer
        self._asked = self._asked or {}
        pending = self._asked[id] = Pending(trio.Event())
        try:
            if not self._gone:
                request.channel.send(revision.question(id, method, params))
                await pending.settled.wait()
        except trio.Cancelled:
            cancelled = {"requestId": id, "reason": "the request that asked was cancelled"}
            self.tell("notifications/cancelled", cancelled, request.channel, revision)
            raise
        finally:
            del self._asked[id]
        if (answer := pending.answer) is None:
            raise AskFailed("the client has gone")
        if answer.result is None:
            raise AskFailed(f"the client answered {method} with an error: {bytes(answer.error or b'').decode()}")
        return answer.result

    def is_to_wait(self, call: Call) -> bool:
        """Whether it calls a tool that waited when it was last called."""
        if call.method != "tools/call" or call.params.name not in self.server.waited:
            return False
        return self.server.tools.get_for(self.principal, call.params.name) is not None  # a hidden one shows in nothing

    def scope_for(self, call: Call) -> trio.CancelScope:
        """What cancels a request from now on, unless its id is in use: then it is refused where it begins."""
        self.waiting = self.waiting or {}
        scope = trio.CancelScope()
        self.waiting.setdefault(call.id, scope)
        return scope

    def begin(
        self, work: Work, channel: Channel, scope: trio.CancelScope | None = None, principal: Principal | None = None
    ) -> tuple[Request | None, bytes | None, Rest | None]:
        """Run a request, or a batch, in this task's turn, until it ends or first waits.

        Returns the request (of a batch: None), and its reply or, where it waits, what goes on with it.

        It runs in a copy of the context, so that what it sets there does not reach the next request. Where it waits,
        the copy becomes this task's, which is to go on with it in `carry_on`.
        """
        who = principal or self.principal
        request = Request(work, self, channel, self.server, who, scope) if isinstance(work, Call) else None
        running: Running = serve(request) if request else self._gather(work, channel)
        context = copy_context()
        try:
            trap = context.run(running.send, None)
        except StopIteration as done:
            return request, done.value, None
        if isinstance(work, Call) and work.method == "tools/call":
            self.server.waited.add(work.params.name)
        trio.lowlevel.current_task().context = context
        return request, None, resume(running, trap)

    async def carry_on(self, request: Request | None, rest: Rest, scope: trio.CancelScope) -> bytes | None:
        """Be the task of what waits, under a scope that ends it: now a request can be cancelled, and gets no reply."""
        if request is None:
            return await rest
        request.scope = scope
        self.waiting = self.waiting or {}
        self.waiting[request.call.id] = scope
        keeper, began = self.server.keeper, perf_counter()
        keeper.count(request, 1)
        try:
            reply = await rest
            return None if scope.cancel_called else reply
        finally:
            keeper.count(request, -1)
            if (seconds := perf_counter() - began) > SLOW:
                self.server.journal.took(request, seconds)
            del self.waiting[request.call.id]

    async def _gather(self, work: Work, channel: Channel) -> bytes | None:
        """The replies to a batch, which go out together when the last is there."""
        events = work.events if isinstance(work, Batch) else [work]
        replies: list[bytes] = []
        async with trio.open_nursery() as nursery:
            # A later request of the session may come with a token of fewer scopes, or more.
            nursery.start_soon(Relay(self, channel, nursery, replies.append, iter(events), by=self.principal).run)
        return b"[%b]" % b",".join(replies) if replies else None

    def note(self, event: Event | None) -> None:
        """Take in a notification, or an answer to a question."""
        if isinstance(event, Answer):
            if isinstance(event.id, str) and (pending := self._asked.get(event.id)):
                pending.answer = event
                pending.settled.set()
        elif isinstance(event, Notice) and event.method == "notifications/initialized":
            self.server.subscriptions.opened(self)
        elif isinstance(event, Notice) and event.method == "notifications/cancelled":
            # Unknown, ended and malformed ones are passed over, as the specification has it.
            with suppress(msgspec.MsgspecError):
                cancelled: params.Cancelled = params.decode(event.method, event.raw)
                if scope := self.waiting.get(cancelled.request_id):
                    log.debug("request %r cancelled by the client: %s", cancelled.request_id, cancelled.reason)
                    scope.cancel()

    def hang_up(self) -> None:
        """The client sends no more: nothing will answer our questions, and nobody waits for news."""
        self._gone = True
        for pending in self._asked.values():
            pending.settled.set()
        self.server.subscriptions.closed(self)


async def serve(request: Request) -> bytes:
    """Carry a request out. Whatever fails in it, the reply says so; nothing else of it gets out."""
    call = request.call
    try:
        if request.conversation.waiting.get(call.id, request.scope) is not request.scope:
            raise InvalidRequest(f"Invalid request: $.id: {call.id!r} belongs to a request that is still running")
        result = await HANDLERS[call.method](request) or jsonrpc.encode(call.revision.result({}))
        return jsonrpc.encode_result(call.id, result)
    except STOPS as problem:
        if isinstance(problem, trio.Cancelled) and trio.current_effective_deadline() > -inf:
            return _reply_to(request, problem)  # one that was kept, and is raised again: it cancels nothing
        raise
    except BaseExceptionGroup as group:  # of a nursery; what stops it from outside goes before what failed
        stop, failures = group.split(STOPS)
        if stop is None:
            return _reply_to(request, group)
        if failures is not None:
            log.error("%s failed while it was stopped", call.method, exc_info=failures)
        raise stop from None
    except BaseException as failure:  # a handler that calls sys.exit() ends its request, not the server
        return _reply_to(request, failure)
    finally:
        request.ended = True


STOPS = (trio.Cancelled, KeyboardInterrupt)


def _one_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a group says to the client: what was asked if that is all, what its tools' errors say, or nothing."""
    alone = leaves(failures)
    if len(alone) == 1 or all(isinstance(one, Unanswered) for one in alone):
        return alone[0]
    told = all(isinstance(one, ToolError | AskFailed) for one in alone)
    return ToolError("\n".join(map(str, alone))) if told else failures


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The exceptions in a group and in its groups."""
    nested = [leaves(one) if isinstance(one, BaseExceptionGroup) else [one] for one in group.exceptions]
    return [one for some in nested for one in some]


def _reply_to(request: Request, failure: BaseException) -> bytes:
    """The reply to a request that failed."""
    try:
        error = failure = _one_of(failure) if isinstance(failure, BaseExceptionGroup) else failure
        if isinstance(failure, Unanswered):
            return jsonrpc.encode_result(request.call.id, failure.result())
        if isinstance(failure, ToolError | AskFailed):
            error = InternalError(cut(str(failure), request.server.limits.max_result))
            level = logging.WARNING if isinstance(failure, TimedOut) else logging.INFO
            request.server.journal.told("failed", request, error.message, level)
        if isinstance(error, ProtocolError):
            return _failure(request, error)
    except Exception as problem:  # its data is no JSON, or it cannot even be said
        failure = problem
    reference = secrets.token_hex(4)
    request.server.journal.failed(request, reference, failure)
    return _failure(request, InternalError(f"Internal error (reference {reference})"))


def _failure(request: Request, error: ProtocolError) -> bytes:
    """The reply that says what went wrong: an error, or where the revision has it so, a tool's result."""
    call, revision = request.call, request.call.revision
    if isinstance(error, TooManyCalls):
        request.server.journal.told("refused", request, error.message)
    if call.method == "tools/call" and revision.kind_of(error) in revision.tool_failures:
        result = ToolResult([Text(error.message)], is_error=True)
        return jsonrpc.encode_result(call.id, jsonrpc.encode(revision.tool_result(result)))
    reply = jsonrpc.encode_error(call.id, revision.error(error))
    request.error = error
    return reply


class Relay(msgspec.Struct, eq=False):
    """Serves events one after the other, until a request waits: its task is that request's, and a fresh one goes on."""

    conversation: Conversation
    channel: Channel
    nursery: trio.Nursery
    reply: Callable[[bytes], None]
    events: Iterator[Event | None]  # those that are not served yet
    wire: Wire | None = None  # what more of them come by, until its input ends
    by: Principal | None = None  # on whose behalf they come, where another may come meanwhile
    task: trio.lowlevel.Task | None = None  # the one that serves
    apart: deque[tuple[Call, trio.CancelScope]] = msgspec.field(default_factory=deque)  # for tasks that are to begin

    async def run(self) -> None:
        """Serve what there is; where a request waits, a fresh task runs this again for the rest."""
        try:
            await self._run()
        except* RuntimeError:
            log.exception(SPOILED)
            if self.task is trio.lowlevel.current_task():
                self.nursery.start_soon(self.run)

    async def _run(self) -> None:
        self.task = trio.lowlevel.current_task()
        with trio.CancelScope() as scope:
            while True:
                turn_ends = perf_counter() + TURN
                for event in self.events:
                    while self.apart and type(event) is not Call:  # they came before, so that they begin before
                        await trio.lowlevel.checkpoint()
                    if isinstance(event, Call) and (self.apart or self.conversation.is_to_wait(event)):
                        self.apart.append((event, self.conversation.scope_for(event)))
                        self.nursery.start_soon(self._serve_apart)
                    elif isinstance(event, Work):
                        request, reply, rest = self.conversation.begin(event, self.channel, None, self.by)
                        if rest is not None:
                            self.flush()
                            self.nursery.start_soon(self.run)
                            reply = await self.conversation.carry_on(request, rest, scope)
                        if reply is not None:
                            self.reply(reply)
                        if rest is not None:
                            return
                    elif isinstance(event, Refusal):
                        self.reply(event.data)
                    else:
                        self.conversation.note(event)
                    if (late := perf_counter() - turn_ends) > 0:
                        if late > SLOW and isinstance(event, Call) and request:  # it has held up all others
                            self.conversation.server.journal.took(request, late)
                        self.flush()
                        await trio.lowlevel.checkpoint()
                        turn_ends = perf_counter() + TURN
                self.flush()
                if not await self.read_on():
                    return

    async def _serve_apart(self) -> None:
        """Serve in a task of its own what is expected to wait: to pass on the reader's role takes a turn for each.

        Whichever task is the first to run takes what came first, so that all begin in their order.
        """
        call, scope = self.apart.popleft()
        try:
            with scope:
                request, reply, rest = self.conversation.begin(call, self.channel, scope, self.by)
                if rest is not None:
                    reply = await self.conversation.carry_on(request, rest, scope)
                else:
                    self.conversation.server.waited.discard(getattr(call.params, "name", ""))
                if reply is not None:
                    self.reply(reply)
        except* RuntimeError:
            log.exception(SPOILED)
        if self.conversation.waiting.get(call.id) is scope:
            del self.conversation.waiting[call.id]

    def flush(self) -> None:
        """A turn ends: write what was sent in it."""
        if self.wire is not None:
            self.wire.flush()

    async def read_on(self) -> bool:
        """Wait for messages; each is looked at when those before it have been begun. False: there are no more."""
        if self.wire is None:
            return False
        await self.wire.drained()
        messages = await self.wire.receive()
        if not messages:  # the input has ended: what runs may finish, within the grace
            self.conversation.hang_up()
            self.nursery.cancel_scope.deadline = trio.current_time() + self.conversation.server.grace
        self.events = map(self.conversation.session.receive, messages)
        return bool(messages)


@coroutine
def resume(running: Running, trap: Any) -> Generator[Any, Any, bytes | None]:
    """Go on with a coroutine that has waited once already: this and every later wait becomes the task's own."""
    step: Callable[[Any], Any]
    try:
        while True:
            try:
                step, what = running.send, (yield trap)
            except BaseException as problem:  # passed on, whatever it is
                step, what = running.throw, problem
            trap = step(what)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


async def converse(server: Server, wire: Wire, principal: Principal | None = None, *, address: str = "") -> None:
    """Serve one client until its input ends and what it asked for is done."""
    if server.watch is not None:
        wire = server.watch.wire(wire)
    conversation = Conversation(server, wire)
    conversation.principal, conversation.address = principal, address
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Relay(conversation, wire, nursery, wire.send, iter(()), wire).run)
    finally:
        conversation.hang_up()
