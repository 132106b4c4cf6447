"""Parse server-sent events. Pure: bytes in, events out."""

import codecs

from msgspec import Struct

# The fields of one event, in order. A comment is a field with an empty name.
EventFields = list[tuple[str, str]]


class ServerSentEvent(Struct):
    """One event. `id` is the last event id that the stream has sent so far."""

    data: str
    name: str = "message"
    id: str = ""


class EventParser:
    """Parses a stream of bytes into events.

    `retry` is the reconnection time in milliseconds, or None until the server sends
    one.
    """

    def __init__(self, last_id: str = "", retry: int | None = None) -> None:
        self.last_id = last_id
        self.retry = retry
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._incomplete_line = ""
        # Whether the text so far ends with a carriage return. A line feed that follows
        # it belongs to the same line ending.
        self._after_carriage_return = False
        self._fields: EventFields = []

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Parse a chunk and return the events that it completes.

        Events without data, such as comments, are left out.
        """
        events = []
        for fields in self.blocks(chunk):
            # If several fields have the same name, the last one counts.
            last = dict(fields)
            self._note_id_and_retry(last)
            data = "\n".join(value for name, value in fields if name == "data")
            if data:
                name = last.get("event") or "message"
                events.append(ServerSentEvent(data, name, self.last_id))
        return events

    def blocks(self, chunk: bytes) -> list[EventFields]:
        """Parse a chunk and return the fields of each block that it completes.

        Unlike `feed`, this keeps blocks without data, and comments.
        """
        blocks = []
        for line in self._complete_lines(chunk):
            if line:
                name, _, value = line.partition(":")
                self._fields.append((name, value.removeprefix(" ")))
            else:
                blocks.append(self._fields)
                self._fields = []
        return blocks

    def _note_id_and_retry(self, fields: dict[str, str]) -> None:
        id = fields.get("id")
        if id is not None and "\0" not in id:
            self.last_id = id
        retry = fields.get("retry", "")
        if retry.isascii() and retry.isdigit():
            self.retry = int(retry)

    def _complete_lines(self, chunk: bytes) -> list[str]:
        text = self._decoder.decode(chunk)
        if not text:
            # The chunk contains only the beginning of a character.
            return []
        if self._after_carriage_return:
            text = text.removeprefix("\n")
        self._after_carriage_return = text.endswith("\r")
        text = self._incomplete_line + text
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._incomplete_line = lines.pop()
        return lines
