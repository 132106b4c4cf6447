"""Replay a trace: send the client's lines again, and compare the server's lines."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import trio
from msgspec import UNSET, UnsetType, structs

from ..client.client import OPENS, ungrouped
from ..protocol.types import Json
from .compare import (
    ABSENT,
    Check,
    Difference,
    Location,
    Rules,
    differences,
    leads_to,
    merged,
    value_at,
)
from .diagram import printable
from .format import FIRST_LINE, JsonValue, Line, Trace, Transport, encode
from .identifiers import ClientRequests, ServerIds, repeated_by_client
from .patterns import checks_of, with_references
from .plan import (
    ANSWER,
    END,
    LineKey,
    describe,
    is_optional,
    line_key,
    message_rule,
    plan_replay,
)
from .targets import NO_CREDENTIALS, Credentials, Link, Target, open_link

# The ways to send the client's lines.
LINE_BY_LINE = "line by line"
BYTE_BY_BYTE = "byte by byte"
ALL_AT_ONCE = "all at once"

# Seconds to wait after the last line for messages that are not in the trace.
SETTLE_TIME = 0.05
# Seconds to wait for a server to exit after its input has ended.
END_TIMEOUT = 2.0
# Seconds to wait for the next line of the server.
TIMEOUT = 10.0

# The keys of a line that are compared.
COMPARED = ("message", "raw", "http", "event", "cut")


class Finding(NamedTuple):
    """Something that differs from the trace.

    `line` is the number of the line that differs, or of the line after which something
    happened. If a value differs, `what` is the key of the line that contains it, and
    `difference` is its location in there. Otherwise `what` is a description.
    """

    line: int
    what: str
    difference: Difference | None = None

    def as_change(self) -> str:
        """Describe how the trace changes if the finding is accepted."""
        difference = self.difference
        if difference is None:
            return printable(f"line {self.line}: {self.what}")
        path = difference.path
        if self.what != "message":
            path = self.what + path.removeprefix("$")
        old, new = difference.values()
        if difference.new is ABSENT:
            change = f"is removed; it was {old}"
        elif difference.old is ABSENT:
            change = f"is added: {new}"
        else:
            change = f"changes from {old} to {new}"
        return printable(f"line {self.line}: {path} {change}")


def transports_of(trace: Trace) -> list[Transport]:
    """Return the transports that a trace can be replayed over."""
    if trace.header.over:
        return trace.header.over
    for line in trace.lines:
        if line.raw is not UNSET or (line.http and not line.message):
            return [trace.header.transport]
    opens_session = OPENS.get(trace.header.revision, True)
    if opens_session:
        return ["stdio", "http", "sse", "ws"]
    return ["stdio", "http", "ws"]


def ways(trace: Trace, over: Transport) -> tuple[str, ...]:
    """Return the ways in which a trace can be sent over a transport."""
    if over != "stdio":
        return (LINE_BY_LINE,)
    if trace.header.paced or _depends_on_server(trace):
        return (LINE_BY_LINE, BYTE_BY_BYTE)
    return (LINE_BY_LINE, BYTE_BY_BYTE, ALL_AT_ONCE)


def _depends_on_server(trace: Trace) -> bool:
    """Return whether the client answers the server or repeats its identifiers."""
    for line in trace.lines:
        if line.sender == "server" or not line.message:
            continue
        if line.match:
            return True
        for message in line.parts:
            for location in repeated_by_client(message):
                if value_at(message, location) is not ABSENT:
                    return True
    return False


class _Unexpected(NamedTuple):
    """A received line that is not in the trace."""

    finding: Finding
    line: Line


class _Comparison(NamedTuple):
    """The received counterpart of a line of the trace, and how to compare them."""

    recorded: Json
    received: Json
    ignored: Rules
    checks: Sequence[Check]

    def differences(self) -> Iterator[Difference]:
        """Yield the differences."""
        return differences(self.recorded, self.received, self.ignored, self.checks)

    def applied_to(
        self, line: Line, accepted: Sequence[Location], rejected: Sequence[Location]
    ) -> Line:
        """Return the line of the trace with the accepted differences.

        A pattern is removed if the new value does not match it.
        """
        fields = merged(
            self.recorded, self.received, [*self.ignored, *rejected], self.checks
        )
        match = {}
        for pointer, pattern in line.match.items():
            rule = message_rule(pointer)
            if not any(leads_to(rule, location) for location in accepted):
                match[pointer] = pattern
        return structs.replace(_with_fields(line, self.recorded, fields), match=match)


def _accept_all(finding: Finding) -> bool:
    return True


class Replay:
    """One replay of one trace over one transport.

    A replay stops early if the server does not send a line of the trace. A `patient`
    one reports the line as missing and continues.
    """

    def __init__(
        self,
        trace: Trace,
        over: Transport,
        way: str = LINE_BY_LINE,
        timeout: float = TIMEOUT,
        patient: bool = False,
        settle: float = 0.0,
    ) -> None:
        self.trace = trace
        self.over = over
        self.way = way
        self.timeout = timeout
        self.patient = patient
        self.settle = max(settle, trace.header.settle)
        self.findings: list[Finding] = []
        # Notes on what the replay could not repeat or compare.
        self.remarks: list[str] = []
        # The number of messages sent and received.
        self.messages = 0
        # How long it took.
        self.seconds = 0.0
        # Whether it ended before the end of the trace.
        self.stopped = False

        plan = plan_replay(trace, over)
        self._plan = plan
        self._server_ids = ServerIds()
        self._requests = ClientRequests()
        # By key: the server's lines that were not matched with a received line yet.
        self._unmatched = plan.numbers_by_key()
        # Those of them that have to arrive, in the order of the trace.
        self._awaited = {number: plan.server_keys[number] for number in plan.awaited}
        self._may_end = set(plan.may_end)
        # The last line that was sent or received. Unexpected lines are reported after
        # it.
        self._position = 1
        # The client's line that is sent next. The request of an answer that is after it
        # in the trace was not sent yet.
        self._next_sent = 0
        # By request, or by stream of a POST: the last line received that belongs to it.
        self._latest: dict[str | int | UnsetType, int] = {}
        # The lines of the trace that patterns refer to, with the received messages.
        self._referenced = _referenced_lines(trace)
        self._messages: dict[int, JsonValue] = {}
        # For `updated`, by number: the comparison of a line of the trace, and the
        # unexpected lines that arrived after it.
        self._comparisons: dict[int, _Comparison] = {}
        self._unexpected: dict[int, list[_Unexpected]] = defaultdict(list)

    async def against(
        self, target: Target, credentials: Credentials = NO_CREDENTIALS
    ) -> None:
        """Replay the trace against a target.

        `credentials` is for a URL. Raises UsageError, OSError, and any exception of a
        server in this process.
        """
        byte_by_byte = self.way == BYTE_BY_BYTE
        started = trio.current_time()
        with ungrouped():
            async with open_link(
                target, self.over, self.trace, credentials, byte_by_byte=byte_by_byte
            ) as link:
                await self.through(link)
        self.seconds = trio.current_time() - started
        self.remarks += link.remarks

    async def through(self, link: Link) -> None:
        """Replay the trace over an open link."""
        lines = self._plan.client_lines
        if self.way == ALL_AT_ONCE:
            await self._send_all_at_once(link)
            lines = _without_data(lines)
        for number, line in lines.items():
            self._next_sent = max(self._next_sent, number)
            await self._receive_until(number, link)
            if self.stopped:
                return
            self._note_sent(line)
            self._position = number
            line = self._server_ids.with_current_ids(line)
            await self._send(with_references(line, self._message_on), link)
        self._next_sent = self._plan.end
        await self._receive_until(self._plan.end, link)
        if not self.stopped:
            await self._receive_remaining(link)

    def updated(self, accepts: Callable[[Finding], bool] = _accept_all) -> Trace:
        """Return the trace as it would be if this replay had been recorded.

        Findings for which `accepts` returns False do not change the trace.
        """
        lines: list[Line] = []
        # The new number of each line that is kept.
        numbers: dict[int, int] = {}
        self._add_unexpected(lines, 1, accepts)
        for number, line in enumerate(self.trace.lines, FIRST_LINE):
            kept = self._updated_line(number, line, accepts)
            if kept is not None:
                numbers[number] = FIRST_LINE + len(lines)
                lines.append(kept)
            self._add_unexpected(lines, number, accepts)
        lines = [_renumbered(line, numbers) for line in lines]
        return structs.replace(self.trace, lines=lines)

    def _add_unexpected(
        self, lines: list[Line], number: int, accepts: Callable[[Finding], bool]
    ) -> None:
        """Add the accepted unexpected lines that arrived after a line."""
        for finding, line in self._unexpected[number]:
            if accepts(finding):
                lines.append(line)

    def _updated_line(
        self, number: int, line: Line, accepts: Callable[[Finding], bool]
    ) -> Line | None:
        """Return the new version of a line of the trace, or None if it is removed."""
        if number not in self._plan.server_lines:
            return line
        findings = [finding for finding in self.findings if finding.line == number]
        comparison = self._comparisons.get(number)
        if comparison is None:
            if is_optional(line, self.trace.header.optional):
                return line
            is_kept = any(not accepts(finding) for finding in findings)
            return line if is_kept else None
        accepted: list[Location] = []
        rejected: list[Location] = []
        for finding in findings:
            if finding.difference is None:
                continue
            location = (finding.what, *finding.difference.location)
            if accepts(finding):
                accepted.append(location)
            else:
                rejected.append(location)
        if not accepted:
            return line
        return comparison.applied_to(line, accepted, rejected)

    # Sending

    async def _send_all_at_once(self, link: Link) -> None:
        """Send the data of all lines of the client in one write."""
        everything = []
        for line in self._plan.client_lines.values():
            self._note_sent(line)
            if line.data is not None:
                everything.append(line.data)
        self._next_sent = self._plan.end
        if everything:
            raw = b"\n".join(everything).decode("latin-1")
            await self._send(Line(t=0, sender="client", raw=raw), link)

    def _note_sent(self, line: Line) -> None:
        """Note the requests in a client's line, and the stream that it ends."""
        if line.data is not None:
            self.messages += 1
        if line.ends:
            self._may_end.add(line.stream)
        for message in line.parts:
            self._requests.note_sent(message)

    async def _send(self, line: Line, link: Link) -> None:
        with trio.move_on_after(self.timeout) as scope:
            await link.send(line)
        if scope.cancelled_caught:
            what = f"could not be sent within {self.timeout:g} s"
            self.findings.append(Finding(self._position, what))
            self.stopped = True

    # Receiving

    async def _receive_until(self, number: int, link: Link) -> None:
        """Receive until all awaited lines before this number have arrived."""
        with trio.move_on_after(self.timeout) as scope:
            while self._awaits_line_before(number) and not self.stopped:
                awaited = len(self._awaited)
                self._receive(await link.received.receive(), link)
                if len(self._awaited) < awaited:
                    # Only an awaited line extends the deadline.
                    scope.deadline = trio.current_time() + self.timeout
        if scope.cancelled_caught:
            self._report_missing(number, f"did not arrive within {self.timeout:g} s")
        # Receive what has arrived early, before the next line is sent.
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while not self.stopped:
                self._receive(link.received.receive_nowait(), link)

    def _awaits_line_before(self, number: int) -> bool:
        first = next(iter(self._awaited), None)
        return first is not None and first < number

    async def _receive_remaining(self, link: Link) -> None:
        """Receive messages after the last line of the trace."""
        settle = self.settle
        if self._requests.any_unanswered() or self.over != "stdio":
            settle = max(settle, SETTLE_TIME)
        if settle > 0:
            with trio.move_on_after(settle):
                async for line in link.received:
                    self._receive(line, link)
        self._may_end.add(UNSET)
        with trio.move_on_after(END_TIMEOUT if self.over == "stdio" else 0):
            await link.end_input()
            async for line in link.received:
                # The recording may have stopped before the server answered. The answer
                # may arrive now, at the end of the input, but is not in the trace.
                id = value_at(line.content, ["id"])
                if not self._requests.is_unanswered(id):
                    self._receive(line, link)

    def _receive(self, line: Line, link: Link) -> None:
        """Match a received line with one of the trace, or report it as unexpected."""
        if line.data is not None:
            self.messages += 1
        key = line_key(line, self._server_ids, self._requests)
        if key.what == END:
            self._receive_end(key, line, link)
            return
        numbers = self._unmatched.get(key)
        if numbers is None:
            self._report_unexpected(key, line, "arrived, but is not in the trace")
        elif not numbers:
            self._report_unexpected(key, line, "arrived again")
        elif key.what.startswith(ANSWER) and self._is_early(numbers):
            why = "arrived before its request, or again"
            self._report_unexpected(key, line, why)
        else:
            self._match(numbers.popleft(), key, line)

    def _receive_end(self, key: LineKey, line: Line, link: Link) -> None:
        """Handle the end of a stream, or of the whole conversation."""
        findings = len(self.findings)
        position = self._position
        numbers = self._unmatched.get(key) or deque()
        is_too_soon = self._is_end_too_soon(key.stream, numbers)
        if numbers:
            self._match(numbers.popleft(), key, line)
        self._report_missing(
            self._plan.end, f"never arrived: {link.end_reason}", key.stream
        )
        # Other findings about the end are enough.
        if is_too_soon and len(self.findings) == findings:
            what = f"{link.end_reason} before the client did"
            self.findings.append(Finding(position, what))

    def _is_end_too_soon(self, stream: int | UnsetType, numbers: deque[int]) -> bool:
        """Return whether it is too soon for a stream to end.

        `numbers` are the lines of the trace that end the stream.
        """
        if stream in self._may_end:
            return False
        if stream is UNSET:
            return self._is_early(numbers)
        return not numbers

    def _is_early(self, numbers: deque[int]) -> bool:
        """Return whether the first of these lines is after the next one to send."""
        return len(numbers) > 0 and numbers[0] >= self._next_sent

    def _report_missing(
        self, before: int, why: str, stream: int | UnsetType | None = None
    ) -> None:
        """Report awaited lines as missing, on one stream or on all (None)."""
        for number, key in list(self._awaited.items()):
            is_on_stream = stream is None or key.stream == stream
            if number >= before or not is_on_stream:
                continue
            self.findings.append(Finding(number, f"{key.what} {why}"))
            del self._awaited[number]
            if not self.patient or stream is UNSET:
                self.stopped = True

    def _report_unexpected(self, key: LineKey, line: Line, why: str) -> None:
        if is_optional(line, self.trace.header.optional):
            return
        text = (line.data or b"").decode(errors="replace")
        finding = Finding(self._position, f"{key.what} {why}: {text[:200]}")
        self.findings.append(finding)
        self._unexpected[self._position].append(_Unexpected(finding, line))

    # Comparing

    def _match(self, number: int, key: LineKey, line: Line) -> None:
        """Compare a received line with a line of the trace that has the same key."""
        self._awaited.pop(number, None)
        self._check_order(number, key)
        self._requests.note_answer(self._plan.server_lines[number].content)
        self._position = max(self._position, number)
        self._compare(number, line)

    def _check_order(self, number: int, key: LineKey) -> None:
        """Check that a line arrives after the previous ones of the same request."""
        for request in self._requests_of(number):
            latest = self._latest.get(request, 0)
            if latest > number:
                what = f"{key.what} arrived after line {latest} of the same request"
                self.findings.append(Finding(number, what))
            self._latest[request] = max(latest, number)

    def _requests_of(self, number: int) -> list[str | int | UnsetType]:
        """Return the JSON-RPC and the HTTP request that a server's line belongs to."""
        line = self._plan.server_lines[number]
        requests: list[str | int | UnsetType] = []
        request = self._requests.request_of(line.content)
        if request is not None:
            requests.append(request)
        if line.stream in self._plan.post_streams:
            requests.append(line.stream)
        if not requests and self.way != ALL_AT_ONCE:
            open_request = self._plan.open_requests.get(number)
            if open_request is not None:
                requests.append(open_request)
        return requests

    def _compare(self, number: int, line: Line) -> None:
        """Compare the contents of a received line with those in the trace."""
        expected = self.trace.lines[number - FIRST_LINE]
        recorded = _compared_fields(self._plan.server_lines[number])
        received = _compared_fields(line)
        if not self.trace.header.cuts:
            received.pop("cut", None)
        self._order_batch(recorded.get("message"), received.get("message"))
        chosen = self._server_ids.learn(recorded, received, self._requests)
        ignored = [message_rule(pointer) for pointer in expected.ignore]
        message = received.get("message")
        if number in self._referenced:
            self._messages[number] = message
        checks = [
            check._replace(rule=("message", *check.rule))
            for check in checks_of(expected, message, self._message_on)
        ]
        comparison = _Comparison(
            recorded, received, [*self._plan.ignored, *ignored, *chosen], checks
        )
        self._comparisons[number] = comparison
        self._report_differences(number, comparison.differences())

    def _message_on(self, number: int) -> JsonValue:
        """Return the message that was received for a line of the trace, or ABSENT."""
        return self._messages.get(number, ABSENT)

    def _report_differences(self, number: int, found: Iterable[Difference]) -> None:
        for difference in found:
            field, *rest = difference.location
            below = difference._replace(location=tuple(rest))
            self.findings.append(Finding(number, str(field), below))

    def _order_batch(self, recorded: JsonValue, received: JsonValue) -> None:
        """Sort the messages of a received batch into the order of the recorded one.

        The order of messages in a batch has no meaning.
        """
        if not isinstance(recorded, list) or not isinstance(received, list):
            return
        order = [describe(part, ServerIds(), ClientRequests()) for part in recorded]

        def position(message: JsonValue) -> int:
            return order.index(describe(message, self._server_ids, self._requests))

        received.sort(key=position)


