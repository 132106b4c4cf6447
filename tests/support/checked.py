"""Clients in the same process, whose conversations the oracle checks.

`connect` is `mcp_trio.testing.connect` with the oracle on its wire. `raw` sends any
bytes and returns the replies.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from mcp_trio.client.client import Client, talk
from mcp_trio.client.handlers import AnswerCallback, Handlers
from mcp_trio.protocol.revisions import REVISIONS
from mcp_trio.server.app import Server
from mcp_trio.server.serve_conversation import serve_conversation
from mcp_trio.transports.memory import MemoryWire
from mcp_trio.transports.send_queue import SendQueue
from tests.support.oracle import Oracle

Json = dict[str, Any]

ALL = [revision.name for revision in REVISIONS]
OPENING = [revision.name for revision in REVISIONS if revision.opens]
MODERN = [revision.name for revision in REVISIONS if not revision.opens]
NEWEST = ALL[-1]
TOO_LARGE = b"\0 a message that is too large to be taken"
VENDOR = "io.modelcontextprotocol/"


def spoken(server: Server, revision: str) -> str:
    """Return the revision that the server agrees to.

    This is the client's, or if the server lacks it, the newest with `initialize`.
    """
    return (
        revision
        if revision in server.revisions.names
        else server.revisions.newest_opening.name
    )


class Judge:
    """Collects the problems that the oracle finds in the messages of a conversation."""

    def __init__(self, revision: str | None) -> None:
        self._oracle = Oracle(revision) if revision else None
        self.problems: list[str] = []

    def sent(self, message: bytes) -> None:
        if self._oracle is None:
            return
        try:
            self._oracle.sent_by_client(json.loads(message))
        except (ValueError, RecursionError):
            pass  # it is not JSON, so its reply has no id

    def received(self, message: bytes) -> None:
        if self._oracle is not None:
            found = self._oracle.check(json.loads(message))
            self.problems += [f"{line} in {message[:500].decode()}" for line in found]

    def verdict(self) -> None:
        if self.problems:
            raise AssertionError(
                "the server sent what its revision does not have:\n"
                + "\n".join(self.problems)
            )


class JudgedWire:
    """A memory wire that shows everything to a judge."""

    def __init__(self, wire: MemoryWire, judge: Judge) -> None:
        self._wire = wire
        self._judge = judge

    async def receive(self) -> list[bytes | None]:
        messages = await self._wire.receive()
        for message in messages:
            assert message is not None
            self._judge.received(message)
        return messages

    def send(self, message: bytes) -> None:
        self._judge.sent(message)
        self._wire.send(message)


class _ServersEnd(MemoryWire):
    async def receive(self) -> list[bytes | None]:
        return [
            None if message == TOO_LARGE else message
            for message in await super().receive()
        ]


class Line:
    """Both ends of a memory wire. The client's end can be closed for sending only."""

    def __init__(self) -> None:
        self._there, self._back = SendQueue(), SendQueue()
        self.ours, self.theirs = (
            MemoryWire(self._back, self._there),
            _ServersEnd(self._there, self._back),
        )
        self.ended = trio.Event()

    def end(self) -> None:
        """Close the client's end for sending."""
        self._there.close()

    @property
    def has_come(self) -> bool:
        return self._back.size > 0

    async def serve(self, server: Server) -> None:
        await serve_conversation(server, self.theirs)
        self.ended.set()


@asynccontextmanager
async def connect(
    server: Server,
    revision: str = NEWEST,
    *,
    capabilities: Json | None = None,
    answer: AnswerCallback | None = None,
) -> AsyncIterator[Client]:
    """Return a client with an open session. The oracle checks what the server sends."""
    line = Line()
    judge = Judge(spoken(server, revision))
    async with server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(line.serve, server)
        try:
            async with talk(
                JudgedWire(line.ours, judge),
                revision,
                capabilities=capabilities,
                handlers=Handlers(answer=answer),
            ) as client:
                yield client
        finally:
            await line.ours.aclose()
            nursery.cancel_scope.cancel()
    judge.verdict()


