"""Draw a trace as a sequence diagram, in a terminal or as an HTML page."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..protocol.types import Json
from .format import Line, Trace, parsed

# The kinds of steps and their colors in a terminal. A question is a request from the
# server. A wire step is an HTTP head or the end of a stream, without a message.
COLORS = {
    "request": 36,
    "question": 35,
    "response": 32,
    "error": 31,
    "notification": 33,
    "raw": 94,
    "wire": 90,
}
_DIM = 2
_RESPONSES = ("response", "error")

# Keys of a message's params or error. The first one present is shown in the label.
_SUBJECTS = ("name", "uri", "requestId", "progressToken", "level", "code")

_MIN_WIDTH = 24  # columns
_FACT_NAME = 10  # columns
_MAX_VALUE = 4_000  # characters of a step's value
_MAX_VALUE_ON_PAGE = 200  # characters of a step's value in the HTML page
# Browsers take seconds to open larger pages, and cannot open a page of a gigabyte.
_MAX_PAGE = 16_000_000  # bytes of all messages that an HTML page shows in full
_MIN_TEXT = 500  # characters of a message that an HTML page shows in any case


# Steps


class Step(Struct):
    """One arrow of the diagram: a message, or a line of the trace without one.

    All texts are safe to show: they contain no control characters.
    """

    t: float
    time: str
    sender: str
    stream: int | UnsetType
    kind: str
    id: str
    method: str
    label: str
    notes: list[str]
    value: str
    head: list[str]
    data: bytes | Raw
    partner: int | None = None
    lag: str = ""


def steps(trace: Trace) -> list[Step]:
    """Return a step for each message, with responses joined to their requests."""
    found: list[Step] = []
    for line in trace.lines:
        found.extend(_steps_of(line))
    _join_responses(found)
    return found


def _join_responses(found: list[Step]) -> None:
    """Join each response to its request, and mark the requests without one."""
    # The positions of open requests, oldest first, by the requester and the id.
    open_requests: dict[tuple[str, str], list[int]] = defaultdict(list)
    for position, step in enumerate(found):
        if step.kind in ("request", "question"):
            open_requests[step.sender, step.id].append(position)
        elif step.kind in _RESPONSES:
            requester = "server" if step.sender == "client" else "client"
            candidates = open_requests[requester, step.id]
            if candidates:
                request = _request_on_stream(step.stream, candidates, found)
                candidates.remove(request)
                _join(found, request, position)
    for unanswered in open_requests.values():
        for position in unanswered:
            found[position].notes.insert(0, "no answer")


def _request_on_stream(
    stream: int | UnsetType, candidates: list[int], found: list[Step]
) -> int:
    """Return the latest request on a stream, or else the latest on any stream."""
    for position in reversed(candidates):
        if found[position].stream == stream:
            return position
    return candidates[-1]


def _join(found: list[Step], request_position: int, response_position: int) -> None:
    """Point a request and its response at each other."""
    request = found[request_position]
    response = found[response_position]
    request.partner = response_position
    response.partner = request_position
    response.lag = _duration(response.t - request.t)
    response.label += f" of {request.method}"
    response.notes.insert(0, response.lag)


def _steps_of(line: Line) -> list[Step]:
    """Return the step of one line, or the steps of a batch."""
    wire_notes = _wire_notes(line)
    wire_fields = _wire_fields(line)
    batch = parsed(line.message, list[Raw])
    if not batch:
        first = _step(line, line.data or b"", wire_notes, wire_fields)
        found = [first]
    else:
        # The line has one HTTP head, which is shown with the first message.
        first = _step(line, batch[0], wire_notes, wire_fields)
        found = [first]
        found.extend(_step(line, message, [], []) for message in batch[1:])
        for number, step in enumerate(found, 1):
            step.notes.insert(0, f"{number} of {len(batch)} in a batch")
    first.time = f"{line.t:.4f}"[:10]
    return found


def _step(
    line: Line, data: bytes | Raw, wire_notes: list[str], wire_fields: list[str]
) -> Step:
    """Return the step of one message, or of other data on a line."""
    members: dict[str, Raw] = {}
    if line.message:
        members = parsed(data, dict[str, Raw]) or {}
    kind = _kind(line, members)
    id = _one_line(members.get("id", b""))
    method = _one_line(members.get("method", b"")).strip('"')
    content = _content(members, method, data)
    label = _label(kind, id, method, content)
    notes = list(wire_notes)
    if not label:
        label = notes.pop(0)
    value = _one_line(content)
    if kind == "wire":
        value = printable(", ".join(wire_fields))
    return Step(
        t=line.t,
        time="",
        sender=line.sender,
        stream=line.stream,
        kind=kind,
        id=id,
        method=method,
        label=label,
        notes=notes,
        value=value[:_MAX_VALUE],
        head=wire_notes + wire_fields,
        data=data,
    )


def _kind(line: Line, members: dict[str, Raw]) -> str:
    """Return the kind of a message: a key of `COLORS`."""
    if "method" in members:
        if "id" not in members:
            return "notification"
        return "request" if line.sender == "client" else "question"
    if "error" in members:
        return "error"
    if "result" in members:
        return "response"
    return "wire" if line.data is None else "raw"


def _content(members: dict[str, Raw], method: str, data: bytes | Raw) -> bytes | Raw:
    """Return the params, the result or the error of a message.

    Returns empty bytes for a method without params, and other data unchanged.
    """
    for key in ("params", "result", "error"):
        if key in members:
            return members[key]
    return b"" if method else data


def _label(kind: str, id: str, method: str, content: bytes | Raw) -> str:
    """Return the label of a step, empty for a wire step."""
    words = []
    if id:
        words.append(f"#{id}")
    words.append(_noun(kind, method))
    # A result may be large, and is not part of the label.
    if kind != "response":
        words.extend(_details(content))
    return printable(" ".join(word for word in words if word))


def _noun(kind: str, method: str) -> str:
    if kind == "response":
        return "result"
    if kind == "raw":
        return "no message"
    if kind == "wire":
        return ""
    return method or kind


def _details(content: bytes | Raw) -> list[str]:
    """Return the subject of params or an error, and their progress, if present."""
    members: Json = parsed(content, Json) or {}
    details = []
    for key in _SUBJECTS:
        if key in members:
            details.append(str(members[key]))
            break
    progress = [str(members[key]) for key in ("progress", "total") if key in members]
    details.append("/".join(progress))
    return details


def _wire_notes(line: Line) -> list[str]:
    """Return short notes about the HTTP head, the event and the stream of a line."""
    notes = []
    if line.http:
        request_line = f"{line.http.method} {line.http.path}".strip()
        notes.append(printable(request_line or f"HTTP {line.http.status}"))
    if line.event:
        words = ["event"]
        words.extend(value for key, value in line.event.items() if key != "data")
        notes.append(printable(" ".join(words)))
    if line.stream is not UNSET or line.ends:
        scope = f"stream {line.stream}"
        if line.stream is UNSET:
            scope = "the conversation"
        notes.append(f"ends {scope}" if line.ends else scope)
    return notes


def _wire_fields(line: Line) -> list[str]:
    """Return the HTTP headers and the fields of the event, as text."""
    fields: dict[str, str] = {}
    if line.http:
        fields.update(line.http.headers)
    if line.event:
        fields.update(line.event)
    return [f"{name}: {value}" for name, value in fields.items()]


# Text


def _one_line(data: bytes | Raw) -> str:
    """Return JSON on one line, and other data unchanged."""
    return printable(_formatted(data, 0))


def _indented(data: bytes | Raw) -> str:
    """Return JSON on indented lines, and other data unchanged."""
    rows = _formatted(data, 2).split("\n")
    return "\n".join(printable(row) for row in rows)


def _formatted(data: bytes | Raw, indent: int) -> str:
    """Return JSON with the given indent, its keys and numbers unchanged."""
    text = bytes(data)
    if parsed(data, Raw) is not None:
        text = msgspec.json.format(text, indent=indent)
    return text.decode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    """Escape control characters and other characters that cannot be printed."""
    if text.isprintable():
        return text
    escaped = []
    for char in text:
        if char.isprintable():
            escaped.append(char)
        else:
            escaped.append(char.encode("unicode_escape").decode())
    return "".join(escaped)


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.2f} ms"


def _facts(trace: Trace, found: list[Step]) -> list[tuple[str, str]]:
    """Return the names and values that are shown above the diagram."""
    header = trace.header
    facts = {
        "title": header.title,
        "revision": header.revision,
        "transport": header.transport,
        "server": header.server,
        "client": header.client,
        "notes": header.notes,
        "lines": _line_counts(trace, found),
        "lasted": "",
    }
    if trace.lines:
        facts["lasted"] = _duration(trace.lines[-1].t - trace.lines[0].t)
    return [(name, printable(value)) for name, value in facts.items() if value]


def _line_counts(trace: Trace, found: list[Step]) -> str:
    """Return the number of lines, and of the steps of each kind."""
    counts = Counter(step.kind for step in found)
    parts = [f"{kind} {counts[kind]}" for kind in COLORS if counts[kind]]
    return ", ".join([str(len(trace.lines)), *parts])


# In a terminal


def paint(text: str, code: int, *, color: bool) -> str:
    """Return the text in a color, or unchanged if `color` is false."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def in_terminal(trace: Trace, width: int, color: bool) -> str:
    """Return the diagram for a terminal with this many columns.

    The client is on the left, the server on the right, and time runs down.
    """
    found = steps(trace)
    margin = max((len(step.time) for step in found), default=0)
    width = max(width, _MIN_WIDTH)
    columns = width - margin - 3

    rows = _fact_rows(_facts(trace, found), width, color)
    rows.append("")
    rows.append(f"{'':{margin}} client{'server':>{columns - 4}}")
    for step in found:
        rows.extend(_step_rows(step, margin, columns, color))
    return "\n".join(rows)


