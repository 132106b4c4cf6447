"""A small client, for replays, benchmarks, the command line and tests.

It speaks every revision over anything that carries messages, answers what the server asks, and hands out results as
the wire has them.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import trio

from .client_messages import NoMessage, parts_of
from .protocol import jsonrpc
from .protocol.model import Json
from .protocol.params import VENDOR
from .protocol.revisions import REVISIONS
from .transports.lines import Lines

NEWEST = REVISIONS[-1].name
OPENS = {revision.name: revision.opens for revision in REVISIONS}
# Seconds in which a server at a URL has to open a session.
TO_ANSWER = 30.0
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


class RemoteError(Exception):
    """The server answered with an error."""

    def __init__(self, error: Any) -> None:
        error = error if isinstance(error, dict) else {"message": error}
        super().__init__(f"{error.get('message')} ({error.get('code')})")
        self.code: int = error.get("code", 0)
        self.message: str = error.get("message", "")
        self.data: Any = error.get("data")
        self.is_ours: bool = error.get("ours", False)  # it was made here, as no answer has come


class ServerGone(Exception):
    """The server ended the conversation while it owed answers."""


class Result(dict[str, Any]):
    """A result, as the wire has it, and what one mostly wants of a tool's."""

    @property
    def text(self) -> str:
        """The text in a tool's content, joined."""
        return "".join(item["text"] for item in self.get("content", []) if item.get("type") == "text")

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
        self, wire: Wire, revision: str = NEWEST, *, capabilities: Json | None = None, answer: Answer | None = None
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
            if isinstance(id, str | int) and (reply := self._replies.get(id)) is not None:
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
            opening = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": INFO}
            self.server = await self.request("initialize", opening)
            self.revision = self.server["protocolVersion"]
            self.notify("notifications/initialized")

    def send(self, message: Any) -> None:
        """Send anything that is JSON."""
        self._wire.send(jsonrpc.encode(message))

    def notify(self, method: str, params: Json | None = None) -> None:
        """Send a notification."""
        self._wire.send(jsonrpc.encode_notification(method, params))

    def begin(self, method: str, params: Given | None = None, *, meta: Json | None = None) -> int:
        """Send a request; `finish` waits for its result."""
        id = next(self._ids)
        self._replies[id] = _Reply()
        message: Json = {"jsonrpc": "2.0", "id": id, "method": method}
        if not self._opens:
            declared = {"protocolVersion": self.revision, "clientInfo": INFO, "clientCapabilities": self.capabilities}
            meta = {VENDOR + key: value for key, value in declared.items()} | (meta or {})
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
            raise NoMessage(jsonrpc.encode(reply.message))
        return Result(result)

    async def request(self, method: str, params: Given | None = None, *, meta: Json | None = None) -> Result:
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
        again: Json = {"inputResponses": {key: await self._ask(one["method"], one["params"]) for key, one in asked}}
        if "requestState" in result:
            again["requestState"] = result["requestState"]
        return again

    async def _answer_question(self, question: Json) -> None:
        head = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            self.send({**head, "result": await self._ask(question["method"], question.get("params", {}))})
        except RemoteError as error:
            self.send({**head, "error": {"code": error.code, "message": error.message}})

    async def _ask(self, method: str, params: Json) -> Json:
        if method == "ping":
            return {}
        if self._answer is None:
            raise RemoteError({"code": -32601, "message": f"Method not found: {method}"})
        return await self._answer(method, params)

    async def hear(self, method: str, count: int = 1) -> list[Json]:
        """Wait until that many notifications of a method have come; all of them."""
        while len(found := [message for message in self.heard if message["method"] == method]) < count:
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

    async def call_tool(self, name: str, arguments: Given | None = None, *, meta: Json | None = None) -> Result:
        """Call a tool."""
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments or {})}, meta=meta)

    async def read_resource(self, uri: str) -> list[Json]:
        """What a resource reads as."""
        contents: list[Json] = (await self.request("resources/read", {"uri": uri}))["contents"]
        return contents

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Result:
        """A prompt, filled in."""
        return await self.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})


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


@asynccontextmanager
async def connect(
    target: str | Sequence[str], revision: str = NEWEST, *, token: str = "", **options: Any
) -> AsyncIterator[Client]:
    """A client of the server at a URL (http, https, ws, wss), or of a command that is started for it.

    A URL whose path ends in /sse is taken for the HTTP+SSE of the first revisions. `token` is the bearer token for a
    URL. The other options are those of Client.
    """
    with ungrouped():
        # A command may have to be fetched first; who listens already can answer.
        within = TO_ANSWER if is_url(target) else math.inf
        async with _wire_to(target, token) as wire, talk(wire, revision, within=within, **options) as client:
            yield client


def is_url(target: object) -> bool:
    """Whether a target is a URL, of the kinds that `connect` takes."""
    return isinstance(target, str) and target.startswith(("http://", "https://", "ws://", "wss://"))


def transport_of(url: str) -> Literal["ws", "sse", "http"]:
    """What a URL is reached over."""
    parts = urlsplit(url)
    if parts.scheme in ("ws", "wss"):
        return "ws"
    return "sse" if parts.path.endswith("/sse") else "http"


def _wire_to(target: str | Sequence[str], token: str) -> AbstractAsyncContextManager[Wire]:
    if not isinstance(target, str):
        return start(target)
    from .client_wires import WIRES

    return WIRES[transport_of(target)](target, token)


class LineWire:
    """Messages by line, to and from a server's standard input and output; `run` must be running in a nursery."""

    process: trio.Process | None = None

    def __init__(self, stdin: trio.abc.SendStream, stdout: trio.abc.ReceiveStream) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._outgoing, self._to_write = trio.open_memory_channel[bytes](math.inf)
        self._lines = Lines(limit=2**62)  # a server's answers are not ours to bound

    async def receive(self) -> list[bytes | None]:
        """Every message that is complete."""
        while chunk := await self._stdout.receive_some(2**16):
            if messages := self._lines.feed(bytes(chunk)):
                return messages
        return self._lines.end()

    def send(self, message: bytes) -> None:
        """Queue one message."""
        self.write(message + b"\n")

    def write(self, data: bytes) -> None:
        """Queue what is written in one go: a part of a line, or many lines."""
        self._outgoing.send_nowait(data)

    def end_input(self) -> None:
        """Let the server's input end, behind what is queued."""
        self._outgoing.close()

    async def run(self) -> None:
        """Write what is queued, until the input has ended."""
        # A server that is gone is told to whoever waits for its answers by the end of its output.
        with suppress(trio.BrokenResourceError):
            async with self._stdin:
                async for data in self._to_write:
                    await self._stdin.send_all(data)


@asynccontextmanager
async def start(command: Sequence[str], *, patience: float = 2.0) -> AsyncIterator[LineWire]:
    """Start a server as a process of its own. Leaving ends its input, waits that long for it, and then ends it."""
    try:
        process = await trio.lowlevel.open_process(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise type(error)(f"{command[0]} cannot be started: {error.strerror}") from None
    assert process.stdio is not None
    wire = LineWire(process.stdio.send_stream, process.stdio.receive_stream)
    wire.process = process
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.run)
        try:
            yield wire
        finally:
            wire.end_input()
            with trio.CancelScope(shield=True):
                with trio.move_on_after(patience):
                    await process.wait()
                process.kill()
                await process.wait()
            nursery.cancel_scope.cancel()
