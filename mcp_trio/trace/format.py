"""The format of a trace: JSON Lines, first a header, then a line a message. traces/README.md describes it."""

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ..load_spec import UsageError

VERSION = 1
# What decoding raises where the data are not what is wanted.
NOT_THAT = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
T = TypeVar("T")
Transport = Literal["stdio", "http", "sse", "ws"]
Sender = Literal["client", "server"]


class BadTrace(UsageError):
    """A file is no trace, or not a whole one: says which, in which line, and why."""

    def __init__(self, problem: str, whole: "Trace | None" = None) -> None:
        super().__init__(problem)
        self.whole = whole  # what there is of it, where only its end is missing


class Header(Struct, kw_only=True, omit_defaults=True):
    """What a trace says of itself."""

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

    def __post_init__(self) -> None:
        for pointer in self.ignore:
            if not pointer.startswith("/"):
                raise ValueError(
                    f"ignore: {pointer!r} is no JSON Pointer, which begins with /"
                )


class Http(Struct, omit_defaults=True):
    """The head of a request, or of a response: what of it matters."""

    method: str = ""
    path: str = ""
    status: int = 0
    headers: dict[str, str] = {}


class Line(Struct, kw_only=True, omit_defaults=True):
    """What one side sent at a time: a message, or bytes that are none; over HTTP also a head, or a stream's end."""

    t: float
    sender: Sender = field(name="from")
    stream: int | UnsetType = UNSET
    http: Http | UnsetType = UNSET
    event: dict[str, str] | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    ends: bool = False

    def __post_init__(self) -> None:
        if self.message and self.raw is not UNSET:
            raise ValueError("message and raw exclude each other")
        if (
            not self.message
            and self.raw is UNSET
            and not self.http
            and not self.event
            and not self.ends
        ):
            raise ValueError(
                "neither message, raw, http, event nor ends: nothing was sent"
            )

    @property
    def content(self) -> Any:
        """The message, decoded; None where there is none."""
        return parsed(self.message)

    @property
    def parts(self) -> list[Any]:
        """The messages of a batch, or the one that is there."""
        content = self.content
        return content if isinstance(content, list) else [content]

    @property
    def data(self) -> bytes | None:
        """The bytes of the message, or of what is none; None where neither was sent."""
        if isinstance(self.raw, str):
            return self.raw.encode("latin-1")
        return bytes(self.message) if isinstance(self.message, Raw) else None


class Trace(Struct):
    """One recorded conversation."""

    header: Header
    lines: list[Line]
    path: Path | None = None

    def dump(self) -> bytes:
        """The file's contents."""
        return b"".join([encode(self.header), *map(encode, self.lines)])


def encode(part: Header | Line) -> bytes:
    """One line of a file."""
    return msgspec.json.encode(part) + b"\n"


def parsed(data: bytes | Raw | UnsetType, type: Any = Any) -> Any:
    """JSON as that type; None if it is something else."""
    try:
        return msgspec.json.decode(data, type=type)  # type: ignore[arg-type]
    except (*NOT_THAT, TypeError):
        return None


def line(t: float, sender: Sender, data: bytes | None = None, **about: Any) -> Line:
    """What a side has sent, as a message or as what else it is. `about` are the other keys of the line."""
    if data is not None:
        if isinstance(parsed(data), dict | list):
            # A line end can only stand between tokens: within a string it is escaped.
            about["message"] = Raw(
                data.strip().replace(b"\n", b" ").replace(b"\r", b" ")
            )
            about["event"] = about.get("event") or UNSET
        elif "event" in about:
            about["event"] = {**about["event"], "data": data.decode(errors="replace")}
        else:
            about["raw"] = data.decode("latin-1")
    return Line(t=round(t, 6), sender=sender, **about)


def revision_in(message: Any) -> str:
    """The revision that a message agrees on or declares; nothing where it does neither."""
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
    """The trace in a file. Raises BadTrace."""
    try:
        rows = path.read_bytes().split(b"\n")
    except OSError as problem:
        raise BadTrace(f"{path} cannot be read: {problem.strerror}") from None
    cut = rows.pop()
    if not rows:
        raise BadTrace(
            f"{path}: no trace: {'its only line is cut off' if cut else 'the file is empty'}"
        )
    version = _decoded(path, 1, rows[0], _Version).mcp_trace
    if version != VERSION:
        raise BadTrace(
            f"{path}:1: version {version} of the format; this program reads version {VERSION}"
        )
    header = _decoded(path, 1, rows[0], Header)
    trace = Trace(
        header,
        [_decoded(path, number, row, Line) for number, row in enumerate(rows[1:], 2)],
        path,
    )
    if cut:
        raise BadTrace(
            f"{path}:{len(rows) + 1}: cut off in mid-line; the {len(rows)} lines before it are whole",
            trace,
        )
    return trace


class _Version(Struct):
    mcp_trace: int


def _decoded(path: Path, number: int, row: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(row, type=type)
    except NOT_THAT as problem:
        what = "no line of a trace" if number > 1 else "no header of a trace"
        raise BadTrace(f"{path}:{number}: {what}: {problem}") from None