def _without_data(lines: dict[int, Line]) -> dict[int, Line]:
    """Return the lines that end a stream, without their data, which was sent before."""
    ends = {}
    for number, line in lines.items():
        if line.ends:
            ends[number] = structs.replace(line, message=UNSET, raw=UNSET)
    return ends


def _compared_fields(line: Line) -> Json:
    """Return a line's fields that are compared, as JSON."""
    fields: Json = msgspec.json.decode(encode(line))
    return {name: value for name, value in fields.items() if name in COMPARED}


def _referenced_lines(trace: Trace) -> set[int]:
    """Return the numbers of the lines that patterns refer to."""
    numbers = set()
    for line in trace.lines:
        for pattern in line.match.values():
            if isinstance(pattern.line, int):
                numbers.add(pattern.line)
    return numbers


def _renumbered(line: Line, numbers: dict[int, int]) -> Line:
    """Return a line whose patterns refer to lines by their new numbers.

    Patterns that refer to removed lines are removed too.
    """
    if not line.match:
        return line
    match = {}
    for pointer, pattern in line.match.items():
        if isinstance(pattern.line, int):
            if pattern.line not in numbers:
                continue
            pattern = structs.replace(pattern, line=numbers[pattern.line])
        match[pointer] = pattern
    return structs.replace(line, match=match)


def _with_fields(line: Line, old: Json, new: Json) -> Line:
    """Return a line with new fields in place of the old ones."""
    fields: Json = msgspec.json.decode(encode(line))
    for name in old:
        del fields[name]
    fields.update(new)
    return msgspec.json.decode(msgspec.json.encode(fields), type=Line)
