"""The clients that a fault must not affect. Each uses shared state in its own way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import trio
from msgspec import Struct, field

from tests.chaos.load import Lane, Load
from tests.support.http_wire import message
from tests.support.shared_sites import Events

from .pair import Member, Pair
from .visitor import (
    ACCEPTED,
    AGAIN,
    ENDED,
    HANGS,
    LOST,
    Problem,
    Visitor,
    as_problem,
)

# Calls that the rate of the tool allows: at once, and each second.
RATE = 5
# Kinds of clients that use A only half of the time.
SEVERAL = 4
OVER = ("completed", "failed", "cancelled")


# What needs no state


async def stateless(visitor: Visitor, number: int) -> None:
    """Call a tool that needs nothing but its process. It is refused by nothing."""
    for member in visitor.members(number):
        params = {"name": "add", "arguments": {"a": number, "b": 1}}
        try:
            reply = await visitor.modern(member, "tools/call", params)
        except Problem as problem:
            text = str(problem).replace("unavailable", "503")
            raise Problem(f"{text} to a call that needs no state") from None
        expect(reply["result"]["content"][0]["text"], str(number + 1))


# Sessions


async def in_session(visitor: Visitor, number: int) -> None:
    """Call a tool at both processes, in one session."""
    for member in visitor.members(number):
        reply = await visitor.call(member, "add", a=number, b=1)
        expect(reply["result"]["content"][0]["text"], str(number + 1))


async def resumed(visitor: Visitor, number: int) -> None:
    """Read a stream in parts, at one process and the other."""
    outcome = await follow(visitor, number, "steps", count=4)
    steps = [one["params"]["progress"] for one in outcome.before]
    expect(steps, list(range(len(steps))))
    expect(len(set(outcome.ids)), len(outcome.ids))
    outcome.check("4 steps")
    expect(len(steps), 4)


async def asked(visitor: Visitor, number: int) -> None:
    """Answer a question of one process at the other."""
    outcome = await follow(visitor, number, "confirm")
    outcome.check("accept: Sure(sure=True)")


class Outcome(Struct):
    """What a client has read of a stream, at whatever processes."""

    before: list[Any] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    reply: Any = None

    def check(self, text: str) -> None:
        """Raise a Problem unless the reply is this text."""
        error = self.reply.get("error")
        if error is not None and LOST in error["message"]:
            raise Problem("lost: a request has ended with an error")
        expect(self.reply["result"]["content"][0]["text"], text)


async def follow(visitor: Visitor, number: int, tool: str, **arguments: Any) -> Outcome:
    """Call a tool, and read its stream until the reply. It has one reply only."""
    outcome = Outcome()
    params = {
        "name": tool,
        "arguments": arguments,
        "_meta": {"progressToken": number},
    }
    body = message("tools/call", params, number)
    with trio.move_on_after(HANGS):
        try:
            async with visitor.stream(visitor.members(number)[0], body) as events:
                await read_part(visitor, number, events, outcome, most=2)
            if not outcome.ids:
                raise Problem(f"gone: {visitor.members(number)[0].name}: no event")
        except Problem as problem:
            if not outcome.ids:  # the request was not acknowledged
                raise
            visitor.report(problem)
        places = count(number + 1)
        while outcome.reply is None:
            await resume_part(visitor, next(places), number, outcome)
        for place in (0, 1):
            await check_again(visitor, place, outcome)
        return outcome
    raise Problem(f"hangs: no reply to {tool} in {HANGS:.0f} s")


async def resume_part(
    visitor: Visitor, place: int, number: int, outcome: Outcome
) -> None:
    """Resume a stream at a process, and read on."""
    member = visitor.members(place)[0]
    try:
        async with visitor.stream(member, last=outcome.ids[-1]) as events:
            await read_part(visitor, number, events, outcome)
    except Problem as problem:
        visitor.report(problem)
    if outcome.reply is None:
        await trio.sleep(AGAIN)


async def read_part(
    visitor: Visitor,
    number: int,
    events: Events,
    outcome: Outcome,
    most: int | None = None,
) -> None:
    """Read about so many messages of a stream, or all; answer questions elsewhere."""
    read = 0
    # The ids are those of all events that have arrived, so all of them are read.
    while outcome.reply is None and (most is None or read < most or events.has_unread):
        try:
            sent = await events.next()
        except (*ENDED, trio.TooSlowError):
            sent = None
        if events.ids:
            new = [id for id in events.ids if id not in outcome.ids]
            outcome.ids += new
        if sent is None:
            return
        read += 1
        if "method" not in sent:
            outcome.reply = sent
        elif sent["method"] == "elicitation/create":
            answer = {"jsonrpc": "2.0", "id": sent["id"], "result": ACCEPTED}
            await visitor.until_sent(number + 1, "POST", visitor.session, answer)
        else:
            outcome.before.append(sent)


async def check_again(visitor: Visitor, place: int, outcome: Outcome) -> None:
    """Read the stream from its beginning. It has to say the same as before."""
    member = visitor.members(place)[0]
    same = Outcome(ids=outcome.ids[:1])
    while same.reply is None:
        try:
            async with visitor.stream(member, last=outcome.ids[0]) as events:
                same.before = []
                while same.reply is None:
                    sent = await events.next()
                    if sent is None:
                        # Its process was declared lost. Any other one goes on.
                        raise Problem(f"gone: {member.name}: no reply yet")
                    if "method" not in sent:
                        same.reply = sent
                    elif sent["method"] != "elicitation/create":
                        same.before.append(sent)
        except (*ENDED, trio.TooSlowError, Problem) as problem:
            visitor.report(as_problem(problem, member))
            await trio.sleep(AGAIN)
    expect(same.reply, outcome.reply)
    expect(same.before, outcome.before)


async def cancelled(visitor: Visitor, number: int) -> None:
    """Cancel a request of one process at the other. Its stream ends."""
    first, _ = visitor.members(number)
    params = {"name": "wait", "arguments": {}, "_meta": {"progressToken": number}}
    body = message("tools/call", params, number)
    note = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": number},
    }
    async with visitor.stream(first, body) as events:
        try:
            with trio.fail_after(HANGS):
                begun = await events.next()
            if begun is None:
                raise Problem(f"gone: {first.name}: its process was declared lost")
            await visitor.until_sent(number + 1, "POST", visitor.session, note)
            with trio.fail_after(HANGS):
                rest = await events.rest()
        except (*ENDED, trio.TooSlowError) as problem:
            raise as_problem(problem, first) from None
    if rest:
        raise Problem(f"lost: a canceled request was answered: {rest}"[:200])


# Changes


class Listener:
    """A client that is notified of changes, in its session or with a `listen`."""

    def __init__(self, visitor: Visitor, *, is_modern: bool) -> None:
        self.heard = 0
        self.visitor = visitor
        self.is_modern = is_modern
        self.is_connected = trio.Event()
        self._last: str | None = None

    async def run(self) -> None:
        """Read, at one process or the other, until this is canceled."""
        for number in count():
            member = self.visitor.members(number)[0]
            try:
                await self._read(member)
            except (*ENDED, trio.TooSlowError, Problem) as problem:
                self.visitor.report(as_problem(problem, member))
            # Others may wait for the present one.
            if self.is_connected.is_set():
                self.is_connected = trio.Event()
            await trio.sleep(AGAIN)

    async def connected(self) -> trio.Event:
        """Wait until the stream is open. The event is another one if it was lost."""
        with trio.move_on_after(HANGS):
            while not self.is_connected.is_set():
                await self.is_connected.wait()
            return self.is_connected
        raise Problem("hangs: no stream was opened")

    async def _read(self, member: Member) -> None:
        async with AsyncExitStack() as stack:
            if self.is_modern:
                opening = self.visitor.listen(member)
            else:
                opening = self.visitor.stream(member, last=self._last)
            events = await stack.enter_async_context(opening)
            self.is_connected.set()
            while True:
                sent = await events.next()
                if events.ids:
                    self._last = events.ids[-1]
                if sent is None:
                    return
                if sent["method"] == "notifications/resources/updated":
                    self.heard += 1


class Hearing(Visitor):
    """A client that also listens."""

    listener: Listener


async def heard(visitor: Hearing, number: int) -> None:
    """Change a resource at one process, and wait for the notification at another."""
    listener = visitor.listener
    member = visitor.members(number)[0]
    connected = await listener.connected()
    before = listener.heard
    reply = await visitor.modern(
        member,
        "tools/call",
        {"name": "touch", "arguments": {"uri": visitor.resource}},
    )
    expect(reply["result"]["content"][0]["text"], "changed")
    with trio.move_on_after(HANGS):
        while listener.heard == before:
            if listener.is_modern and listener.is_connected is not connected:
                # A listen cannot be resumed. Its client reads the resource again.
                return
            await trio.sleep(0.02)
        return
    kind = "unheard" if listener.is_connected is connected else "gone"
    raise Problem(f"{kind}: a change at {member.name} was not announced")


# Tasks


async def done_once(visitor: Visitor, number: int) -> None:
    """Follow a task that must not run twice."""
    task = await run_task(visitor, number, "once")
    name = f"once-{visitor.name}-{number}"
    times = visitor.pair.begun().count(name)
    if times > 1:
        raise Problem(f"wrong: a task without retry has run {times} times")
    if task["status"] == "failed" and "was lost" in task["error"]["message"]:
        raise Problem(f"lost: a task that has begun {times} times")
    expect(task["result"]["content"][0]["text"], f"done {name}")


async def done_again(visitor: Visitor, number: int) -> None:
    """Follow a task that asks, and that may run twice. It never fails."""
    task = await run_task(visitor, number, "again")
    expect(task["status"], "completed")
    name = f"again-{visitor.name}-{number}"
    expect(task["result"]["content"][0]["text"], f"done {name}: accept")


async def run_task(visitor: Visitor, number: int, tool: str) -> Any:
    """Create a task at one process, and poll it at both until it is over."""
    first, _ = visitor.members(number)
    arguments = {"name": f"{tool}-{visitor.name}-{number}"}
    call = {"name": tool, "arguments": arguments}
    created = await visitor.modern(first, "tools/call", call)
    params = {"taskId": created["result"]["taskId"]}
    asked: set[str] = set()
    with trio.move_on_after(HANGS):
        for place in count(number + 1):
            task = await poll(visitor, place, params)
            if task["status"] in OVER:
                again = await poll(visitor, place + 1, params)
                expect(again, task)
                return task
            for key in task.get("inputRequests", {}).keys() - asked:
                responses = {"inputResponses": {key: ACCEPTED}}
                if await answered(visitor, place + 1, {**params, **responses}):
                    asked.add(key)
            await trio.sleep(0.1)
    raise Problem(f"hangs: a task is not over in {HANGS:.0f} s: {task}"[:200])


async def poll(visitor: Visitor, place: int, params: Any) -> Any:
    """Return a task, as soon as one of the processes serves it."""
    for number in count(place):
        member = visitor.members(number)[0]
        try:
            reply = await visitor.modern(member, "tasks/get", params)
        except Problem as problem:
            visitor.report(problem)
            await trio.sleep(AGAIN)
            continue
        if "error" in reply:
            raise Problem(f"wrong: an acknowledged task: {reply['error']['message']}")
        result = reply["result"]
        return {key: value for key, value in result.items() if key != "_meta"}
    return None


async def answered(visitor: Visitor, place: int, params: Any) -> bool:
    """Answer a question of a task. Returns whether that was acknowledged."""
    try:
        await visitor.modern(visitor.members(place)[0], "tasks/update", params)
    except Problem as problem:
        visitor.report(problem)
        return False
    return True


# Rates


class RateCheck(Struct):
    """How many calls were answered since the beginning of a second."""

    since: float
    answered: int = 0


async def limited(visitor: Limited, number: int) -> None:
    """Call a tool with a rate at both processes."""
    for member in visitor.members(number):
        reply = await visitor.modern(
            member, "tools/call", {"name": "limited", "arguments": {}}
        )
        if not reply["result"].get("isError"):
            visitor.check.answered += 1
    now = trio.current_time()
    if visitor.pair.counts_alone:
        visitor.check = RateCheck(now)
        return
    allowed = RATE + RATE * (now - visitor.check.since) + 1
    if visitor.check.answered > allowed:
        found = visitor.check.answered
        raise Problem(f"wrong: {found} calls were answered, not {allowed:.0f}")


class Limited(Visitor):
    """A client that counts how many calls are allowed."""

    check: RateCheck


# All clients


def expect(found: Any, expected: Any) -> None:
    """Raise a Problem unless two values are equal."""
    if found != expected:
        raise Problem(f"wrong: expected {expected!r}, got {found!r}"[:300])


Job = Callable[[Any, int], Awaitable[None]]


def lanes_of(pair: Pair, load: Load) -> list[Lane]:
    """Return a client for each use."""

    def lane(name: str, job: Job, offset: int = 0) -> Lane:
        visitor = Visitor(name, pair, partial(load.judge, name), offset=offset)
        return Lane(name, partial(_visiting, visitor), [job])

    def hearing(name: str, *, is_modern: bool) -> Lane:
        visitor = Hearing(name, pair, partial(load.judge, name))
        opening = partial(_hearing, visitor, is_modern=is_modern)
        return Lane(name, opening, [heard])

    rates = Limited("rates", pair, partial(load.judge, "rates"))
    several = range(SEVERAL)
    return [
        *[lane(f"streams {number}", resumed, number) for number in several],
        *[lane(f"tasks {number}", done_once, number) for number in several],
        lane("stateless", stateless),
        lane("sessions", in_session),
        lane("questions", asked),
        lane("cancellations", cancelled),
        hearing("announcements", is_modern=False),
        hearing("listen", is_modern=True),
        lane("tasks with retry", done_again),
        Lane("rates", partial(_limited, rates), [limited]),
    ]


@asynccontextmanager
async def _visiting(visitor: Visitor) -> AsyncIterator[Visitor]:
    await visitor.open(0)
    yield visitor


@asynccontextmanager
async def _limited(visitor: Limited) -> AsyncIterator[Limited]:
    visitor.check = RateCheck(trio.current_time())
    yield visitor


@asynccontextmanager
async def _hearing(visitor: Hearing, *, is_modern: bool) -> AsyncIterator[Hearing]:
    await visitor.open(0)
    if not is_modern:
        body = message("resources/subscribe", {"uri": visitor.resource})
        await visitor.until_sent(0, "POST", visitor.session, body)
    visitor.listener = Listener(visitor, is_modern=is_modern)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(visitor.listener.run)
        yield visitor
        nursery.cancel_scope.cancel()
