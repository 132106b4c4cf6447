"""How log records are written: a line each for people to read, or an object each for programs."""

import logging
import re
from datetime import UTC, datetime

from ..protocol.jsonrpc import encode
from ..protocol.sanitize import visible
from ..protocol.types import Json

# What a record may have besides its message: see `server/journal.py`.
FIELDS = "event method tool sender revision status seconds reference error more arguments".split()
# Control characters that JSON lets stand as they are.
_BARE = re.compile(r"[\x7f-\x9f\u2028\u2029]")


# Characters of a traceback: what it ends with may be what a client has sent.
MOST_TRACEBACK = 20_000


class _Formatter(logging.Formatter):
    def formatException(self, ei: object) -> str:
        text = super().formatException(ei)  # type: ignore[arg-type]
        return (
            text
            if len(text) <= MOST_TRACEBACK
            else f"{text[:MOST_TRACEBACK]}\n[cut: {len(text):,} characters]"
        )


class TextFormatter(_Formatter):
    """A line for people. What clients say cannot begin another: tracebacks, the rest of it, are indented."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # which some other formatter may have left
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        return "\n".join(
            f"  {visible(line)}" for line in super().formatException(ei).split("\n")
        )


class JsonFormatter(_Formatter):
    """One JSON object: time, level, logger, message, those of FIELDS that are known, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(
            timespec="milliseconds"
        )
        level = record.levelname.lower()
        said: Json = {
            "time": at,
            "level": level,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {name: getattr(record, name, None) for name in FIELDS}
        said |= {
            name: value
            for name, value in fields.items()
            if isinstance(value, int | float | str) and value != ""
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return _BARE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode(said).decode())


FORMATTERS: dict[str, type[logging.Formatter]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
}
