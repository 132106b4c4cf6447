"""A trace replayed: the client's lines are sent again, and what comes is held against the server's."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import trio
from msgspec import UNSET, Raw, structs

from ..client.client import OPENS, ungrouped
from ..protocol.params import VENDOR
from .compare import ABSENT, Difference, Place, at, differences, merged, parts, shown
from .format import Line, Trace, Transport, encode
from .targets import Link, Target, open_link

LINE_BY_LINE, BYTE_BY_BYTE, ALL_AT_ONCE = WAYS = (
    "line by line",
    "byte by byte",
    "all at once",
)
# Seconds in which a server may show behind the last line that it has more to say.
A_MOMENT = 0.05
# Seconds in which it may end, once its input has.
TO_END = 2.0
TIMEOUT = 10.0

HEAD, EVENT, NO_JSON, END = (
    "the head of a response",
    "an event without a message",
    "what is no JSON",
    "the end",
)
ANSWER = "the answer to "
COMPARED = ("message", "raw", "http", "event")
SUBSCRIPTION = f"{VENDOR}subscriptionId"
NOTHING = shown(ABSENT)
_FIRST = 2  # the number of the line behind the header


class Finding(NamedTuple):
    """What is not as it was recorded, and in or behind which line of the file; of a difference, in what of the line."""

    line: int
    what: str
    difference: Difference | None = None


def holds_on(trace: Trace) -> list[Transport]:
    """The transports that a trace can be replayed on."""
    if trace.header.over:
        return trace.header.over
    if any(
        line.raw is not UNSET or (line.http and not line.message)
        for line in trace.lines
    ):
        return [trace.header.transport]
    return (
        ["stdio", "http", "sse", "ws"]
        if OPENS.get(trace.header.revision, True)
        else ["stdio", "http", "ws"]
    )


def ways(trace: Trace, over: Transport) -> tuple[str, ...]:
    """How a trace can be sent over a transport."""
    if over != "stdio":
        return (LINE_BY_LINE,)
    # Whether its client answers questions, or repeats what the server has chosen.
    asked = [
        part
        for line in trace.lines
        if line.sender == "client" and line.message
        for part in line.parts
    ]
    depends = any(at(part, place) is not ABSENT for part, place in _repeated(asked))
    return WAYS[:2] if trace.header.paced or depends else WAYS


def _repeated(asked: list[Any]) -> Iterator[tuple[Any, Place]]:
    """Where a client's messages can have what the server has chosen."""
    for part in asked:
        yield part, ("params", "cursor")
        yield part, ("params", "requestState")
        if at(part, ["method"]) is ABSENT:
            yield part, ("id",)


def _chosen(message: Any, place: Place) -> Iterator[Place]:
    """Where a server's message, which is at a place, can have what the server has chosen."""
    for index, part in enumerate(message) if isinstance(message, list) else ():
        yield from _chosen(part, (*place, index))
    yield (*place, "id")
    if at(message, ["method"]) == "notifications/cancelled":
        yield (*place, "params", "requestId")
    yield (*place, "result", "nextCursor")
    yield (*place, "result", "requestState")


def _alone(line: Line, over: Transport) -> Line | None:
    """What of a line holds on any transport."""
    ends = line.ends and line.stream is UNSET and over == "stdio"
    if line.data is None and not ends:
        return None
    return structs.replace(line, stream=UNSET, http=UNSET, event=UNSET, ends=ends)


