"""A small client, for replays, benchmarks, the command line and tests.

It speaks every revision over anything that carries messages, answers what the server asks, and hands out results as
the wire has them.
"""

from __future__ import annotations

import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import (
    asynccontextmanager,
    contextmanager,
)
from itertools import count
from typing import Any, Protocol

import trio

from ..protocol import jsonrpc
from ..protocol.params import VENDOR
from ..protocol.revisions import REVISIONS
from ..protocol.types import Json
from .errors import RemoteError, ServerGone
from .messages import NotAMessage, parts_of

NEWEST = REVISIONS[-1].name
OPENS = {revision.name: revision.opens for revision in REVISIONS}
INFO = {"name": "mcp_trio client", "version": "1"}

# Answers what a server asks: from a method and its params to the result.
Answer = Callable[[str, Json], Awaitable[Json]]
Given = Mapping[str, Any]


class Wire(Protocol):
    """What a client needs of a transport."""

    async def receive(self) -> list[bytes | None]:
        """Every message that is there; nothing at the end."""

    def send(self, message: bytes) -> None:
        """Put one message on its way."""


class Result(dict[str, Any]):
    """A result, as the wire has it, and what one mostly wants of a tool's."""

    @property
    def text(self) -> str:
        """The text in a tool's content, joined."""
        return "".join(
            item["text"]
            for item in self.get("content", [])
            if item.get("type") == "text"
        )

    @property
    def structured(self) -> Any:
        """A tool's structured content."""
        return self.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether a tool has failed."""
        return bool(self.get("isError"))


class _Reply:
    def __init__(self) -> None:
        self.come = trio.Event()
        self.message: Json = {}


class Client:
    """One conversation with one server. Made by `connect`, or by what else has a wire; `run` must run in a nursery."""

    def __init__(
        self,
        wire: Wire,
        revision: str = NEWEST,
        *,
        capabilities: Json | None = None,
        answer: Answer | None = None,
    ) -> None:
        self.revision = revision
        self.capabilities = capabilities or {}
        self.server: Json = {}
        self.heard: list[Json] = []  # every notification that has come, in order
        self._wire = wire
        self._answer = answer
        self._opens = OPENS.get(revision, True)
        self._replies: dict[Any, _Reply] = {}
        self._ids = count()
        self._news = trio.lowlevel.ParkingLot()
        self._gone = False

    async def run(self) -> None:
        """Take in what the server sends, until it ends."""
        async with trio.open_nursery() as nursery:
            while messages := await self._wire.receive():
                for message in messages:
                    for one in parts_of(message or b"[]"):
                        self._take(one, nursery)
        self._gone = True
        for reply in self._replies.values():
            reply.come.set()

    def _take(self, one: Json, nursery: trio.Nursery) -> None:
        if "method" not in one:
            id = one.get("id")
            if (
                isinstance(id, str | int)
                and (reply := self._replies.get(id)) is not None
            ):
                reply.message = one
                reply.come.set()
        elif "id" in one:
            nursery.start_soon(self._answer_question, one)
        else:
            self.heard.append(one)
            self._news.unpark_all()

    async def open(self) -> None:
        """Open the session, in a revision that has one."""
        if self._opens:
            opening = {
                "protocolVersion": self.revision,
                "capabilities": self.capabilities,
                "clientInfo": INFO,
            }
            self.server = await self.request("initialize", opening)
            self.revision = self.server["protocolVersion"]
            self.notify("notifications/initialized")

    def send(self, message: Any) -> None:
        """Send anything that is JSON."""
        self._wire.send(jsonrpc.encode(message))

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification."""
        self._wire.send(jsonrpc.encode_notification(method, params))

    def begin(
        self, method: str, params: Given | None = None, *, meta: Json | None = None
    ) -> int:
        """Send a request; `finish` waits for its result."""
        id = next(self._ids)
        self._replies[id] = _Reply()
        message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
        if not self._opens:
            declared = {
                "protocolVersion": self.revision,
                "clientInfo": INFO,
                "clientCapabilities": self.capabilities,
            }
            meta = {VENDOR + key: value for key, value in declared.items()} | (
                meta or {}
            )
        if params or meta:
            message["params"] = {**(params or {}), **({"_meta": meta} if meta else {})}
        self.send(message)
        return id

    async def finish(self, id: int) -> Result:
        """The result of a request that was begun. Raises RemoteError, ServerGone."""
        reply = self._replies[id]
        try:
            if not self._gone:
                await reply.come.wait()
        finally:
            del self._replies[id]
        if not reply.message:
            raise ServerGone("the server ended the conversation before it answered")
        if "error" in reply.message:
            raise RemoteError(reply.message["error"])
        if not isinstance(result := reply.message.get("result"), dict):
            raise NotAMessage(jsonrpc.encode(reply.message))
        return Result(result)

    async def request(
        self, method: str, params: Given | None = None, *, meta: Json | None = None
    ) -> Result:
        """Send a request and wait for its result, answering what is asked for it in between."""
        params = dict(params or {})
        while True:
            id = self.begin(method, params, meta=meta)
            try:
                result = await self.finish(id)
            except trio.Cancelled:
                self.notify("notifications/cancelled", {"requestId": id})
                raise
            if result.get("resultType") != "input_required":
                return result
            params |= await self._answers(result)

    async def _answers(self, result: Result) -> Json:
        """What to come again with, to a result that asks."""
        asked = result.get("inputRequests", {}).items()
        again: Json = {
            "inputResponses": {
                key: await self._ask(one["method"], one["params"]) for key, one in asked
            }
        }
        if "requestState" in result:
            again["requestState"] = result["requestState"]
        return again

    async def _answer_question(self, question: Json) -> None:
        head = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            self.send(
                {
                    **head,
                    "result": await self._ask(
                        question["method"], question.get("params", {})
                    ),
                }
            )
        except RemoteError as error:
            self.send({**head, "error": {"code": error.code, "message": error.message}})

    async def _ask(self, method: str, params: Json) -> Json:
        if method == "ping":
            return {}
        if self._answer is None:
            raise RemoteError(
                {"code": -32601, "message": f"Method not found: {method}"}
            )
        return await self._answer(method, params)

    async def hear(self, method: str, count: int = 1) -> list[Json]:
        """Wait until that many notifications of a method have come; all of them."""
        while (
            len(
                found := [
                    message for message in self.heard if message["method"] == method
                ]
            )
            < count
        ):
            await self._news.park()
        return found

    async def ping(self) -> None:
        """Ask whether the server is there."""
        await self.request("ping")

    async def list_tools(self) -> list[Json]:
        """All tools, page by page."""
        return await self._list("tools/list", "tools")

    async def list_resources(self) -> list[Json]:
        """All resources, page by page."""
        return await self._list("resources/list", "resources")

    async def list_templates(self) -> list[Json]:
        """All resource templates, page by page."""
        return await self._list("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[Json]:
        """All prompts, page by page."""
        return await self._list("prompts/list", "prompts")

    async def _list(self, method: str, key: str) -> list[Json]:
        items: list[Json] = []
        params: Json = {}
        while True:
            page = await self.request(method, params)
            items += page[key]
            if not page.get("nextCursor"):
                return items
            params = {"cursor": page["nextCursor"]}

    async def call_tool(
        self, name: str, arguments: Given | None = None, *, meta: Json | None = None
    ) -> Result:
        """Call a tool."""
        return await self.request(
            "tools/call", {"name": name, "arguments": dict(arguments or {})}, meta=meta
        )

    async def read_resource(self, uri: str) -> list[Json]:
        """What a resource reads as."""
        contents: list[Json] = (await self.request("resources/read", {"uri": uri}))[
            "contents"
        ]
        return contents

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> Result:
        """A prompt, filled in."""
        return await self.request(
            "prompts/get", {"name": name, "arguments": dict(arguments or {})}
        )


@contextmanager
def ungrouped() -> Iterator[None]:
    """What fails alone comes out as itself, without the groups that nurseries put around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context


@asynccontextmanager
async def talk(
    wire: Wire, revision: str = NEWEST, *, within: float = math.inf, **options: Any
) -> AsyncIterator[Client]:
    """A client on a wire, its session open within so many seconds. Options are those of Client."""
    client = Client(wire, revision, **options)
    with ungrouped():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            with trio.move_on_after(within) as opening:
                await client.open()
            if opening.cancelled_caught:
                raise OSError(f"nobody answers within {within:g} s")
            yield client
            nursery.cancel_scope.cancel()
