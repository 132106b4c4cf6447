"""A client for the command line, replays, benchmarks and tests.

It supports every revision, works over any `ClientWire`, answers the server's requests,
and returns results as they are on the wire.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any, Protocol

import trio

from ..protocol import jsonrpc
from ..protocol.errors import UnsupportedVersion
from ..protocol.mirrored_headers import invalid_mirror
from ..protocol.params import VENDOR
from ..protocol.revisions import REVISIONS
from ..protocol.types import Json
from .errors import NotAMessage, RemoteError, ServerGone
from .handlers import NO_HANDLERS, Handlers
from .messages import split_batch

log = logging.getLogger("mcp_trio")

NEWEST = REVISIONS[-1].name
# By the name of a revision, whether it opens a session with `initialize`.
OPENS = {revision.name: revision.opens for revision in REVISIONS}
# The revisions that wrap structured content in an object if it is not one.
WRAPS = frozenset(revision.name for revision in REVISIONS if revision.wraps)
INFO = {"name": "mcp_trio client", "version": "1"}
# The lowest level of the messages that a log handler receives.
LOG_LEVEL = "info"
# Called with each state of a task, as the server sends it.
OnTask = Callable[[Json], None]


class ClientWire(Protocol):
    """The transport of a client: messages in both directions."""

    async def receive(self) -> list[bytes | None]:
        """Wait for messages and return all complete ones.

        Returns an empty list when the server sends no more.
        """

    def send(self, message: bytes) -> None:
        """Queue one message. Never waits."""


class Result(dict[str, Any]):
    """A result as it is on the wire, with shortcuts for the results of tools."""

    # Whether the revision wraps structured content in an object if it is not one.
    is_of_wrapping_revision = False

    @property
    def data(self) -> Any:
        """What the tool returned: its structured content, or else its text.

        Some revisions wrap a value that is not an object in `{"result": ...}`. This is
        the value without the wrapper.
        """
        structured = self.structured
        if structured is None:
            return self.text
        is_wrapper = isinstance(structured, dict) and set(structured) == {"result"}
        if self.is_of_wrapping_revision and is_wrapper:
            return structured["result"]
        return structured

    @property
    def text(self) -> str:
        """The text blocks of a tool's content, joined."""
        content = self.get("content", [])
        return "".join(item["text"] for item in content if item.get("type") == "text")

    @property
    def structured(self) -> Any:
        """A tool's structured content, or None."""
        return self.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether a tool failed."""
        return bool(self.get("isError"))


class _PendingReply:
    """The reply to a request, when it has arrived."""

    def __init__(self) -> None:
        self.arrived = trio.Event()
        # Stays empty if the conversation ends first.
        self.message: Json = {}


class Client:
    """A conversation with a server.

    `connect` and `talk` create one. If you create one yourself, its `run` must be
    running in a nursery.

    Args:
        wire: The connection to the server.
        revision: The protocol revision to use.
        capabilities: Capabilities that the client declares, in addition to those that
            the handlers give.
        handlers: The functions that answer the server's questions and receive its
            reports.
        timeout: How many seconds to wait for a reply or a notification.
    """

    def __init__(
        self,
        wire: ClientWire,
        revision: str = NEWEST,
        *,
        capabilities: Json | None = None,
        handlers: Handlers = NO_HANDLERS,
        timeout: float | None = None,
    ) -> None:
        self.revision = revision
        self.capabilities = handlers.capabilities() | (capabilities or {})
        # The result of `initialize`.
        self.server: Json = {}
        # Every notification that the server sent, in order.
        self.heard: list[Json] = []
        self._wire = wire
        self._handlers = handlers
        self._timeout = math.inf if timeout is None else timeout
        self._opens = OPENS.get(revision, True)
        self._replies: dict[Any, _PendingReply] = {}
        self._ids = count()
        self._notified = trio.lowlevel.ParkingLot()
        self._has_ended = False

    async def run(self) -> None:
        """Receive messages until the server ends the conversation."""
        async with trio.open_nursery() as nursery:
            while True:
                messages = await self._wire.receive()
                if not messages:
                    break
                for message in messages:
                    if message:
                        self._receive(message, nursery)
        self._has_ended = True
        for reply in self._replies.values():
            reply.arrived.set()

    def _receive(self, message: bytes, nursery: trio.Nursery) -> None:
        for part in split_batch(message):
            if "method" not in part:
                self._receive_reply(part)
            elif "id" in part:
                nursery.start_soon(self._answer_question, part)
            else:
                self.heard.append(part)
                self._handlers.handle_notification(part)
                self._notified.unpark_all()

    def _receive_reply(self, message: Json) -> None:
        id = message.get("id")
        if not isinstance(id, str | int):
            return
        reply = self._replies.get(id)
        if reply is not None:
            reply.message = message
            reply.arrived.set()

    async def open(self) -> None:
        """Open the session, if the revision has sessions."""
        if not self._opens:
            return
        params = {
            "protocolVersion": self.revision,
            "capabilities": self.capabilities,
            "clientInfo": INFO,
        }
        self.server = await self.request("initialize", params)
        self.revision = self.server["protocolVersion"]
        self.notify("notifications/initialized")
        if self._handlers.log is not None and "logging" in self.server["capabilities"]:
            await self.request("logging/setLevel", {"level": LOG_LEVEL})

    def send(self, message: object) -> None:
        """Send any JSON value as a message.

        Args:
            message: The JSON value.
        """
        self._wire.send(jsonrpc.encode(message))

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification.

        Args:
            method: The method of the notification.
            params: Its params.
        """
        self._wire.send(jsonrpc.encode_notification(method, params))

    def begin(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Json | None = None,
    ) -> int:
        """Send a request without waiting. Pass the returned id to `finish`.

        Args:
            method: The method of the request.
            params: Its params.
            meta: Its `_meta`.
        """
        id = next(self._ids)
        self._replies[id] = _PendingReply()
        message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
        all_params = dict(params or {})
        all_meta = self._stateless_meta()
        if self._handlers.progress is not None:
            all_meta["progressToken"] = id
        all_meta |= meta or {}
        if all_meta:
            all_params["_meta"] = all_meta
        if all_params:
            message["params"] = all_params
        self.send(message)
        return id

    def _stateless_meta(self) -> Json:
        """Return the metadata of every request in a revision without sessions."""
        if self._opens:
            return {}
        meta: Json = {
            f"{VENDOR}protocolVersion": self.revision,
            f"{VENDOR}clientInfo": INFO,
            f"{VENDOR}clientCapabilities": self.capabilities,
        }
        if self._handlers.log is not None:
            meta[f"{VENDOR}logLevel"] = LOG_LEVEL
        return meta

    async def finish(self, id: int) -> Result:
        """Wait for the result of a request that `begin` sent.

        Raises RemoteError, ServerGone, NotAMessage and TimeoutError.

        Args:
            id: The id that `begin` returned.
        """
        reply = self._replies[id]
        try:
            if not self._has_ended:
                with trio.fail_after(self._timeout):
                    await reply.arrived.wait()
        except trio.TooSlowError:
            raise TimeoutError(f"no reply within {self._timeout:g} s") from None
        finally:
            del self._replies[id]
        if not reply.message:
            raise ServerGone("the server ended the conversation before it answered")
        if "error" in reply.message:
            raise RemoteError(reply.message["error"])
        result = reply.message.get("result")
        if not isinstance(result, dict):
            raise NotAMessage(jsonrpc.encode(reply.message))
        found = Result(result)
        found.is_of_wrapping_revision = self.revision in WRAPS
        return found

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Json | None = None,
    ) -> Result:
        """Send a request, answer the questions about it, and return its result.

        Cancelling this cancels the request. If the server does not support the
        revision, the request is sent once more in a revision that both sides support.

        Args:
            method: The method of the request.
            params: Its params.
            meta: Its `_meta`.
        """
        params = dict(params or {})
        may_change_revision = not self._opens
        while True:
            id = self.begin(method, params, meta=meta)
            try:
                result = await self.finish(id)
            except trio.Cancelled:
                self.notify("notifications/cancelled", {"requestId": id})
                raise
            except TimeoutError as problem:
                self.notify("notifications/cancelled", {"requestId": id})
                raise TimeoutError(f"{method}: {problem}") from None
            except RemoteError as error:
                if not may_change_revision or not self._change_revision(error):
                    raise
                may_change_revision = False
                continue
            if result.get("resultType") != "input_required":
                return result
            params |= await self._answer_input_requests(result)

    def _change_revision(self, error: RemoteError) -> bool:
        """Change to the newest revision without sessions that both sides support.

        Returns False for other errors, and if there is no such revision.
        """
        if error.code != UnsupportedVersion.code or not isinstance(error.data, dict):
            return False
        supported = error.data.get("supported")
        if not isinstance(supported, list):
            return False
        for name, opens in reversed(OPENS.items()):
            if name in supported and not opens:
                self.revision = name
                return True
        return False

    async def _answer_input_requests(self, result: Result) -> Json:
        """Return the params to add when the request is sent again with the answers."""
        responses: Json = {}
        for key, question in result.get("inputRequests", {}).items():
            responses[key] = await self.answer_question(
                question["method"], question["params"]
            )
        params: Json = {"inputResponses": responses}
        if "requestState" in result:
            params["requestState"] = result["requestState"]
        return params

    async def _answer_question(self, question: Json) -> None:
        """Answer a request from the server."""
        reply: Json = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            params = question.get("params", {})
            reply["result"] = await self.answer_question(question["method"], params)
        except RemoteError as error:
            reply["error"] = {"code": error.code, "message": error.message}
        self.send(reply)

    async def answer_question(self, method: str, params: Json) -> Json:
        """Return the answer to a question of the server. Raises RemoteError.

        Args:
            method: The method of the server's request.
            params: Its params.
        """
        return await self._handlers.respond(method, params)

    async def hear(self, method: str, count: int = 1) -> list[Json]:
        """Wait for notifications of a method, and return all that have arrived.

        Raises TimeoutError.

        Args:
            method: The method of the notifications.
            count: How many notifications to wait for.
        """
        with trio.move_on_after(self._timeout):
            while True:
                found = self._notifications(method)
                if len(found) >= count:
                    return found
                await self._notified.park()
        raise TimeoutError(
            f"expected {count} of {method} within {self._timeout:g} s, "
            f"got {len(self._notifications(method))}"
        )

    def _notifications(self, method: str) -> list[Json]:
        return [message for message in self.heard if message["method"] == method]

    async def ping(self) -> None:
        """Wait for the server to answer a ping."""
        await self.request("ping")

    async def list_tools(self) -> list[Json]:
        """Return all tools, from all pages.

        In a revision without sessions, tools that require invalid headers are left out,
        and a warning is logged.
        """
        tools = await self._list("tools/list", "tools")
        if self._opens:
            return tools
        return [tool for tool in tools if _has_valid_headers(tool)]

    async def list_resources(self) -> list[Json]:
        """Return all resources, from all pages."""
        return await self._list("resources/list", "resources")

    async def list_templates(self) -> list[Json]:
        """Return all resource templates, from all pages."""
        return await self._list("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[Json]:
        """Return all prompts, from all pages."""
        return await self._list("prompts/list", "prompts")

    async def _list(self, method: str, key: str) -> list[Json]:
        items: list[Json] = []
        params: Json = {}
        while True:
            page = await self.request(method, params)
            items += page[key]
            cursor = page.get("nextCursor")
            if not cursor:
                return items
            params = {"cursor": cursor}

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Json | None = None,
        on_task: OnTask | None = None,
    ) -> Result:
        """Call a tool. If the tool fails, the `is_error` of the result is True.

        If the server runs the call as a task, this waits for the task and returns its
        result. Servers do so only if the client declares the extension in its
        `capabilities`, as `{"extensions": {TASKS: {}}}`.

        Cancelling this cancels the task. Raises RemoteError if the task fails, and
        TaskCancelled if another client or the server cancels it.

        Args:
            name: The name of the tool.
            arguments: Its arguments.
            meta: The `_meta` of the request.
            on_task: Called with each state of the task.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        result = await self.request("tools/call", params, meta=meta)
        if result.get("resultType") != "task":
            return result
        from .tasks import follow

        return Result(await follow(self, result, on_task))

    async def read_resource(self, uri: str) -> list[Json]:
        """Return the contents of a resource.

        Args:
            uri: The URI of the resource.
        """
        result = await self.request("resources/read", {"uri": uri})
        contents: list[Json] = result["contents"]
        return contents

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> Result:
        """Return a prompt, filled in with arguments.

        Args:
            name: The name of the prompt.
            arguments: Its arguments, which are strings.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self.request("prompts/get", params)