def _fact_rows(facts: list[tuple[str, str]], width: int, color: bool) -> list[str]:
    rows = []
    for name, value in facts:
        heading = paint(f"{name:{_FACT_NAME}}", _DIM, color=color)
        first, *others = _wrapped(value, width - _FACT_NAME)
        rows.append(heading + first)
        rows.extend(" " * _FACT_NAME + other for other in others)
    return rows


def _step_rows(step: Step, margin: int, columns: int, color: bool) -> list[str]:
    """Return the arrow of a step, with its time in the margin, and its value."""
    time = paint(f"{step.time:>{margin}}", _DIM, color=color)
    arrow = paint(_arrow(step, columns), COLORS[step.kind], color=color)
    rows = [f"{time} {arrow}"]
    if step.value:
        value = paint(_value(step, columns), _DIM, color=color)
        rows.append(f"{'':{margin}} │{value}│")
    return rows


def _arrow(step: Step, columns: int) -> str:
    """Return the arrow of a step from one lifeline to the other, with its label."""
    label = _fit(" · ".join([step.label, *step.notes]), columns - 5)
    shaft = "─" * (columns - 4 - _width(label))
    if step.sender == "client":
        return f"├─ {label} {shaft}▶│"
    return f"│◀{shaft} {label} ─┤"