@dataclass(eq=False)
class Replay:
    """One replay of one trace, on one transport."""

    trace: Trace
    over: Transport
    way: str = LINE_BY_LINE
    timeout: float = TIMEOUT
    patient: bool = False  # goes on when something does not come
    findings: list[Finding] = field(default_factory=list)
    messages: int = 0
    stopped: bool = False  # before its end

    def __post_init__(self) -> None:
        trace, over = self.trace, self.over
        self._new: dict[str, Any] = {}  # what the server has chosen: recorded -> now
        self._old: dict[str, Any] = {}  # and back
        self._asked: set[str] = set()  # the ids of the client's requests,
        self._owed: set[str] = (
            set()
        )  # of those that neither have an answer nor were cancelled,
        self._tokens: dict[str, str] = {}  # and by their progress tokens
        self._latest: dict[
            Any, int
        ] = {}  # request, or stream -> the last line that has come of what belongs to it
        self._passed = 1
        self._due = 0  # the client's line that is sent next: what is recorded behind it cannot have been asked for yet
        self._came: dict[int, list[Line]] = defaultdict(
            list
        )  # for a line, or behind it
        as_recorded = over == trace.header.transport and over in ("http", "ws")
        lines = {
            n: line if as_recorded else _alone(line, over)
            for n, line in enumerate(trace.lines, _FIRST)
        }
        self._lines = {
            number: line for number, line in lines.items() if line is not None
        }
        self._posts = {
            line.stream
            for line in self._lines.values()
            if line.http and line.http.method == "POST"
        }
        # Who ends a stream first is chance where its client has ended it, and what comes behind that, too.
        ends = {
            line.stream: number
            for number, line in self._lines.items()
            if line.sender == "client" and line.ends
        }
        self._may_end = set(ends) ^ {
            UNSET
        }  # the whole conversation, where the trace does not say who ended it
        self._open: dict[
            int, tuple[Any, str]
        ] = {}  # the server's lines that have to come still, and what they are
        self._expected: dict[tuple[Any, str], deque[int]] = defaultdict(deque)
        for number, line in self._lines.items():
            if line.sender == "server":
                key = self._key(line)
                self._expected[key].append(number)
                if line.stream is UNSET or number < ends.get(line.stream, math.inf):
                    self._open[number] = key

    async def against(self, target: Target) -> None:
        """Replay it against a target. Raises UsageError, OSError, and what its server raises."""
        with ungrouped():
            async with open_link(
                target, self.over, self.trace, byte_by_byte=self.way == BYTE_BY_BYTE
            ) as link:
                await self.through(link)

    async def through(self, link: Link) -> None:
        """Send and compare everything."""
        asked = {
            number: line
            for number, line in self._lines.items()
            if line.sender == "client"
        }
        if self.way == ALL_AT_ONCE:
            everything = [line.data for line in asked.values() if line.data is not None]
            for line in asked.values():
                self._note(line)
            self._due = len(self.trace.lines) + _FIRST
            if everything:
                await self._send(
                    Line(
                        t=0,
                        sender="client",
                        raw=b"\n".join(everything).decode("latin-1"),
                    ),
                    link,
                )
            asked = {
                n: structs.replace(line, message=UNSET, raw=UNSET)
                for n, line in asked.items()
                if line.ends
            }
        for number, line in asked.items():
            self._due = max(self._due, number)
            await self._until(number, link)
            if self.stopped:
                return
            self._note(line)
            self._passed = number
            await self._send(self._renewed(line), link)
        self._due = len(self.trace.lines) + _FIRST
        await self._until(self._due, link)
        if not self.stopped:
            await self._look_for_more(link)

    def _note(self, line: Line) -> None:
        """Remember what a client's line asks for."""
        self.messages += line.data is not None
        if line.ends:
            self._may_end.add(line.stream)
        for part in line.parts:
            method, id = at(part, ["method"]), shown(at(part, ["id"]))
            if method == "notifications/cancelled":
                self._owed.discard(shown(at(part, ["params", "requestId"])))
            elif method is not ABSENT and id != NOTHING:
                self._asked.add(id)
                self._owed.add(id)
                self._tokens[shown(at(part, ["params", "_meta", "progressToken"]))] = id

    def _renewed(self, line: Line) -> Line:
        """A client's line with what the server has chosen this time."""
        if line.http:
            headers = {
                name: self._new.get(shown(value), value)
                for name, value in line.http.headers.items()
            }
            line = structs.replace(
                line, http=structs.replace(line.http, headers=headers)
            )
        message = line.content
        for part, (*path, name) in _repeated(
            message if isinstance(message, list) else [message]
        ):
            if (
                new := self._new.get(shown(at(part, [*path, name])), ABSENT)
            ) is not ABSENT:
                at(part, path)[name] = new
                line = structs.replace(line, message=Raw(msgspec.json.encode(message)))
        return line

    async def _until(self, number: int, link: Link) -> None:
        """Take what comes until each line before this one has."""
        with trio.move_on_after(self.timeout) as scope:
            while self._open and next(iter(self._open)) < number and not self.stopped:
                awaited = len(self._open)
                self._take(await link.come.receive(), link)
                if len(self._open) < awaited:  # else it says something, and not that
                    scope.deadline = trio.current_time() + self.timeout
        if scope.cancelled_caught:
            self._give_up(number, f"did not come within {self.timeout:g} s")
        with suppress(trio.WouldBlock, trio.EndOfChannel):  # what has come too early
            while not self.stopped:
                self._take(link.come.receive_nowait(), link)

    async def _send(self, line: Line, link: Link) -> None:
        with trio.move_on_after(self.timeout) as scope:
            await link.send(line)
        if scope.cancelled_caught:
            self.findings.append(
                Finding(self._passed, f"could not be sent within {self.timeout:g} s")
            )
            self.stopped = True

    def _give_up(self, before: int, why: str, stream: Any = None) -> None:
        for number, (where, what) in [*self._open.items()]:
            if number < before and stream in (None, where):
                self.findings.append(Finding(number, f"{what} {why}"))
                del self._open[number]
                self.stopped = not self.patient or stream is UNSET

    async def _look_for_more(self, link: Link) -> None:
        """Whether more comes; when the input is ended for this alone, a server may answer what it still owes."""
        if self._owed or self.over != "stdio":
            with trio.move_on_after(A_MOMENT):
                async for came in link.come:
                    self._take(came, link)
        self._may_end.add(UNSET)
        with trio.move_on_after(TO_END if self.over == "stdio" else 0):
            await link.end_input()
            async for came in link.come:
                if shown(at(came.content, ["id"])) not in self._owed:
                    self._take(came, link)

    def _key(self, line: Line) -> tuple[Any, str]:
        """What a server's line is matched by: the stream, and in words what it is."""
        if line.http:
            return line.stream, HEAD
        if line.message:
            return line.stream, self._words(line.content)
        return (
            line.stream,
            NO_JSON if line.raw is not UNSET else EVENT if line.event else END,
        )

    def _words(self, message: Any) -> str:
        if isinstance(message, list):
            return f"a batch: {', '.join(sorted(map(self._words, message)))}"
        method, id = at(message, ["method"]), at(message, ["id"])
        if method is ABSENT:
            id = id if shown(id) in self._asked else self._old.get(shown(id), id)
            return (
                "an error without an id"
                if id in (None, ABSENT)
                else f"{ANSWER}{shown(id)}"
            )
        if id is not ABSENT:
            return f"the question {method}"
        places = ["progressToken"], ["_meta", SUBSCRIPTION], ["uri"], ["requestId"]
        about = [shown(at(message, ["params", *place])) for place in places]
        return " about ".join(
            [
                str(method),
                *(
                    shown(self._old.get(one, Raw(one)))
                    for one in about
                    if one != NOTHING
                ),
            ]
        )

    def _take(self, came: Line, link: Link) -> None:
        """Find the line that this stands for."""
        self.messages += came.data is not None
        stream, what = key = self._key(came)
        expected = self._expected.get(key) or deque()
        too_early = bool(expected) and expected[0] >= self._due
        if what == END:
            self._end(
                expected,
                stream,
                link,
                surprising=too_early if stream is UNSET else not expected,
            )
        elif expected and not (too_early and what.startswith(ANSWER)):
            self._match(expected.popleft(), what, came)
        else:
            why = (
                "came again"
                if key in self._expected
                else "came, which the trace does not have"
            )
            why = "came before it was asked for, or again" if expected else why
            text = (came.data or b"").decode(errors="replace")
            self.findings.append(Finding(self._passed, f"{what} {why}: {text[:200]}"))
            self._came[self._passed].append(came)

    def _end(
        self, expected: deque[int], stream: Any, link: Link, surprising: bool
    ) -> None:
        """A stream has ended, or all of it."""
        known, passed = len(self.findings), self._passed
        if expected:
            self._match(
                expected.popleft(),
                END,
                Line(t=0, sender="server", stream=stream, ends=True),
            )
        self._give_up(len(self.trace.lines) + _FIRST, f"never came: {link.end}", stream)
        if surprising and stream not in self._may_end and len(self.findings) == known:
            self.findings.append(Finding(passed, f"{link.end}, before the client did"))

    def _match(self, number: int, what: str, came: Line) -> None:
        self._open.pop(number, None)
        stream = self._lines[number].stream
        for request in {
            self._request(self._lines[number].content),
            stream if stream in self._posts else "",
        } - {""}:
            if (latest := self._latest.get(request, 0)) > number:
                self.findings.append(
                    Finding(
                        number, f"{what} came behind line {latest}, of the same request"
                    )
                )
            self._latest[request] = max(latest, number)
        self._passed = max(self._passed, number)
        self._compare(number, came)

    def _request(self, message: Any) -> str:
        """The id of the request that a server's message belongs to."""
        if at(message, ["method"]) is ABSENT:
            id = shown(at(message, ["id"]))
            self._owed.discard(id)
            return id if id in self._asked else ""
        token, subscription = (
            at(message, ["params", "progressToken"]),
            at(message, ["params", "_meta", SUBSCRIPTION]),
        )
        return (
            self._tokens.get(shown(token), "")
            if token is not ABSENT
            else shown(subscription).removeprefix(NOTHING)
        )

    def _compare(self, number: int, came: Line) -> None:
        recorded = self.trace.lines[number - _FIRST]
        old, new = _parts(self._lines[number]), _parts(came)
        if isinstance(old.get("message"), list) and isinstance(
            new.get("message"), list
        ):  # the order says nothing
            order = [self._words(part) for part in old["message"]]
            new["message"].sort(key=lambda part: order.index(self._words(part)))
        ignored: list[Place] = [
            ("message", *parts(pointer)) for pointer in self.trace.header.ignore
        ]
        chosen = _chosen(old.get("message"), ("message",))
        for place in [("http", "headers", "mcp-session-id"), ("event", "id"), *chosen]:
            was, is_now = at(old, place), at(new, place)
            if (
                place[-1] == "id"
                and at(old, (*place[:-1], "method")) is ABSENT
                and shown(was) in self._asked
            ):
                continue  # an answer's, which the client has chosen
            if was is not ABSENT and isinstance(is_now, str | int):
                ignored.append(place)
                if was != is_now:
                    self._new[shown(was)], self._old[shown(is_now)] = is_now, was
        found = list(differences(old, new, ignored))
        self.findings += [
            Finding(number, str(one.place[0]), one._replace(place=one.place[1:]))
            for one in found
        ]
        if found:
            kept = (
                _parts(recorded, all=True)
                | dict.fromkeys(old, ABSENT)
                | merged(old, new, ignored)
            )
            whole = msgspec.json.encode(
                {name: value for name, value in kept.items() if value is not ABSENT}
            )
            recorded = msgspec.json.decode(whole, type=Line)
        self._came[number].insert(0, recorded)

    def updated(self) -> Trace:
        """The trace as it would be with what came."""
        lines = [*self._came[1]]
        for number, line in enumerate(self.trace.lines, _FIRST):
            if number not in self._lines or line.sender == "client":
                lines.append(line)
            lines += self._came[number]
        return structs.replace(self.trace, lines=lines)


def _parts(line: Line, *, all: bool = False) -> dict[str, Any]:
    """A line as JSON; what is compared of it, or all."""
    whole: dict[str, Any] = msgspec.json.decode(encode(line))
    return {name: value for name, value in whole.items() if all or name in COMPARED}
