"""Plays scenarios against a server, and records traces with reproducible bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import trio
import trio.testing

from mcp_trio import Server
from mcp_trio.load_spec import load
from mcp_trio.protocol.framing import LineDecoder
from mcp_trio.protocol.jsonrpc import encode
from mcp_trio.protocol.params import VENDOR
from mcp_trio.protocol.revisions import REVISIONS
from mcp_trio.server.serve_conversation import serve_conversation
from mcp_trio.trace.format import VERSION, Header, Line, Trace
from mcp_trio.transports.memory import MemoryWire
from mcp_trio.transports.send_queue import SendQueue

Json = dict[str, Any]
Said = bytes | Json | list[Any]

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "traces"
SERVERS = "tests/traces/servers/"
DEMO = "mcp_trio.demo"
# It changes with each release, and says nothing about the protocol.
VERSIONS = {
    True: ["/result/serverInfo/version"],
    False: ["/result/_meta/io.modelcontextprotocol~1serverInfo/version"],
}

ALL = [revision.name for revision in REVISIONS]
OPENING = [revision.name for revision in REVISIONS if revision.opens]
MODERN = [revision.name for revision in REVISIONS if not revision.opens]
LATEST, NEWEST = OPENING[-1], ALL[-1]
TABLES = {revision.name: revision for revision in REVISIONS}
SECRET = b"the secret of the traces, which is no secret"
# The modules that read the time of day.
CLOCKED = [
    "mcp_trio.server.client_requests",
    "mcp_trio.extensions.tasks.executor",
    "mcp_trio.extensions.tasks.record",
    "mcp_trio.extensions.tasks.records",
]
# The module that lets other tasks run when serving several messages takes long. On a
# busy machine, that would change the order of the messages.
TAKES_TURNS = "mcp_trio.server.serve_conversation"
# A time in the far future, so that the state that clients carry between two calls does
# not expire.
NOW = 4_000_000_000.0
STEP = 0.001


@dataclass
class Scenario:
    """A trace to record: its name, its header, and the function that plays it."""

    name: str
    revision: str
    title: str
    notes: str
    play: Callable[[Any], Awaitable[None]]
    server: str = DEMO
    folder: str = ""
    transport: Any = "stdio"
    over: Sequence[Any] = ()
    ignore: Sequence[str] = ()
    paced: bool = False

    @property
    def path(self) -> Path:
        """Return the path of the trace."""
        return FOLDER / (self.folder or self.revision) / f"{self.name}.jsonl"

    def header(self, *, paced: bool) -> Header:
        """Return the first line."""
        volatile = VERSIONS[TABLES[self.revision].opens] if self.server == DEMO else []
        return Header(
            mcp_trace=VERSION,
            title=self.title,
            revision=self.revision,
            transport=self.transport,
            server=self.server,
            client="by hand",
            over=list(self.over),
            paced=paced,
            ignore=[*volatile, *self.ignore],
            notes=self.notes,
        )


Play = Callable[[Any], Awaitable[None]]


class Scenarios(list[Scenario]):
    """A list of scenarios with a decorator that adds to it.

    The name of the function is the name of the trace. The first line of its docstring
    is the title, and the rest are the notes.
    """

    def add(self, revisions: Sequence[str], **options: Any) -> Callable[[Play], Play]:
        """Play a function in each of these revisions."""

        def register(play: Play) -> Play:
            title, _, notes = (play.__doc__ or "").partition("\n")
            notes = " ".join(notes.split())
            name = options.pop("name", None) or play.__name__.strip("_").replace(
                "_", "-"
            )
            self.extend(
                Scenario(name, revision, title, notes, play, **options)
                for revision in revisions
            )
            return play

        return register


class Talk:
    """A client that records the lines of a trace."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.opens = TABLES[revision].opens
        self.capabilities: Json = {}
        self.lines: list[Line] = []
        self.paced = False
        self._ids = count(1)
        self._to_server, self._from_server = SendQueue(), SendQueue()

    @property
    def server_end(self) -> MemoryWire:
        """Return the end that the server uses."""
        return StdioEnd(self._to_server, self._from_server)

    def send(self, *messages: Said) -> None:
        """Send messages so that they arrive together."""
        for message in messages:
            data = message if isinstance(message, bytes) else encode(message)
            self.lines.append(line("client", data))
            self._to_server.send(data)

    async def quiet(self) -> list[Any]:
        """Wait until all tasks are blocked, and return what was received."""
        await trio.testing.wait_all_tasks_blocked()
        return self._take()

    async def hear(self, number: int) -> list[Any]:
        """Return the next messages, which may take some time."""
        received: list[Any] = []
        while len(received) < number:
            await self._from_server.wait()
            received += self._take()
        return received

    def _take(self) -> list[Any]:
        received = self._from_server.take()
        self.lines += [line("server", data) for data in received]
        return [json.loads(data) for data in received]

    async def say(self, *messages: Said) -> list[Any]:
        """Send messages one at a time, and return everything received.

        Each is sent when the server has reacted to the previous one.
        """
        received: list[Any] = []
        for message in messages:
            self.send(message)
            received += await self.quiet()
        return received

    async def open(self, capabilities: Json | None = None) -> None:
        """Open a session if the revision has sessions.

        `capabilities` are also used for requests without sessions.
        """
        self.capabilities = capabilities or {}
        if self.opens:
            await self.say(
                initialize(self.revision, self.capabilities),
                note("notifications/initialized"),
            )
            self._ids = count(1)

    def request(
        self, method: str, params: Json | None = None, *, id: Any = None, **meta: Any
    ) -> Json:
        """Return a request in the form of the revision. `meta` is for its `_meta`."""
        carried = dict(params or {})
        if not self.opens:
            declared = {
                "protocolVersion": self.revision,
                "clientCapabilities": self.capabilities,
            }
            meta = {**{VENDOR + key: value for key, value in declared.items()}, **meta}
        if meta:
            carried["_meta"] = meta
        message = {
            "jsonrpc": "2.0",
            "id": next(self._ids) if id is None else id,
            "method": method,
        }
        return {**message, "params": carried} if carried else message

    def call(self, name: str, arguments: Json | None = None, **options: Any) -> Json:
        """Return a call of a tool."""
        return self.request(
            "tools/call", {"name": name, "arguments": arguments or {}}, **options
        )

    async def ask(
        self, method: str, params: Json | None = None, **options: Any
    ) -> list[Any]:
        """Send a request, and return everything received."""
        return await self.say(self.request(method, params, **options))

    async def use(
        self, name: str, arguments: Json | None = None, **options: Any
    ) -> list[Any]:
        """Call a tool, and return everything received."""
        return await self.say(self.call(name, arguments, **options))

    async def alive(self) -> None:
        """Check that the server still answers."""
        method = "ping" if self.opens else "server/discover"
        (reply,) = await self.ask(method, id="alive")
        assert reply["id"] == "alive", reply
        assert "result" in reply, reply

    async def converse(self, request: Json, *rounds: dict[str, Any]) -> list[Any]:
        """Send a request, and answer the questions that its tool asks.

        Each round maps the method of a question to its answer: a result, or an error
        under the key `error`. Revisions with and without sessions take the same rounds.
        """
        self.paced = True
        received = await self.say(request)
        for answers in rounds:
            received = await (
                self._reply(received, answers)
                if self.opens
                else self._retry(request, received[-1], answers)
            )
        return received

    async def _reply(self, received: list[Any], answers: dict[str, Any]) -> list[Any]:
        """Answer one question of each method, in the order of their arrival."""
        left = dict(answers)
        while questions := [
            one for one in received if "id" in one and one.get("method") in left
        ]:
            answer = left.pop(questions[0]["method"])
            body = answer if "error" in answer else {"result": answer}
            received = await self.say(
                {"jsonrpc": "2.0", "id": questions[0]["id"], **body}
            )
        return received

    async def _retry(
        self, request: Json, reply: Json, answers: dict[str, Any]
    ) -> list[Any]:
        result = reply["result"]
        responses = {
            key: answers[one["method"]] for key, one in result["inputRequests"].items()
        }
        again = {
            **request["params"],
            "inputResponses": responses,
            "requestState": result["requestState"],
        }
        return await self.say({**request, "id": next(self._ids), "params": again})


