"""Messages between the parent and a worker."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest
import trio

from mcp_trio.workers.member import Member
from mcp_trio.workers.messages import (
    AllMetrics,
    Begin,
    Message,
    Ready,
    Stop,
    WorkerChannel,
    receive_begin,
)

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="workers are not supported on Windows"
)

Ends = tuple[socket.socket, socket.socket]

BEGIN = Begin(1, {"spec": "a.py", "workers": 2}, ["/a"], {}, 0)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return the ends of the parent and of the worker."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def test_messages_arrive_in_order_and_then_the_end(ends: Ends) -> None:
    here, there = map(WorkerChannel, ends)
    sent: list[Message] = [
        Ready("a", ["http://a"], 5.0),
        AllMetrics(3, b"x" * 500_000),
        Stop(True),
    ]
    received = []
    async with trio.open_nursery() as nursery:
        for message in sent:
            nursery.start_soon(here.send, message)
            await trio.testing.wait_all_tasks_blocked()
        while len(received) < len(sent):
            received.append(await there.receive())
    assert received == sent
    await here.aclose()
    assert await there.receive() is None
    # Whoever is late does not fail.
    await there.send(Stop(True))


def test_the_first_message_is_read_without_a_loop(ends: Ends) -> None:
    ours, theirs = ends

    async def send() -> None:
        await WorkerChannel(ours).send(BEGIN)

    trio.run(send)
    assert receive_begin(theirs) == BEGIN


def test_a_worker_whose_parent_has_gone_does_not_begin(ends: Ends) -> None:
    ours, theirs = ends
    ours.close()
    with pytest.raises(EOFError):
        receive_begin(theirs)


async def test_a_worker_stops_when_its_parent_is_gone(
    ends: Ends, nursery: trio.Nursery
) -> None:
    ours, theirs = ends
    member = Member(BEGIN, theirs)
    await nursery.start(member.run)
    assert not member.stop.is_set()
    ours.close()
    await member.stop.wait()
    assert member.is_stopping
    assert not member.stop_at_once.is_set()


async def test_a_worker_that_is_replaced_knows_that_others_go_on(
    ends: Ends, nursery: trio.Nursery
) -> None:
    ours, theirs = ends
    parent = WorkerChannel(ours)
    member = Member(BEGIN, theirs)
    await nursery.start(member.run)
    await parent.send(Stop(is_for_all=False))
    await member.stop.wait()
    assert not member.is_stopping
    await parent.send(Stop(is_for_all=True, at_once=True))
    await member.stop_at_once.wait()
    assert member.is_stopping
    nursery.cancel_scope.cancel()


async def test_a_worker_reports_its_own_metrics_if_the_parent_does_not_answer(
    ends: Ends, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    _, theirs = ends
    member = Member(BEGIN, theirs)
    member.use_page(lambda: b"mine")
    await nursery.start(member.run)
    assert await member.all_metrics() == b"mine"
    nursery.cancel_scope.cancel()