def _has_valid_headers(tool: Json) -> bool:
    problem = invalid_mirror(tool.get("inputSchema"))
    if problem is not None:
        log.warning("ignoring tool %r: %s", tool.get("name"), problem)
    return problem is None


@contextmanager
def ungrouped() -> Iterator[None]:
    """Unwrap an exception group that contains only one exception.

    Nurseries wrap the exceptions of their tasks in groups, but callers of the client
    expect RemoteError or OSError.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        # Raising it here would otherwise make the group its context.
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context


@asynccontextmanager
async def talk(
    wire: ClientWire,
    revision: str = NEWEST,
    *,
    within: float = math.inf,
    capabilities: Json | None = None,
    handlers: Handlers = NO_HANDLERS,
    timeout: float | None = None,
) -> AsyncIterator[Client]:
    """Run a client on a wire, and open its session.

    Raises OSError if the session does not open in time.

    Args:
        wire: The connection to the server.
        revision: The protocol revision to use.
        within: How many seconds the session has to open.
        capabilities: Capabilities that the client declares, in addition to those that
            the handlers give.
        handlers: The functions that answer the server's questions and receive its
            reports.
        timeout: How many seconds to wait for a reply or a notification.
    """
    client = Client(
        wire, revision, capabilities=capabilities, handlers=handlers, timeout=timeout
    )
    with ungrouped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            with trio.move_on_after(within) as opening:
                await client.open()
            if opening.cancelled_caught:
                raise OSError(f"no reply from the server within {within:g} s")
            yield client
            nursery.cancel_scope.cancel()
