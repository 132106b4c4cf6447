"""One open page of the console, and its client."""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial
from itertools import count
from typing import NoReturn

import msgspec
import trio
from quart import abort
from quart_trio.wrappers import TrioResponse as Response

from ..auth.principal import owner
from ..client.client import OPENS, Client, talk, ungrouped
from ..client.errors import RemoteError, ServerGone
from ..client.handlers import Handlers
from ..protocol import jsonrpc
from ..protocol.extensions import TASKS
from ..protocol.types import Json
from ..server.app import Server
from ..server.conversation import Conversation, Sender
from ..server.serve_conversation import serve_conversation
from ..trace.format import parsed
from ..transports.http.feed import HEARTBEAT
from ..transports.memory import memory_pair
from .message_tap import MessageTap, ObservedMessage
from .task_state import task_in

# The most requests of one page that are running, or whose results were not sent yet.
MAX_CALLS = 100
# The most messages that a page is sent at a time, and the bytes of each that are shown.
AT_ONCE = 200
SHOWN = 64 * 1024
# If a message is longer than that, its values up to this size are sent in addition.
SHOWN_VALUE = 200

CAPABILITIES: Json = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}
# Declared in addition in revisions that support extensions.
EXTENSIONS: Json = {"extensions": {TASKS: {}}}
DECLINED = {"code": -1, "message": "The user has declined"}


def refuse(status: int, reason: str) -> NoReturn:
    """End the current HTTP request with an error."""
    abort(Response(f"{reason}\n", status, content_type="text/plain; charset=utf-8"))


class PageCommand(msgspec.Struct):
    """What a page posts to send a request, to cancel one, or to answer a question."""

    page: str
    key: str = ""
    method: str = ""
    params: Json = {}
    result: Json | None = None


