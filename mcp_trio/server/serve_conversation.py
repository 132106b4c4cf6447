"""Serves one client over a stream of messages: stdio, WebSocket, memory."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from time import perf_counter

import trio

from ..auth.principal import Principal
from ..protocol.session import Answer, Batch, Call, Event, Notice, Refusal, Session
from .accounts import Account, account_of
from .app import Server
from .batch_replies import BatchReplies
from .call_tasks import CallTasks
from .channel import Channel, Wire
from .conversation import Conversation, MessageObserver
from .event_log import SLOW
from .execute import execute, finish
from .handlers import handle_notification
from .ledger import Priority
from .request import Request
from .runner import TURN, Continuation, Runner, ScopeLeaked, start


async def serve_conversation(
    server: Server,
    wire: Wire,
    principal: Principal | None = None,
    *,
    transport: str = "memory",
    address: str = "",
    observer: MessageObserver | None = None,
) -> None:
    """Serve one client until its input has ended and its requests have finished.

    `observer` is called with each message, in place of the server's own observer.
    """
    conversation = Conversation(
        Session(server.revisions),
        wire,
        transport=transport,
        address=address,
        principal=principal,
        observer=observer or server.on_message,
        on_close=server.on_conversation_closed,
    )
    try:
        async with trio.open_nursery() as nursery:
            source = ConversationSource(
                server, conversation, wire, nursery, reply=wire.send, wire=wire
            )
            nursery.start_soon(Runner(source, nursery).run)
    finally:
        conversation.close()


async def execute_batch(
    server: Server, conversation: Conversation, events: list[Event], channel: Channel
) -> bytes | None:
    """Run a batch. Returns the replies as one array, or None if there are none."""
    async with trio.open_nursery() as nursery:
        account = account_of(conversation, conversation.principal)
        replies = BatchReplies(server.ledger, account, nursery.cancel_scope)
        source = ConversationSource(
            server,
            conversation,
            channel,
            nursery,
            reply=replies.add,
            events=events,
            # Not that of a later request, which may have another token.
            principal=conversation.principal,
        )
        nursery.start_soon(Runner(source, nursery).run)
    return replies.joined()


class ConversationSource:
    """Supplies a runner with the messages of one client, or the events of one batch.

    Most requests run in the reader's task. If a tool waited when it was last called,
    its next call begins in a task of its own, because replacing the reader for each
    such call would cost more. Requests begin in the order of their messages.
    """

    def __init__(
        self,
        server: Server,
        conversation: Conversation,
        channel: Channel,
        nursery: trio.Nursery,
        *,
        reply: Callable[[bytes], None],
        wire: Wire | None = None,
        events: Iterable[Event | None] = (),
        principal: Principal | None = None,
    ) -> None:
        self._server = server
        self._conversation = conversation
        self._channel = channel
        self._nursery = nursery
        self._wire = wire
        self._principal = principal
        self._events = iter(events)  # events that have not been served
        self._has_events = True
        # Whether other tasks should run before the next event is served.
        self._must_yield = False
        # The messages received last. Some of them may have been served.
        self._messages: Sequence[bytes | None] = ()
        self._last_request: Request | None = None
        self._call_tasks = CallTasks(server, nursery)
        self._send = reply
        self._reply = reply if conversation.observer is None else self._observed_reply

    async def wait(self) -> bool:
        """Wait until there are events to serve. Returns False at the end of input."""
        if self._must_yield:
            self._must_yield = False
            await trio.lowlevel.checkpoint()
            if self._server.turns.lines:
                await self._wait_for_turn()
            return True
        if self._has_events:
            return True
        if self._wire is None:
            self._call_tasks.close()
            return False
        await self._wire.drained()
        messages = await self._wire.receive()
        if not messages:
            self._call_tasks.close()
            # Running requests may finish within the grace period.
            self._conversation.close()
            deadline = trio.current_time() + self._server.grace
            self._nursery.cancel_scope.deadline = deadline
            return False
        self._messages = messages
        if self._server.turns.lines:
            await self._wait_for_turn()
        # A message is decoded after the previous ones have begun, because they may
        # change the session that decodes it.
        if self._conversation.observer is None:
            self._events = map(self._conversation.session.receive, messages)
        else:
            self._events = map(self._receive_observed, messages)
        self._has_events = True
        return True

    def take_turn(self, scope: trio.CancelScope) -> Continuation[None] | None:
        """Serve events until a request waits, the turn is over, or none are left."""
        continuation = None
        turn_ends = perf_counter() + TURN
        for event in self._events:
            if type(event) is Call:
                continuation = self._begin(event, scope)
            elif self._call_tasks.has_calls:
                # Earlier calls have to begin first.
                self._events = chain([event], self._events)
                self._must_yield = True
                break
            else:
                continuation = self._handle(event)
            if continuation is not None:
                break
            if self._must_yield:
                break
            late = perf_counter() - turn_ends
            if late > 0:
                self._log_if_slow(event, late)
                self._server.turns.end(self._account())
                self._must_yield = True
                break
        else:
            self._has_events = False
            self._messages = ()
        if self._wire is not None:
            self._wire.flush()
        return continuation

    def _begin(self, call: Call, scope: trio.CancelScope) -> Continuation[None] | None:
        """Run a request until it returns or first waits."""
        if self._call_tasks.has_calls or self._is_expected_to_wait(call):
            self._call_tasks.begin(call, self._run_call)
            self._must_yield = self._call_tasks.is_full
            return None
        request = self._request(call)
        self._last_request = request
        try:
            reply, continuation = start(execute(self._server, request))
        except ScopeLeaked as leaked:
            self._reply(leaked.value)
            raise
        if continuation is not None:
            self._server.note_that_it_waits(call)
            return self._finish(request, continuation, scope)
        if reply is not None:
            self._reply(reply)
        return None

    def _handle(self, event: Event | None) -> Continuation[None] | None:
        """Handle an event that is not a request."""
        if isinstance(event, Batch):
            return self._begin_batch(event)
        if isinstance(event, Refusal):
            self._reply(event.data)
        elif isinstance(event, Answer):
            self._conversation.answer_question(event)
        elif isinstance(event, Notice):
            handle_notification(self._server, self._conversation, event)
        return None

    async def _finish(
        self,
        request: Request,
        continuation: Continuation[bytes],
        scope: trio.CancelScope,
    ) -> None:
        reply = await finish(self._server, request, continuation, scope)
        if reply is not None:
            self._reply(reply)

    def _begin_batch(self, batch: Batch) -> Continuation[None] | None:
        running = execute_batch(
            self._server, self._conversation, batch.events, self._channel
        )
        reply, continuation = start(running)
        if continuation is not None:
            return self._finish_batch(continuation)
        if reply is not None:
            self._reply(reply)
        return None

    async def _finish_batch(self, continuation: Continuation[bytes | None]) -> None:
        reply = await continuation
        if reply is not None:
            self._reply(reply)

    # Calls in tasks of their own

    def _is_expected_to_wait(self, call: Call) -> bool:
        if call.method != "tools/call":
            return False
        name = call.params.name
        if name not in self._server.tools_that_wait:
            return False
        # The response time must not reveal a tool that the principal may not use.
        principal = self._principal or self._conversation.principal
        return self._server.tools.get_for(principal, name) is not None

    async def _run_call(self, call: Call, scope: trio.CancelScope) -> None:
        """Run a call in a task of its own."""
        request = self._request(call)
        try:
            reply, continuation = start(execute(self._server, request))
        except ScopeLeaked as leaked:
            self._reply(leaked.value)
            raise
        if continuation is not None:
            reply = await finish(self._server, request, continuation, scope)
        else:
            self._server.note_that_it_did_not_wait(call)
        if reply is not None:
            self._reply(reply)

    # Turns

    async def _wait_for_turn(self) -> None:
        """Let others go first, if this client has used up its turn.

        It may have many conversations.
        """
        account = self._account()
        turns = self._server.turns
        if not turns.must_wait(account):
            return
        size = sum(len(message) for message in self._messages if message is not None)
        holding = self._server.ledger.hold(
            account, "bodies", size, Priority.REQUEST, self._give_up
        )
        try:
            await turns.wait(account)
        finally:
            holding.release()

    def _give_up(self) -> bool:
        """End the conversation, because the memory of its messages is needed."""
        self._nursery.cancel_scope.cancel()
        return True

    # Helpers

    def _account(self) -> Account:
        return account_of(
            self._conversation, self._principal or self._conversation.principal
        )

    def _request(self, call: Call) -> Request:
        return Request(
            call,
            self._conversation,
            self._channel,
            self._server.environment,
            self._principal or self._conversation.principal,
        )

    def _log_if_slow(self, event: Event | None, seconds: float) -> None:
        """Log a request that blocked the loop for long."""
        if seconds > SLOW and type(event) is Call and self._last_request is not None:
            self._server.event_log.log_slow(self._last_request, seconds)

    def _receive_observed(self, message: bytes | None) -> Event | None:
        if message is not None and self._conversation.observer is not None:
            self._conversation.observer(self._conversation, "client", message)
        return self._conversation.session.receive(message)

    def _observed_reply(self, message: bytes) -> None:
        if self._conversation.observer is not None:
            self._conversation.observer(self._conversation, "server", message)
        self._send(message)