class StdioEnd(MemoryWire):
    """A server's end that splits lines as stdio does."""

    def __init__(self, incoming: SendQueue, outgoing: SendQueue) -> None:
        super().__init__(incoming, outgoing)
        self._lines = LineDecoder()

    async def receive(self) -> list[bytes | None]:
        """Return all complete messages."""
        while received := await super().receive():
            if messages := self._lines.feed(
                b"".join((message or b"") + b"\n" for message in received)
            ):
                return messages
        return []


def line(sender: Any, data: bytes, **more: Any) -> Line:
    """Return a line for a message.

    Data that is not JSON, or that does not fit into a line of text, becomes `raw`.
    """
    try:
        made = Line(t=0.0, sender=sender, message=msgspec.Raw(data), **more)
        encoded = msgspec.json.encode(made)
        assert not {*b"\r\n"} & {*data}
        again = msgspec.json.decode(encoded, type=Line)
        msgspec.json.decode(data)
        assert again.data == data
    except (AssertionError, ValueError, RecursionError, msgspec.MsgspecError):
        return Line(t=0.0, sender=sender, raw=data.decode("latin-1"), **more)
    return made


def initialize(revision: str, capabilities: Json | None = None, id: Any = 0) -> Json:
    """Return the request that opens a session."""
    client = {"name": "trace", "version": "1"}
    params = {
        "protocolVersion": revision,
        "capabilities": capabilities or {},
        "clientInfo": client,
    }
    return {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}


