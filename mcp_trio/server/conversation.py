"""Conversation: one client's session, its requests, and the questions sent to it."""

import secrets
from collections.abc import Callable
from typing import Any, Literal

import trio
from msgspec import Raw, Struct

from ..auth.principal import Principal
from ..protocol import jsonrpc
from ..protocol.revisions import Revision
from ..protocol.session import Answer, Session
from ..protocol.types import Json
from .channel import Channel
from .exceptions import AskFailed

Sender = Literal["client", "server"]
# Called with each message of a conversation: its sender and its bytes.
MessageObserver = Callable[["Conversation", Sender, bytes], None]


class PendingQuestion(Struct):
    """A question that was sent to the client."""

    settled: trio.Event  # set when the client has answered, or can no longer answer
    answer: Answer | None = None


# Shared by all conversations without requests and questions, because most of ten
# thousand sessions are idle. It is replaced before anything is added.
EMPTY: dict[Any, Any] = {}


def _do_nothing(conversation: "Conversation") -> None:
    """The default callback."""


class Conversation:
    """One client's session, its requests, and the questions sent to it.

    `cancel_scopes` has an entry for each request that waits. `waiting` is the number of
    these requests, without subscriptions.
    """

    __slots__ = (
        "__weakref__",
        "_on_close",
        "_questions",
        "address",
        "cancel_scopes",
        "channel",
        "observer",
        "principal",
        "session",
        "transport",
        "waiting",
    )
    # False if the conversation consists of a single HTTP request.
    is_persistent = True
    # Whether all processes that share the store serve this client.
    is_shared = False

    def __init__(
        self,
        session: Session,
        channel: Channel,
        *,
        transport: str = "memory",
        address: str = "",
        principal: Principal | None = None,
        observer: MessageObserver | None = None,
        on_close: "Callable[[Conversation], None]" = _do_nothing,
    ) -> None:
        self.session = session
        self.channel = channel
        self.transport = transport
        self.address = address
        self.principal = principal
        self.observer = observer
        self.waiting = 0
        self.cancel_scopes: dict[jsonrpc.Id, trio.CancelScope] = EMPTY
        self._questions: dict[str, PendingQuestion] = EMPTY
        # None once it was called, after which the client sends nothing.
        self._on_close: Callable[[Conversation], None] | None = on_close

    def notify(
        self,
        method: str,
        params: Json,
        channel: Channel | None = None,
        revision: Revision | None = None,
    ) -> None:
        """Send a notification, if the revision has it.

        Without a channel, it does not belong to a request.
        """
        revision = revision or self.session.revision
        if revision is None:
            return
        message = revision.notification(method, params)
        if message is not None:
            self.send(message, channel or self.channel)

    def send(self, message: bytes, channel: Channel) -> None:
        """Send a message on a channel of this conversation."""
        if self.observer is not None:
            self.observer(self, "server", message)
        channel.send(message)

    async def ask(
        self, method: str, params: Json, channel: Channel, revision: Revision
    ) -> Raw:
        """Send the client a request and wait for its result. Raises AskFailed.

        Only for revisions with server requests.
        """
        id = self.new_question_id()
        question = PendingQuestion(trio.Event())
        if self._questions is EMPTY:
            self._questions = {}
        self._questions[id] = question
        try:
            if self._on_close is not None:
                self.send(revision.question(id, method, params), channel)
                await question.settled.wait()
        except trio.Cancelled:
            reason = "the request that asked was cancelled"
            cancelled = {"requestId": id, "reason": reason}
            self.notify("notifications/cancelled", cancelled, channel, revision)
            raise
        finally:
            del self._questions[id]
        answer = question.answer
        if answer is None:
            raise AskFailed(f"the client disconnected before it answered {method}")
        if answer.result is None:
            error = bytes(answer.error or b"").decode()
            raise AskFailed(f"the client answered {method} with an error: {error}")
        return answer.result

    def new_question_id(self) -> str:
        """Return an id that cannot be guessed, so that only the client can answer."""
        return f"ask-{secrets.token_hex(8)}"

    def answer_question(self, answer: Answer) -> None:
        """Deliver an answer to the request that waits for it. Ignore unknown ids."""
        question = (
            self._questions.get(answer.id) if isinstance(answer.id, str) else None
        )
        if question is not None:
            question.answer = answer
            question.settled.set()

    def settle_questions(self) -> None:
        """Stop waiting for answers."""
        for question in self._questions.values():
            question.settled.set()

    async def save(self) -> None:
        """Store the session's settings, if the session is shared.

        Raises ServiceUnavailable.
        """

    def cancel_elsewhere(self, id: jsonrpc.Id) -> None:
        """Cancel a request that runs in another process, if the session is shared."""

    def add_cancel_scope(self, id: jsonrpc.Id, scope: trio.CancelScope) -> None:
        """Let the client cancel a request from now on."""
        if self.cancel_scopes is EMPTY:
            self.cancel_scopes = {}
        self.cancel_scopes[id] = scope

    def close(self) -> None:
        """Note that the client sends nothing more, and does not answer questions."""
        on_close = self._on_close
        self._on_close = None
        self.settle_questions()
        if on_close is not None:
            on_close(self)