class RawClient:
    """Sends any bytes, and returns the replies."""

    def __init__(self, line: Line, judge: Judge) -> None:
        self._wire = JudgedWire(line.ours, judge)
        self._line = line
        self._come: list[Any] = []

    def send(self, *messages: bytes | Json | list[Any]) -> None:
        """Send messages, given as bytes or as JSON values, in one go."""
        for message in messages:
            self._wire.send(
                message if isinstance(message, bytes) else json.dumps(message).encode()
            )

    def send_too_large(self) -> None:
        """Let the server's wire report a message that was too large."""
        self._wire.send(TOO_LARGE)

    async def receive_json(self) -> Any:
        """Return the next message."""
        while not self._come:
            messages = await self._wire.receive()
            if not messages:
                raise EOFError("the server has ended the conversation")
            self._take(messages)
        return self._come.pop(0)

    def _take(self, messages: list[bytes | None]) -> None:
        self._come += [
            json.loads(message) for message in messages if message is not None
        ]

    async def replies(self, count: int) -> list[Any]:
        """Return this many messages."""
        return [await self.receive_json() for _ in range(count)]

    async def quiet(self) -> list[Any]:
        """Wait until all tasks are blocked, and return what was received."""
        await trio.testing.wait_all_tasks_blocked()
        while self._line.has_come:
            self._take(await self._wire.receive())
            await trio.testing.wait_all_tasks_blocked()
        come, self._come = self._come, []
        return come

    async def exchange(self, *messages: bytes | Json | list[Any]) -> list[Any]:
        """Send messages, and return everything that the server sends in return."""
        self.send(*messages)
        return await self.quiet()

    async def open(self, revision: str) -> Json:
        """Open a session, and return the result of `initialize`."""
        self.send(
            initialize(revision),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        )
        reply: Json = await self.receive_json()
        return reply["result"]  # type: ignore[no-any-return]

    def end(self) -> None:
        """End the server's input."""
        self._line.end()

    async def ended(self) -> None:
        """Wait until the server has ended the conversation."""
        await self._line.ended.wait()


@asynccontextmanager
async def raw(server: Server, judged_by: str | None = None) -> AsyncIterator[RawClient]:
    """Return a client that may send anything.

    `judged_by` names the oracle's revision.
    """
    line = Line()
    judge = Judge(judged_by)
    async with server.running(), trio.open_nursery() as nursery:
        nursery.start_soon(line.serve, server)
        yield RawClient(line, judge)
        nursery.cancel_scope.cancel()
    judge.verdict()


@asynccontextmanager
async def opened(server: Server, revision: str) -> AsyncIterator[RawClient]:
    """Return such a client, with an open session if the revision has sessions."""
    async with raw(server, spoken(server, revision)) as client:
        if revision in OPENING:
            await client.open(revision)
        yield client


def request(id: Any, method: str, params: Json | None = None) -> Json:
    """Return a request of a revision with sessions."""
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        **({} if params is None else {"params": params}),
    }


def notification(method: str, params: Json | None = None) -> Json:
    return {
        "jsonrpc": "2.0",
        "method": method,
        **({} if params is None else {"params": params}),
    }


def initialize(
    revision: str, id: Any = "opening", capabilities: Json | None = None
) -> Json:
    client = {"name": "raw", "version": "1"}
    params = {
        "protocolVersion": revision,
        "capabilities": capabilities or {},
        "clientInfo": client,
    }
    return request(id, "initialize", params)


def modern(id: Any, method: str, params: Json | None = None, **meta: Any) -> Json:
    """Return a request of the newest revision.

    `meta` are keys without the vendor's prefix. None leaves a key out.
    """
    declared = {"protocolVersion": NEWEST, "clientCapabilities": {}, **meta}
    own = {VENDOR + key: value for key, value in declared.items() if value is not None}
    return request(
        id,
        method,
        {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **own}},
    )


def asking(revision: str, id: Any, method: str, params: Json | None = None) -> Json:
    """Return a request in the form of a revision."""
    return (
        request(id, method, params)
        if revision in OPENING
        else modern(id, method, params)
    )


def call(revision: str, id: Any, name: str, arguments: Json | None = None) -> Json:
    return asking(
        revision, id, "tools/call", {"name": name, "arguments": arguments or {}}
    )


def cancelled(id: Any) -> Json:
    return notification("notifications/cancelled", {"requestId": id})


def ping(revision: str, id: Any = "ping") -> Json:
    """Return the simplest request of a revision."""
    return request(id, "ping") if revision in OPENING else modern(id, "server/discover")