class ConsolePage:
    """One open page, and its client."""

    client: Client
    nursery: trio.Nursery

    def __init__(self, server: Server, tap: MessageTap) -> None:
        self.id = secrets.token_urlsafe(8)
        self.conversation = tap.begin_conversation("console", is_owner=True)
        self.scope = trio.CancelScope()
        # By key, the requests in progress.
        self.calls: dict[str, trio.CancelScope] = {}
        # The events that were not sent to the page yet.
        self.events: list[Json] = []
        # By key, the channels for the answers to open questions.
        self._questions: dict[str, trio.MemorySendChannel[Json | None]] = {}
        self._server = server
        self._tap = tap
        # The number of the last message that was sent to the page.
        self._seen = 0
        self._question_numbers = count(1)

    async def run(self, revision: str, task_status: trio.TaskStatus[None]) -> None:
        """Run the page's client until the scope is cancelled.

        Raises RemoteError if the server does not open a session.
        """
        ours, theirs = memory_pair()
        serve = partial(
            serve_conversation,
            self._server,
            theirs,
            owner(),
            transport="console",
            observer=self._observe,
        )
        has_tasks = not OPENS.get(revision, True)
        capabilities = CAPABILITIES | EXTENSIONS if has_tasks else CAPABILITIES
        with self.scope, ungrouped():
            async with trio.open_nursery() as nursery:
                self.nursery = nursery
                nursery.start_soon(serve)
                async with talk(
                    ours,
                    revision,
                    capabilities=capabilities,
                    handlers=Handlers(answer=self._ask),
                ) as client:
                    self.client = client
                    self._send_opened()
                    task_status.started()
                    await trio.sleep_forever()

    def _observe(self, conversation: Conversation, sender: Sender, data: bytes) -> None:
        self._tap.note(self.conversation, sender, data)
        self._tap.pass_on(conversation, sender, data)

    def _send_opened(self) -> None:
        opened = {
            "page": self.id,
            "talk": self.conversation.number,
            "revision": self.client.revision,
        }
        self.send({"opened": opened, "server": self.client.server})

    def send(self, event: Json) -> None:
        """Send an event to the page."""
        self.events.append(event)
        self._tap.wake_readers()

    async def next(self) -> bytes:
        """Wait for events, and return them as JSON, one per line.

        If nothing happens for a while, return an empty line, which keeps the connection
        alive.
        """
        with trio.move_on_after(HEARTBEAT):
            while not self._has_events():
                await self._tap.wait()
        # The page shows notifications as messages, so the client need not keep them.
        self.client.heard.clear()
        events = self.events
        self.events = []
        events += self._new_rows()
        if not events:
            return b"\n"
        return b"".join(jsonrpc.encode(event) + b"\n" for event in events)

    def _has_events(self) -> bool:
        if self.events or self.scope.cancel_called:
            return True
        return self._seen < self._tap.latest

    def _new_rows(self) -> list[Json]:
        """Return the messages that were not sent to the page yet.

        If some of them are not kept any more, their number is the first event.
        """
        messages = self._tap.since(self._seen, AT_ONCE)
        if not messages:
            return []
        rows: list[Json] = []
        missed = messages[0].number - self._seen - 1
        if missed > 0:
            rows.append({"missed": missed})
        rows += [{"row": _row(message)} for message in messages]
        self._seen = messages[-1].number
        return rows

    def request(self, command: PageCommand) -> None:
        """Send a request. Its result is sent to the page."""
        if command.key in self.calls:
            refuse(409, "This request is already running")
        if len(self.calls) + len(self.events) >= MAX_CALLS:
            refuse(409, "Too many requests are running: wait until some are done")
        self.calls[command.key] = trio.CancelScope()
        self.nursery.start_soon(self._request, command)

    def cancel(self, command: PageCommand) -> None:
        """Cancel a request, unless it has ended."""
        if command.key in self.calls:
            self.calls[command.key].cancel()

    def answer(self, command: PageCommand) -> None:
        """Answer a question, unless it has been answered or withdrawn."""
        with suppress(KeyError, trio.WouldBlock):
            self._questions[command.key].send_nowait(command.result)

    async def _request(self, command: PageCommand) -> None:
        outcome: Json = {"cancelled": True}
        with self.calls[command.key]:
            outcome = await self._outcome(command)
        del self.calls[command.key]
        self.send({"done": command.key, **outcome})

    async def _outcome(self, command: PageCommand) -> Json:
        """Send a request, and return its result or its error, for the page."""
        meta = {"progressToken": command.key}
        try:
            result = await self.client.request(
                command.method, command.params, meta=meta
            )
        except RemoteError as error:
            details = {
                "code": error.code,
                "message": error.message,
                "data": error.data,
            }
            return {"error": details}
        except ServerGone as error:
            return {"error": {"message": str(error)}}
        return {"result": result}

    async def _ask(self, method: str, params: Json) -> Json:
        """Show a question of the server on the page, and wait for the answer.

        Raises RemoteError if the user declines to answer.
        """
        key = f"question-{next(self._question_numbers)}"
        send_answer, answers = trio.open_memory_channel[Json | None](1)
        self._questions[key] = send_answer
        self.send({"asked": key, "method": method, "params": params})
        try:
            answer = await answers.receive()
        finally:
            del self._questions[key]
            self.send({"settled": key})
        if answer is None:
            raise RemoteError(DECLINED)
        return answer


def _row(message: ObservedMessage) -> Json:
    """Return a message in the form in which it is sent to a page."""
    conversation = message.conversation
    row: Json = {
        "talk": conversation.number,
        "transport": conversation.transport,
        "client": conversation.client,
        "size": len(message.data),
        "number": message.number,
        "at": message.at,
        "from": message.sender,
        "text": message.data[:SHOWN].decode(errors="replace"),
    }
    if message.sender == "server":
        task = task_in(message.data)
        if task is not None:
            row["task"] = task
            row["isOwner"] = conversation.is_owner
    if len(message.data) > SHOWN:
        parts = parsed(message.data, dict[str, msgspec.Raw])
        if parts:
            row["head"] = _short_values(parts)
    return row


def _short_values(parts: dict[str, msgspec.Raw]) -> Json:
    """Return the parts of a message, with an empty object for each that is too long."""
    values: Json = {}
    for key, value in parts.items():
        values[key] = value if len(bytes(value)) < SHOWN_VALUE else {}
    return values
