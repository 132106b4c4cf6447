"""A trace as a sequence picture, for people: in a terminal, or as one HTML file that needs nothing else."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import accumulate

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..protocol.types import Json
from .format import Line, Trace, parsed

# The kinds of what passes, each with its colour in a terminal. A question is a request of the server's; `wire` is a
# head or an end without a message.
COLOURS = {
    "request": 36,
    "question": 35,
    "response": 32,
    "error": 31,
    "notification": 33,
    "raw": 94,
    "wire": 90,
}

# What in its params or its error tells what a message is about: the first of these that is there.
SUBJECTS = ("name", "uri", "requestId", "progressToken", "level", "code")


# What passed


class Step(Struct):
    """One message, or what passed without one. Its texts hold nothing that a terminal or a browser would act on."""

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
    text: str
    partner: int | None = None
    lag: str = ""


def steps(trace: Trace) -> list[Step]:
    """What passed, a batch message by message, with answers joined to what they answer."""
    found = [step for line in trace.lines for step in _steps_of(line)]
    waiting: dict[tuple[bool, str], list[int]] = defaultdict(list)
    for number, step in enumerate(found):
        asks = step.kind in ("request", "question")
        asked = waiting[(step.sender == "client") is asks, step.id]
        if asks:
            asked.insert(0, number)
        elif asked and step.kind in ("response", "error"):
            step.partner = max(asked, key=lambda at: found[at].stream == step.stream)
            asked.remove(step.partner)
            _join(found[step.partner], step, number)
    for number in [number for asked in waiting.values() for number in asked]:
        found[number].notes.insert(0, "no answer")
    return found


def _join(asked: Step, answer: Step, number: int) -> None:
    asked.partner = number
    answer.lag = _span(answer.t - asked.t)
    answer.label += f" of {asked.method}"
    answer.notes.insert(0, answer.lag)


def _steps_of(line: Line) -> Iterator[Step]:
    batch = parsed(line.message, list[Raw]) or []
    wire, head = (
        list(_wire(line)),
        (line.http.headers if line.http else {}) | (line.event or {}),
    )
    fields, time = (
        [f"{key}: {value}" for key, value in head.items()],
        f"{line.t:.4f}"[:10],
    )
    for number, data in enumerate(batch or [line.data or b""], 1):
        parts = parsed(data, dict[str, Raw]) or {} if line.message else {}
        kind, id, method = (
            _kind(line, parts),
            _text(parts.get("id", b"")),
            _text(parts.get("method", b"")).strip('"'),
        )
        carried = next(
            (parts[key] for key in ("params", "result", "error") if key in parts),
            b"" if method else data,
        )
        value = printable(", ".join(fields)) if kind == "wire" else _text(carried)
        notes = [*([f"{number} of {len(batch)} in a batch"] if batch else []), *wire]
        label = _label(kind, id, method, carried) or notes.pop(0)
        text = "\n\n".join(
            filter(None, ["\n".join(map(printable, [*wire, *fields])), _text(data, 2)])
        )
        yield Step(
            line.t,
            time,
            line.sender,
            line.stream,
            kind,
            id,
            method,
            label,
            notes,
            value,
            text,
        )
        time, wire, fields = "", [], []


def _kind(line: Line, parts: Json) -> str:
    if "method" in parts and "id" in parts:
        return "request" if line.sender == "client" else "question"
    kinds = {"method": "notification", "error": "error", "result": "response"}
    return next(
        (kind for key, kind in kinds.items() if key in parts),
        "wire" if line.data is None else "raw",
    )


def _label(kind: str, id: str, method: str, carried: bytes | Raw) -> str:
    said = parsed(carried, Json) or {} if kind != "response" else {}
    subject = [str(said[key]) for key in SUBJECTS if key in said][:1]
    progress = "/".join(str(said[key]) for key in ("progress", "total") if key in said)
    what = {"response": "result", "raw": "no message", "wire": ""}.get(
        kind, method or kind
    )
    return printable(
        " ".join(filter(None, [id and f"#{id}", what, *subject, progress]))
    )


def _wire(line: Line) -> Iterator[str]:
    """What HTTP and its streams add, in short."""
    if line.http:
        yield printable(
            f"{line.http.method} {line.http.path}".strip() or f"HTTP {line.http.status}"
        )
    if line.event:
        yield printable(
            " ".join(
                [
                    "event",
                    *(value for key, value in line.event.items() if key != "data"),
                ]
            )
        )
    if line.stream is not UNSET or line.ends:
        of = "the conversation" if line.stream is UNSET else f"stream {line.stream}"
        yield f"ends {of}" if line.ends else of


def _text(data: bytes | Raw, indent: int = 0) -> str:
    """JSON for people, its keys and numbers untouched; what is none, as it was."""
    whole = (
        bytes(data)
        if parsed(data, Raw) is None
        else msgspec.json.format(bytes(data), indent=indent)
    )
    text = whole.decode("utf-8", "backslashreplace")
    return "\n".join(map(printable, text.split("\n"))) if indent else printable(text)


def printable(text: str) -> str:
    """A text with nothing in it that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def _span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


