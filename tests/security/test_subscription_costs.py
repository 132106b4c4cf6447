"""The cost of a change depends on the clients that it affects, not on all others."""

import sys
from typing import Any

import pytest
import trio.testing

from mcp_trio import Server
from mcp_trio.protocol.revisions import REVISIONS, Revisions
from mcp_trio.protocol.session import Session
from mcp_trio.protocol.types import Implementation
from mcp_trio.server.conversation import Conversation
from mcp_trio.server.subscriptions import Subscriptions
from mcp_trio.transports.memory import memory_pair
from tests.support.checked import MODERN, modern, raw

R = MODERN[0]


class _Counter:
    """Counts the lines of Python that run in the server's subscriptions."""

    def __init__(self) -> None:
        self.lines = 0

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith("subscriptions.py"):
            return None
        self.lines += event == "line"
        return self

    def __enter__(self) -> "_Counter":
        self._previous = sys.gettrace()  # of a debugger, or of coverage
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._previous)


async def _lines_of_a_change(listens: int) -> int:
    """Return the lines that run when a resource changes that one listener wants.

    As many listeners and sessions want to know about others.
    """
    server = Server("x")

    @server.resource("notes://{id}")
    async def note(id: str) -> str:
        return id

    async with raw(server) as client:
        for id in range(listens):
            wanted = {"resourceSubscriptions": [f"notes://{id}"]}
            listen = {"notifications": wanted}
            client.send(modern(id, "subscriptions/listen", listen))
        await client.replies(listens)
        for id in range(1, listens):
            server.subscriptions.subscribe(_conversation(), f"notes://{id}")
        with _Counter() as counter:
            server.resource_updated("notes://0")
            (told,) = await client.replies(1)
        assert told["params"]["uri"] == "notes://0"
        return counter.lines


def _conversation() -> Conversation:
    revisions = Revisions(Implementation("x", "1"), None, REVISIONS)
    session = Session(revisions)
    session.revision = revisions.newest_opening
    return Conversation(session, memory_pair()[0])


def _lines_of_an_end(subscribed: int) -> int:
    """Return the lines that run when one of many subscribed sessions ends."""
    subscriptions = Subscriptions(lambda uri: frozenset())
    for number in range(subscribed):
        subscriptions.subscribe(_conversation(), f"notes://{number % 10}")
    leaving = _conversation()
    subscriptions.subscribe(leaving, "notes://0")
    with _Counter() as counter:
        subscriptions.remove(leaving)
    return counter.lines


async def test_a_change_costs_in_proportion_to_whom_it_concerns() -> None:
    assert await _lines_of_a_change(300) == await _lines_of_a_change(3)


@pytest.mark.slow
def test_the_end_of_a_session_costs_in_proportion_to_its_subscriptions() -> None:
    assert _lines_of_an_end(3000) == _lines_of_an_end(30)


async def test_the_end_of_a_session_does_not_look_at_the_listeners_of_others() -> None:
    async def lines(listens: int) -> int:
        server = Server("x")

        async with raw(server) as client:
            for id in range(listens):
                listen = {"notifications": {"toolsListChanged": True}}
                client.send(modern(id, "subscriptions/listen", listen))
            await client.replies(listens)
            with _Counter() as counter:
                server.subscriptions.remove(_conversation())
            return counter.lines

    assert await lines(300) == await lines(3)


async def test_nothing_is_kept_of_listeners_and_sessions_that_have_ended() -> None:
    server = Server("x")

    @server.resource("notes://{id}")
    async def note(id: str) -> str:
        return id

    async with raw(server) as client:
        listen = {"notifications": {"resourceSubscriptions": ["notes://1"]}}
        client.send(modern(1, "subscriptions/listen", listen))
        await client.replies(1)
        session = _conversation()
        server.subscriptions.subscribe(session, "notes://2")
        server.subscriptions.subscribe(session, "notes://3")
        server.subscriptions.unsubscribe(session, "notes://3")
        server.subscriptions.remove(session)
        server.subscriptions.end_all()
        await client.replies(1)
        await trio.testing.wait_all_tasks_blocked()
    fresh = Subscriptions(lambda uri: frozenset())
    for name in ("_conversations", "_subscribers", "_listeners", "_listeners_of"):
        assert getattr(server.subscriptions, name) == getattr(fresh, name) == {}