def _value(step: Step, columns: int) -> str:
    """Return the value of a step at its sender's side, padded to the columns."""
    value = _fit(step.value, columns - 2)
    space = " " * (columns - 2 - _width(value))
    if step.sender == "client":
        return f" {value}{space} "
    return f" {space}{value} "


def _wrapped(text: str, columns: int) -> list[str]:
    """Wrap the text into rows of at most this many columns."""
    rows = [""]
    for word in text.split(" "):
        if rows[-1] and _width(f"{rows[-1]} {word}") > columns:
            rows.append("")
        rows[-1] = _fit(f"{rows[-1]} {word}".strip(), columns)
    return rows


def _fit(text: str, columns: int) -> str:
    """Truncate the text with an ellipsis if it is too wide."""
    # Combining characters take no column, so look at more characters than columns.
    shown = text[: 4 * columns]
    if shown == text and _width(text) <= columns:
        return text
    kept = []
    used = 0
    for char in shown:
        used += _width(char)
        # One column is left for the ellipsis.
        if used < columns:
            kept.append(char)
    return "".join(kept) + "…"


def _width(text: str) -> int:
    """Return the number of columns that a terminal needs for the text."""
    columns = 0
    for char in text:
        if unicodedata.east_asian_width(char) in "WF":
            columns += 1
        # U+FE0F makes an emoji two columns wide. It counts as the second one.
        if char == "\ufe0f" or unicodedata.category(char) not in ("Mn", "Me"):
            columns += 1
    return columns


# In a browser


def as_html(trace: Trace) -> str:
    """Return the diagram as a self-contained HTML page."""
    # Only this function needs importlib.resources, which is slow to import.
    from importlib.resources import files

    found = steps(trace)
    max_text = _max_text(found)
    content = {
        "facts": _facts(trace, found),
        "kinds": list(COLORS),
        "steps": [_on_page(step, max_text) for step in found],
    }
    data = msgspec.json.encode(content).decode()
    # These characters could end the script element or a line of the script.
    for char in "<>&\u2028\u2029":
        data = data.replace(char, f"\\u{ord(char):04x}")
    page = files(__package__) / "diagram.html"
    return page.read_text("utf-8").replace("{{data}}", data)


def _max_text(found: list[Step]) -> int:
    """Return how many characters of each message a page can show."""
    if sum(len(bytes(step.data)) for step in found) <= _MAX_PAGE:
        return _MAX_PAGE
    return max(_MIN_TEXT, _MAX_PAGE // len(found))


def _on_page(step: Step, max_text: int) -> Json:
    """Return the values of a step that the script of the page shows."""
    return {
        "time": step.time,
        "sender": step.sender,
        "kind": step.kind,
        "method": step.method,
        "label": step.label,
        "notes": step.notes,
        "value": step.value[:_MAX_VALUE_ON_PAGE],
        "text": _full_text(step, max_text),
        "partner": step.partner,
        "lag": step.lag,
    }


def _full_text(step: Step, max_text: int) -> str:
    """Return the text of a step: the rows of its head, then its data."""
    head = "\n".join(printable(row) for row in step.head)
    data = _indented(step.data)
    left_out = len(data) - max_text
    if left_out > 0:
        data = f"{data[:max_text]}…\n\n{left_out:,} more characters are in the trace."
    return "\n\n".join(part for part in (head, data) if part)