def note(method: str, params: Json | None = None) -> Json:
    """Return a notification."""
    return {
        "jsonrpc": "2.0",
        "method": method,
        **({} if params is None else {"params": params}),
    }


def cancelled(id: Any, reason: str = "no longer wanted") -> Json:
    """Return the notification that cancels a request."""
    return note("notifications/cancelled", {"requestId": id, "reason": reason})


# Recording


@dataclass
class Chance:
    """Replaces random tokens by numbered ones."""

    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def token_hex(self, size: int = 32) -> str:
        return f"{next(self._numbers):0{2 * size}x}"

    def token_urlsafe(self, size: int = 32) -> str:
        return f"chosen-{next(self._numbers):0{size}}"

    def token_bytes(self, size: int = 32) -> bytes:
        return next(self._numbers).to_bytes(size, "big")


@contextmanager
def nothing_by_chance() -> Iterator[None]:
    """Make ids, secrets and the time the same in every run."""
    import secrets

    chance = Chance()
    with ExitStack() as undone:
        for name in ("token_hex", "token_urlsafe", "token_bytes"):
            undone.enter_context(patch.object(secrets, name, getattr(chance, name)))
        for module in CLOCKED:
            stopped = SimpleNamespace(time=lambda: NOW)
            undone.enter_context(patch(f"{module}.time", stopped))
        undone.enter_context(patch(f"{TAKES_TURNS}.perf_counter", lambda: 0.0))
        yield


def fresh(spec: str) -> Any:
    """Load a new server, which a scenario may change. The demo is shared."""
    with patch.object(sys, "path", [*sys.path]):
        server = load(spec if spec == DEMO else str(ROOT / spec))
    server.environment.secret = SECRET
    return server


async def played(scenario: Scenario) -> Trace:
    """Play a scenario, and return its trace."""
    with nothing_by_chance():
        if scenario.transport == "http":
            from .web import played_over_http

            talk: Any = await played_over_http(scenario, fresh(scenario.server))
        else:
            talk = await _played_in_memory(scenario, fresh(scenario.server))
    trace = Trace(scenario.header(paced=scenario.paced or talk.paced), talk.lines)
    for index, one in enumerate(trace.lines):
        one.t = round(index * STEP, 3)
    return trace


async def _played_in_memory(scenario: Scenario, server: Server) -> Talk:
    talk = Talk(scenario.revision)
    with trio.fail_after(30):
        async with server.running(), trio.open_nursery() as nursery:
            nursery.start_soon(serve_conversation, server, talk.server_end)
            await scenario.play(talk)
            await talk.quiet()
            nursery.cancel_scope.cancel()
    return talk
