"""The format of a trace: JSON Lines, a header followed by one line for each message.

`traces/README.md` describes it, and `schema.json` is its JSON Schema.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from ..load_spec import UsageError, did_you_mean

VERSION = 1
# The number of the line after the header.
FIRST_LINE = 2
# The exceptions that msgspec raises if data are not JSON of the expected type.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
T = TypeVar("T")
# Any decoded JSON value: None, bool, int, float, str, list or dict.
JsonValue = Any
Transport = Literal["stdio", "http", "sse", "ws"]
Sender = Literal["client", "server"]
PatternType = Literal[
    "any",
    "string",
    "number",
    "integer",
    "boolean",
    "array",
    "object",
    "date",
    "date-time",
]
# The most seconds that a trace can make a replay wait.
MAX_SETTLE = 60.0


class BadTrace(UsageError):
    """A file is not a trace, or not a complete one."""

    def __init__(self, problem: str, whole: "Trace | None" = None) -> None:
        super().__init__(problem)
        # The complete lines, if only the last line is truncated.
        self.whole = whole


def _check_pointers(key: str, pointers: Iterable[str]) -> None:
    """Check the JSON Pointers under a key. Raises ValueError."""
    for pointer in pointers:
        if not pointer.startswith("/"):
            raise ValueError(
                f"{key}: expected a JSON Pointer such as /result/time, got {pointer!r}"
            )


class Header(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The first line of a trace."""

    mcp_trace: int
    title: str = ""
    revision: str = ""
    transport: Transport
    server: str = ""
    client: str = ""
    over: list[Transport] = []
    paced: bool = False
    ignore: list[str] = []
    notes: str = ""
    # Seconds to wait after the last line for messages that are not in the trace.
    settle: float = 0.0
    # The methods of notifications that may arrive at any time, or not at all.
    optional: list[str] = []
    # Whether lines record lost connections. Older recorders did not.
    cuts: bool = False

    def __post_init__(self) -> None:
        _check_pointers("ignore", self.ignore)
        if not 0 <= self.settle <= MAX_SETTLE:
            raise ValueError(
                f"settle: expected 0 to {MAX_SETTLE:g} seconds, got {self.settle:g}"
            )


