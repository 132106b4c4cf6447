"""A client that sends each request to the process of its choice, and follows streams.

Anything that goes wrong is a `Problem`, whose text says its kind. A fault excuses some
kinds: see `faults.py`. A problem that has passed, because a later attempt succeeded, is
reported with `pair.report`.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio

from tests.chaos.load import Wrong
from tests.support.http_wire import (
    HEADERS,
    MODERN,
    Response,
    Wire,
    message,
    modern_headers,
    request,
)
from tests.support.shared_sites import Events

from .pair import Member, Pair

# Seconds after which a client hangs that has no response, or no outcome.
HANGS = 60.0
# Seconds between two attempts.
AGAIN = 0.3
VENDOR = "io.modelcontextprotocol/"
DECLARED = {
    f"{VENDOR}clientCapabilities": {
        "elicitation": {},
        "extensions": {f"{VENDOR}tasks": {}},
    }
}
ACCEPTED = {"action": "accept", "content": {"sure": True}}
LOST = "process serving this request was lost"
# What a connection that has ended raises, also in the helpers of the tests.
ENDED = (OSError, AssertionError, trio.BrokenResourceError, ValueError)


class Problem(Wrong):
    """A request has failed. Its text begins with the kind: `gone`, `unavailable`."""


class Visitor:
    """A client with one session, which both processes serve."""

    def __init__(
        self,
        name: str,
        pair: Pair,
        report: Callable[[Exception], None],
        *,
        offset: int = 0,
    ) -> None:
        self.name = name
        self._offset = offset
        # The resource that it is subscribed to, if it listens.
        self.resource = f"notes://{name}"
        self.pair = pair
        self.report = report
        self.session: dict[str, str] = {}

    def members(self, number: int) -> tuple[Member, Member]:
        """Return both processes, and another one first each time.

        Clients with another offset use them the other way round.
        """
        first, second = self.pair.members
        if (number + self._offset) % 2:
            return second, first
        return first, second

    # Requests

    async def send(
        self, member: Member, method: str, headers: dict[str, str], body: Any = None
    ) -> Response:
        """Send a request. Raises Problem if it is not served."""
        async with self._sent(member, method, headers, body) as (wire, head):
            with _noting_end(member):
                response = await wire.rest_of(head)
        _check(member, response)
        return response

    @asynccontextmanager
    async def _sent(
        self, member: Member, method: str, headers: dict[str, str], body: Any
    ) -> AsyncIterator[tuple[_Wire, Response]]:
        """Send a request, and yield the head of the response."""
        data = b"" if body is None else json.dumps(body).encode()
        with _noting_end(member):
            stream = await trio.open_tcp_stream("127.0.0.1", member.server.port)
        try:
            wire = _Wire(stream)
            with _noting_end(member):
                await wire.send(request(method, "/mcp", headers, data))
                head = await wire.head()
            yield wire, head
        finally:
            await trio.aclose_forcefully(stream)

    async def modern(self, member: Member, method: str, params: Any) -> Any:
        """Send a request of the newest revision, and return the reply."""
        body = message(method, {**params, "_meta": {**MODERN, **DECLARED}})
        headers = modern_headers(body)
        if "taskId" in params:
            headers["Mcp-Name"] = params["taskId"]
        return (await self.send(member, "POST", headers, body)).json

    async def call(self, member: Member, tool: str, **arguments: Any) -> Any:
        """Call a tool in the session, and return the reply."""
        body = message("tools/call", {"name": tool, "arguments": arguments})
        return (await self.send(member, "POST", self.session, body)).json

    async def until_sent(
        self, number: int, method: str, headers: dict[str, str], body: Any
    ) -> Response:
        """Send a request to one process or the other, until it is served."""
        with trio.move_on_after(HANGS):
            while True:
                for member in self.members(number):
                    try:
                        return await self.send(member, method, headers, body)
                    except Problem as problem:
                        self.report(problem)
                        await trio.sleep(AGAIN)
        raise Problem(f"hangs: {method} was not served")

    # The session

    async def open(self, number: int) -> None:
        """Open the session."""
        opening = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "visitor", "version": "1"},
        }
        body = message("initialize", opening)
        response = await self.until_sent(number, "POST", HEADERS, body)
        self.session = {
            **HEADERS,
            "Mcp-Session-Id": response.headers["mcp-session-id"],
            "MCP-Protocol-Version": "2025-11-25",
        }
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.until_sent(number, "POST", self.session, note)

    @asynccontextmanager
    async def stream(
        self, member: Member, body: Any = None, last: str | None = None
    ) -> AsyncIterator[Events]:
        """Open a stream: that of a POST with a body, or else that of a GET."""
        headers = dict(self.session)
        if last is not None:
            headers["Last-Event-ID"] = last
        method = "GET" if body is None else "POST"
        async with self._sent(member, method, headers, body) as (wire, head):
            if head.status != 200:
                with _noting_end(member):
                    _check(member, await wire.rest_of(head))
                raise Problem(f"status {head.status} for a stream at {member.name}")
            wire.patience = math.inf  # the caller knows how long it may take
            yield Events(wire)

    @asynccontextmanager
    async def listen(self, member: Member) -> AsyncIterator[Events]:
        """Listen to changes of the resource in the newest revision."""
        notifications = {"resourceSubscriptions": [self.resource]}
        params = {"notifications": notifications, "_meta": {**MODERN, **DECLARED}}
        body = message("subscriptions/listen", params)
        headers = modern_headers(body)
        async with self._sent(member, "POST", headers, body) as (wire, head):
            if head.status != 200:
                raise Problem(f"status {head.status} for a listen at {member.name}")
            wire.patience = math.inf
            events = Events(wire)
            await events.next()  # the acknowledgment
            yield events


class _Wire(Wire):
    """A connection with a longer patience than in other tests."""

    patience = HANGS

    async def rest_of(self, response: Response) -> Response:
        """Return a response with its body, after its head was read."""
        if "content-length" in response.headers:
            length = int(response.headers["content-length"])
            response.body = await self.exactly(length)
        elif response.headers.get("transfer-encoding") == "chunked":
            while True:
                chunk = await self.chunk()
                if not chunk:
                    break
                response.body += chunk
        return response


@contextmanager
def _noting_end(member: Member) -> Iterator[None]:
    """Raise a Problem if the connection to a process ends, or is silent."""
    try:
        yield
    except (*ENDED, trio.TooSlowError) as problem:
        raise as_problem(problem, member) from None


def as_problem(error: Exception, member: Member) -> Problem:
    """Return what a connection means that has ended, or that is silent."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, trio.TooSlowError):
        return Problem(f"hangs: {member.name} does not respond")
    return Problem(f"gone: {member.name}: {error!r}"[:200])


def _check(member: Member, response: Response) -> None:
    """Raise a Problem if a request was refused."""
    if response.status in (200, 202, 204):
        return
    said = f"{member.name} says {response.body[:200]!r}"
    if response.status == 503 and "retry-after" in response.headers:
        raise Problem(f"unavailable: {said}")
    raise Problem(f"refused with {response.status}: {said}")
