"""Check recorded conversations with the oracle."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from mcp_trio.trace.format import Line, Trace
from tests.support.oracle import Oracle
from tests.traces.playing import (
    LATEST,
    NEWEST,
    VENDOR,
)

Json = dict[str, Any]


def decoded(line: Line) -> Any:
    return json.loads(bytes(line.message)) if line.message else None


def parts(message: Any) -> list[Any]:
    return message if isinstance(message, list) else [message]


class Judges:
    """An oracle for each revision in a trace. Each request is checked by its own."""

    def __init__(self, revision: str) -> None:
        self.problems: list[str] = []
        self._header = revision
        self._session = ""
        self._oracles: dict[str, Oracle] = {}
        self._asked: dict[str, list[str]] = defaultdict(list)
        self._events: set[str] = set()

    def _oracle(self, revision: str) -> Oracle:
        return self._oracles.setdefault(revision, Oracle(revision))

    def sent(self, message: Any) -> None:
        for part in parts(message):
            if isinstance(part, dict) and (
                "method" in part or ("result" in part) == ("error" in part)
            ):
                revision = NEWEST if declares(part) else self._session or LATEST
                self._asked[json.dumps(part.get("id"))].append(revision)
                self._oracle(revision).sent_by_client(
                    {"id": part.get("id"), "method": part.get("method")}
                )

    def received(self, line: Line, message: Any) -> None:
        if line.event and "id" in line.event:
            if (
                line.event["id"] in self._events
            ):  # it comes again, to who has come back for it
                return
            self._events.add(line.event["id"])
        self.problems += self._oracle(self._revision_of(message, line)).check(message)
        result = message.get("result") if isinstance(message, dict) else None
        if isinstance(result, dict) and "protocolVersion" in result:
            self._session = result["protocolVersion"]

    def _revision_of(self, message: Any, line: Line) -> str:
        if isinstance(message, dict) and "method" not in message:
            if (
                asked := self._asked[json.dumps(message.get("id"))]
                if "id" in message
                else []
            ):
                return asked.pop(0)
            if (
                line.http and "id" not in message
            ):  # the page on HTTP: the body of a refusal has no id
                return LATEST
        return self._session or (
            self._header
            if isinstance(message, dict) and "method" in message
            else LATEST
        )


def problems_in(trace: Trace) -> list[str]:
    """Return the problems that the oracle finds in a trace."""
    judges = Judges(trace.header.revision)
    for line in trace.lines:
        if line.sender == "client":
            judges.sent(whatever(line))
        elif line.message:
            judges.received(line, decoded(line))
    return judges.problems


def whatever(line: Line) -> Any:
    """What a client's line says, also where no good client would say it so."""
    try:
        return json.loads(line.data or b"null")
    except (ValueError, RecursionError):
        return None


def declares(request: Json) -> bool:
    """Return whether a request names its revision itself."""
    params = request.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and isinstance(
        meta.get(VENDOR + "protocolVersion"), str
    )