class Pattern(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a value has to look like. The recorded value is only an example.

    Exactly one of `type`, `regex` and `same` is set. A regular expression has to match
    the whole string. `same` is a JSON Pointer to a value of the same run that has to be
    equal: in the same message, or in the message on the line number `line`.
    """

    type: PatternType | UnsetType = UNSET
    regex: str | UnsetType = UNSET
    same: str | UnsetType = UNSET
    line: int | UnsetType = UNSET

    def __post_init__(self) -> None:
        given = [one for one in (self.type, self.regex, self.same) if one is not UNSET]
        if len(given) != 1:
            raise ValueError("match: expected one of type, regex and same")
        if isinstance(self.regex, str):
            try:
                re.compile(self.regex)
            except re.error as problem:
                raise ValueError(f"match: regex {self.regex!r}: {problem}") from None
        if isinstance(self.same, str):
            _check_pointers("match: same", [self.same])
        elif self.line is not UNSET:
            raise ValueError("match: line: expected same together with line")


class Http(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The head of an HTTP request or response, with its relevant headers."""

    method: str = ""
    path: str = ""
    status: int = 0
    headers: dict[str, str] = {}


class Line(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that one side sent: a message, or bytes that are not a message.

    Over HTTP, it can also have the head of a request or response, or be the end of a
    stream. If `cut` is true, the connection was lost before the end of the response.

    The keys of `match` and the items of `ignore` are JSON Pointers into the message.
    """

    t: float
    sender: Sender = field(name="from")
    stream: int | UnsetType = UNSET
    http: Http | UnsetType = UNSET
    event: dict[str, str] | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    ends: bool = False
    cut: bool = False
    ignore: list[str] = []
    match: dict[str, Pattern] = {}

    def __post_init__(self) -> None:
        _check_pointers("ignore", self.ignore)
        _check_pointers("match", self.match)
        if self.sender == "client":
            self._check_client_patterns()
        if self.message and self.raw is not UNSET:
            raise ValueError("expected message or raw, got both")
        has_data = bool(self.message) or self.raw is not UNSET
        if not (has_data or self.http or self.event or self.ends):
            raise ValueError(
                "expected message, raw, http, event or ends, got none of them"
            )

    def _check_client_patterns(self) -> None:
        """Check that each pattern refers to a value to send. Raises ValueError."""
        for pointer, pattern in self.match.items():
            if pattern.line is UNSET:
                raise ValueError(
                    f"match: {pointer}: expected same and line: a client's message can "
                    "only repeat a value of the server"
                )

    @property
    def content(self) -> JsonValue:
        """The decoded message, or None if the line has no message."""
        return parsed(self.message)

    @property
    def parts(self) -> list[JsonValue]:
        """The messages of a batch, or a list with the only message."""
        content = self.content
        if isinstance(content, list):
            return content
        return [content]

    @property
    def data(self) -> bytes | None:
        """The bytes that were sent, or None if the line has neither message nor raw."""
        if isinstance(self.raw, str):
            return self.raw.encode("latin-1")
        if isinstance(self.message, Raw):
            return bytes(self.message)
        return None


class Trace(Struct):
    """One recorded conversation."""

    header: Header
    lines: list[Line]
    path: Path | None = None

    def dump(self) -> bytes:
        """Return the contents of the trace's file."""
        rows = [encode(self.header)]
        rows.extend(encode(line) for line in self.lines)
        return b"".join(rows)


def encode(part: Header | Line) -> bytes:
    """Return one line of a trace's file."""
    return msgspec.json.encode(part) + b"\n"


@overload
def parsed(data: bytes | Raw | UnsetType) -> JsonValue: ...


@overload
def parsed(data: bytes | Raw | UnsetType, type: type[T]) -> T | None: ...


def parsed(data: bytes | Raw | UnsetType, type: JsonValue = Any) -> JsonValue:
    """Decode JSON as a type. Returns None if the data are anything else."""
    if isinstance(data, UnsetType):
        return None
    try:
        return msgspec.json.decode(data, type=type)
    except DECODE_ERRORS:
        return None


def line(
    t: float,
    sender: Sender,
    data: bytes | None = None,
    *,
    stream: int | UnsetType = UNSET,
    http: Http | UnsetType = UNSET,
    event: dict[str, str] | UnsetType = UNSET,
    raw: str | UnsetType = UNSET,
    ends: bool = False,
    cut: bool = False,
) -> Line:
    """Return the line for something that one side sent.

    `data` become the line's message if they are a JSON object or array. Otherwise they
    become the data of `event` if that is given, or else the line's raw bytes.
    """
    message: Raw | UnsetType = UNSET
    if data is not None:
        if isinstance(parsed(data), dict | list):
            # Line ends only occur between tokens, because strings escape them.
            one_line = data.strip().replace(b"\n", b" ").replace(b"\r", b" ")
            message = Raw(one_line)
            event = event or UNSET
        elif isinstance(event, dict):
            event = {**event, "data": data.decode(errors="replace")}
        else:
            raw = data.decode("latin-1")
    return Line(
        t=round(t, 6),
        sender=sender,
        stream=stream,
        http=http,
        event=event,
        message=message,
        raw=raw,
        ends=ends,
        cut=cut,
    )


def revision_in(message: JsonValue) -> str:
    """Return the revision that a message requests or confirms, or an empty string."""
    match message:
        case {"result": {"protocolVersion": str(revision)}}:
            return revision
        case {
            "params": {
                "_meta": {"io.modelcontextprotocol/protocolVersion": str(revision)}
            }
        }:
            return revision
    return ""


def read(path: Path) -> Trace:
    """Read the trace in a file. Raises BadTrace."""
    rows = _read_rows(path)
    # Every complete line ends with "\n", so anything after the last one is a truncated
    # line.
    truncated = rows.pop()
    if not rows:
        problem = "its only line is truncated" if truncated else "the file is empty"
        raise BadTrace(f"{path}: not a trace: {problem}")
    _check_version(path, rows[0])
    _check_header_keys(path, rows[0])
    header = _decoded(path, 1, rows[0], Header)
    lines = [
        _decoded(path, number, row, Line) for number, row in enumerate(rows[1:], 2)
    ]
    _check_references(path, lines)
    trace = Trace(header, lines, path)
    if truncated:
        raise BadTrace(
            f"{path}:{len(rows) + 1}: truncated in the middle of a line; "
            f"the {len(rows)} lines before it are complete",
            trace,
        )
    return trace


class _Version(Struct):
    mcp_trace: int


def _read_rows(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except OSError as problem:
        raise BadTrace(f"{path} cannot be read: {problem.strerror}") from None


def _check_version(path: Path, row: bytes) -> None:
    """Check the version first, because the headers of other versions may differ."""
    version = _decoded(path, 1, row, _Version).mcp_trace
    if version != VERSION:
        raise BadTrace(
            f"{path}:1: expected version {VERSION} of the format, got {version}; "
            "a newer version of mcp_trio may read it"
        )


def _check_header_keys(path: Path, row: bytes) -> None:
    """Reject unknown keys, because ignoring them would change the meaning."""
    known = [field.encode_name for field in structs.fields(Header)]
    unknown = [key for key in parsed(row) or () if key not in known]
    if unknown:
        named = ", ".join(f"{key!r}{did_you_mean(key, known)}" for key in unknown)
        raise BadTrace(
            f"{path}:1: unknown key in the header: {named}; "
            "a newer version of mcp_trio may know it"
        )


def _check_references(path: Path, lines: list[Line]) -> None:
    """Check that each pattern refers to an earlier line of the server."""
    messages = {
        number
        for number, line in enumerate(lines, FIRST_LINE)
        if line.sender == "server" and line.message
    }
    for number, line in enumerate(lines, FIRST_LINE):
        for pointer, pattern in line.match.items():
            reference = pattern.line
            if reference is UNSET or (reference in messages and reference < number):
                continue
            raise BadTrace(
                f"{path}:{number}: match: {pointer}: expected the number of an earlier "
                f"line with a message of the server, got {reference}"
            )


def _decoded(path: Path, number: int, row: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(row, type=type)
    except DECODE_ERRORS as problem:
        what = "not a line of a trace" if number > 1 else "not the header of a trace"
        raise BadTrace(f"{path}:{number}: {what}: {problem}") from None