def _facts(trace: Trace, found: list[Step]) -> list[tuple[str, str]]:
    keys = ("title", "revision", "transport", "server", "client", "notes")
    facts, counts = (
        {key: getattr(trace.header, key) for key in keys},
        Counter(step.kind for step in found),
    )
    facts["lines"] = ", ".join(
        [
            str(len(trace.lines)),
            *(f"{kind} {counts[kind]}" for kind in COLOURS if counts[kind]),
        ]
    )
    facts["lasted"] = _span(trace.lines[-1].t - trace.lines[0].t) if trace.lines else ""
    return [(key, printable(value)) for key, value in facts.items() if value]


# In a terminal


def paint(text: str, code: int, *, colour: bool) -> str:
    """A text in a colour, where there are any."""
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def in_terminal(trace: Trace, width: int, colour: bool) -> str:
    """The picture in so many columns: the client on the left, the server on the right, time running down."""
    width, found = max(width, 24), steps(trace)
    margin = max((len(step.time) for step in found), default=0)
    columns, rows = width - margin - 3, []
    painted = partial(paint, colour=colour)

    for name, value in _facts(trace, found):
        first, *others = _wrapped(value, width - 10)
        rows += [painted(f"{name:10}", 2) + first, *(f"{'':10}{row}" for row in others)]
    rows += ["", f"{'':{margin}} client{'server':>{columns - 4}}"]
    for step in found:
        arrow, value = _drawn(step, columns)
        rows.append(
            f"{painted(f'{step.time:>{margin}}', 2)} {painted(arrow, COLOURS[step.kind])}"
        )
        if step.value:
            rows.append(f"{'':{margin}} │{painted(value, 2)}│")
    return "\n".join(rows)


def _drawn(step: Step, columns: int) -> tuple[str, str]:
    """Its arrow from lifeline to lifeline and, in so many columns, its value."""
    label, value = (
        _fit(" · ".join([step.label, *step.notes]), columns - 5),
        _fit(step.value, columns - 2),
    )
    line, space = (
        "─" * (columns - 4 - _width(label)),
        " " * (columns - 2 - _width(value)),
    )
    if step.sender == "client":
        return f"├─ {label} {line}▶│", f" {value}{space} "
    return f"│◀{line} {label} ─┤", f" {space}{value} "


def _wrapped(text: str, columns: int) -> list[str]:
    rows = [""]
    for word in text.split(" "):
        if rows[-1] and _width(f"{rows[-1]} {word}") > columns:
            rows.append("")
        rows[-1] = _fit(f"{rows[-1]} {word}".strip(), columns)
    return rows


def _fit(text: str, columns: int) -> str:
    """The text, or as much of its beginning as there is room for."""
    shown = text[: 4 * columns]  # a character may take none
    if shown == text and _width(text) <= columns:
        return text
    ends = accumulate(map(_width, shown))
    return (
        "".join(char for char, end in zip(shown, ends, strict=True) if end < columns)
        + "…"
    )


def _width(text: str) -> int:
    """The columns that it takes; what asks for an emoji of two columns has one of them."""
    marks = sum(
        unicodedata.category(char) in ("Mn", "Me") and char != "\ufe0f" for char in text
    )
    return (
        len(text)
        - marks
        + sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    )


# In a browser


def as_html(trace: Trace) -> str:
    """The picture as one HTML file, which loads nothing and runs no script but its own."""
    from importlib.resources import files

    found = steps(trace)
    for step in found:
        step.value = step.value[:200]
    data = msgspec.json.encode(
        {"facts": _facts(trace, found), "kinds": [*COLOURS], "steps": found}
    ).decode()
    harmless = data.translate(
        {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
    )
    return (
        (files(__package__) / "picture.html")
        .read_text("utf-8")
        .replace("{{data}}", harmless)
    )
