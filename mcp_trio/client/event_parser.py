"""Server-sent events as a client reads them. Pure."""

import codecs

from msgspec import Struct


class Event(Struct):
    """One event as it was read; `id` is the last one that the stream has named, so far."""

    data: str
    name: str = "message"
    id: str = ""


class Parser:
    """Takes a stream's bytes as they come, gives its events."""

    def __init__(self, last_id: str = "", retry: int | None = None) -> None:
        self.last_id = last_id
        self.retry = retry  # milliseconds, where the server has said
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._rest = ""
        self._after_cr = (
            False  # the line feed that follows belongs to the line end before
        )
        self._fields: list[tuple[str, str]] = []

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete with what has come, those without data (such as comments) left out."""
        events = []
        for fields in self.blocks(chunk):
            last = dict(fields)  # of a name that comes again
            if "id" in last and "\0" not in last["id"]:
                self.last_id = last["id"]
            if (retry := last.get("retry", "")).isascii() and retry.isdigit():
                self.retry = int(retry)
            if data := "\n".join(value for name, value in fields if name == "data"):
                events.append(Event(data, last.get("event") or "message", self.last_id))
        return events

    def blocks(self, chunk: bytes) -> list[list[tuple[str, str]]]:
        """The fields, in their order, of all that is complete with what has come; a comment is one without a name."""
        text = self._decode(chunk)
        if text and self._after_cr:
            text = text.removeprefix("\n")
            self._after_cr = False
        self._after_cr = self._after_cr or text.endswith("\r")
        *lines, self._rest = (
            (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        )
        blocks = []
        for line in lines:
            if line:
                name, _, value = line.partition(":")
                self._fields.append((name, value.removeprefix(" ")))
            else:
                blocks.append(self._fields)
                self._fields = []
        return blocks
