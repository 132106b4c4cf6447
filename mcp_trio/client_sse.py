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

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: int | None = None  # milliseconds, where the server has said
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._rest = ""
        self._after_cr = False  # the line feed that follows belongs to the line end before
        self._data: list[str] = []
        self._name = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete with what has come, those without data (such as comments) left out."""
        text = self._decode(chunk)
        if text and self._after_cr:
            text = text.removeprefix("\n")
            self._after_cr = False
        self._after_cr = self._after_cr or text.endswith("\r")
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        events = []
        for line in lines:
            if line:
                self._read(*line.partition(":")[::2])
                continue
            if data := "\n".join(self._data):
                events.append(Event(data, self._name or "message", self.last_id))
            self._data, self._name = [], ""
        return events

    def _read(self, field: str, value: str) -> None:
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self.last_id = value
        elif field == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value)
