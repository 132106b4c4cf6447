"""Format log records: as lines of text, or as one JSON object per line."""

import logging
import re
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeAlias

from ..protocol.jsonrpc import encode
from ..protocol.sanitize import visible
from ..protocol.types import Json

# The extra attributes of a record, which `server/event_log.py` sets.
FIELDS = (
    "event",
    "method",
    "tool",
    "sender",
    "revision",
    "status",
    "seconds",
    "reference",
    "error",
    "more",
    "arguments",
)
# Control characters and line ends that JSON does not escape.
_UNESCAPED = r"[\x7f-\x9f\u2028\u2029]"
# The most characters of a traceback. It may quote what a client has sent.
MAX_TRACEBACK = 20_000

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
)


class _Formatter(logging.Formatter):
    def formatException(self, ei: _ExcInfo) -> str:
        """Return a traceback, truncated."""
        text = super().formatException(ei)
        if len(text) <= MAX_TRACEBACK:
            return text
        return f"{text[:MAX_TRACEBACK]}\n[truncated: {len(text):,} characters]"


class TextFormatter(_Formatter):
    """One line per record, for people.

    Further lines are indented, so input from a client cannot look like another record.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._prefix = "" if worker is None else f"[worker {worker}] "

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        # Another formatter may have stored its own text here.
        record.exc_text = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the first line, without control characters."""
        return self._prefix + visible(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:
        """Return a traceback, indented."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {visible(line)}" for line in lines)


class JsonFormatter(_Formatter):
    """One JSON object per record.

    Its keys are the time, the level, the logger, the message, the FIELDS that the
    record has, and a traceback. With `--workers`, the worker's number is included.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        time = datetime.fromtimestamp(record.created, UTC)
        fields: Json = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            fields["worker"] = self._worker
        for name in FIELDS:
            value = getattr(record, name, None)
            if isinstance(value, int | float | str) and value != "":
                fields[name] = value
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        text = encode(fields).decode()
        return re.sub(_UNESCAPED, lambda found: f"\\u{ord(found[0]):04x}", text)


FORMATTERS: dict[str, type[TextFormatter | JsonFormatter]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
}
