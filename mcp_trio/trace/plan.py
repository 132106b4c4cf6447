"""Plan a replay: determine the lines to send and the lines to expect.

Lines are identified by their number in the trace's file: the header is line 1.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import UNSET, UnsetType, structs

from .compare import ABSENT, Location, json_text, parse_pointer, value_at
from .format import FIRST_LINE, Http, JsonValue, Line, Trace, Transport
from .identifiers import SUBSCRIPTION_ID, ClientRequests, ServerIds

# The kinds of server lines that are not messages.
HEAD = "the head of a response"
EVENT = "an event without a message"
NO_JSON = "data that is not JSON"
END = "the end"
# An answer is described by this and its id.
ANSWER = "the answer to "

# The locations in the params of a notification that may name its subject.
_SUBJECTS = (
    ("progressToken",),
    ("_meta", SUBSCRIPTION_ID),
    ("uri",),
    ("requestId",),
)


class LineKey(NamedTuple):
    """The key that a server's line is matched by: its stream and a description.

    A received line is matched with the first line of the trace that has the same key
    and has not been matched before.
    """

    stream: int | UnsetType
    what: str


@dataclass(frozen=True)
class ReplayPlan:
    """The lines to send and the lines to expect.

    A client's line is sent when all awaited lines with lower numbers have arrived.
    """

    # The lines to send, by number.
    client_lines: dict[int, Line]
    # The lines that the server may send, and their keys.
    server_lines: dict[int, Line]
    server_keys: dict[int, LineKey]
    # The numbers of the lines that it has to send.
    awaited: list[int]
    # The streams of POST requests. All lines on one of them belong to its request.
    post_streams: set[int | UnsetType]
    # The streams that the server may end before the client does.
    may_end: set[int | UnsetType]
    # The locations, within a line, to ignore according to the header.
    ignored: list[Location]
    # By number: the client's only open request when the server sent a log message.
    open_requests: dict[int, str]
    # One more than the number of the last line.
    end: int

    def numbers_by_key(self) -> dict[LineKey, deque[int]]:
        """Return the numbers of the server's lines that each key matches, in order."""
        numbers: dict[LineKey, deque[int]] = defaultdict(deque)
        for number, key in self.server_keys.items():
            numbers[key].append(number)
        return dict(numbers)


def plan_replay(trace: Trace, over: Transport) -> ReplayPlan:
    """Plan a replay over a transport."""
    client_lines: dict[int, Line] = {}
    server_lines: dict[int, Line] = {}
    for number, line in _lines_over(trace, over).items():
        if line.sender == "client":
            client_lines[number] = line
        else:
            server_lines[number] = line
    client_ends = _client_ends(client_lines)
    server_keys = {}
    for number, line in server_lines.items():
        server_keys[number] = line_key(line, ServerIds(), ClientRequests())
    return ReplayPlan(
        client_lines=client_lines,
        server_lines=server_lines,
        server_keys=server_keys,
        awaited=_awaited(server_lines, client_ends, trace.header.optional),
        post_streams=_post_streams(client_lines),
        may_end=_may_end(client_ends),
        ignored=[message_rule(pointer) for pointer in trace.header.ignore],
        open_requests=_open_requests(trace),
        end=FIRST_LINE + len(trace.lines),
    )


def message_rule(pointer: str) -> Location:
    """Return the rule, within a line, for a pointer into its message."""
    return ("message", *parse_pointer(pointer))


def _open_requests(trace: Trace) -> dict[int, str]:
    """Return the only open request, as its id in JSON, at each log message.

    A log message does not say which request it belongs to. If there is only one, the
    message belongs to it.
    """
    found = {}
    requests = ClientRequests()
    for number, line in enumerate(trace.lines, FIRST_LINE):
        for message in line.parts:
            if line.sender == "client":
                requests.note_sent(message)
                continue
            requests.note_answer(message)
            only = requests.only_unanswered()
            method = value_at(message, ["method"])
            if method == "notifications/message" and only is not None:
                found[number] = only
    return found


def has_requests(trace: Trace) -> bool:
    """Return whether a trace has HTTP requests that can be repeated."""
    if trace.header.transport == "sse":
        return any(line.http for line in trace.lines if line.sender == "client")
    return trace.header.transport == "http"


def _lines_over(trace: Trace, over: Transport) -> dict[int, Line]:
    """Return the lines of a trace for a transport, by number.

    A trace of HTTP or WebSocket is replayed unchanged over its own transport. Over
    other transports, only the messages are replayed.
    """
    numbered = dict(enumerate(trace.lines, FIRST_LINE))
    if over == trace.header.transport and (over == "ws" or has_requests(trace)):
        return numbered
    lines = {}
    for number, line in numbered.items():
        # stdio has one stream, so its end is the end of the conversation.
        ends = line.ends and line.stream is UNSET and over == "stdio"
        if ends or line.data is not None:
            lines[number] = structs.replace(
                line, stream=UNSET, http=UNSET, event=UNSET, ends=ends
            )
    return lines


def _client_ends(client_lines: dict[int, Line]) -> dict[int | UnsetType, int]:
    """Return the number of the line with which the client ends each stream."""
    ends = {}
    for number, line in client_lines.items():
        if line.ends:
            ends[line.stream] = number
    return ends


def _awaited(
    server_lines: dict[int, Line],
    client_ends: dict[int | UnsetType, int],
    optional: list[str],
) -> list[int]:
    """Return the numbers of the lines that the server has to send.

    If the client ends a stream, what the server still sends on it is not predictable.
    """
    awaited = []
    for number, line in server_lines.items():
        if is_optional(line, optional):
            continue
        ended = client_ends.get(line.stream, math.inf)
        if line.stream is UNSET or number < ended:
            awaited.append(number)
    return awaited


def is_optional(line: Line, methods: list[str]) -> bool:
    """Return whether a line is a notification that may be missing."""
    if not methods or not line.message:
        return False
    content = line.content
    if value_at(content, ["id"]) is not ABSENT:
        return False
    return value_at(content, ["method"]) in methods


def _post_streams(client_lines: dict[int, Line]) -> set[int | UnsetType]:
    return {
        line.stream
        for line in client_lines.values()
        if isinstance(line.http, Http) and line.http.method == "POST"
    }


def _may_end(client_ends: dict[int | UnsetType, int]) -> set[int | UnsetType]:
    """Return the streams that the server may end before the client does.

    If the client ends a stream, either side may be first. This does not apply to the
    whole conversation (UNSET): if the client ends it in the trace, the client is first.
    """
    streams = set(client_ends)
    if UNSET in streams:
        streams.remove(UNSET)
    else:
        streams.add(UNSET)
    return streams


def line_key(line: Line, ids: ServerIds, requests: ClientRequests) -> LineKey:
    """Return the key of a server's line."""
    if line.http:
        what = HEAD
    elif line.message:
        what = describe(line.content, ids, requests)
    elif line.raw is not UNSET:
        what = NO_JSON
    elif line.event:
        what = EVENT
    else:
        what = END
    return LineKey(line.stream, what)


def describe(message: JsonValue, ids: ServerIds, requests: ClientRequests) -> str:
    """Describe a server's message, with the identifiers of the trace.

    For a message of the trace itself, `ids` and `requests` are empty.
    """
    if isinstance(message, list):
        parts = [describe(part, ids, requests) for part in message]
        return f"a batch: {', '.join(sorted(parts))}"
    method = value_at(message, ["method"])
    id = value_at(message, ["id"])
    if method is ABSENT:
        return _describe_answer(id, ids, requests)
    if id is not ABSENT:
        return f"the question {method}"
    words = [str(method)]
    for location in _SUBJECTS:
        subject = value_at(message, ["params", *location])
        if subject is not ABSENT:
            words.append(json_text(ids.to_recorded(subject)))
    return " about ".join(words)


def _describe_answer(id: JsonValue, ids: ServerIds, requests: ClientRequests) -> str:
    if not requests.includes(id):
        id = ids.to_recorded(id)
    if id is None or id is ABSENT:
        return "an error without an id"
    return f"{ANSWER}{json_text(id)}"
