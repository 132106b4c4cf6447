"""Logs refusals, failures and slow calls.

A client that floods the server does not flood the log: after some records of an event
by the same sender, further ones are counted, and summarized once a second.
"""

import logging
from collections import Counter
from typing import Any

import trio
from msgspec import json

from ..protocol.sanitize import visible
from .limiter import LISTENS, sender
from .request import Request

log = logging.getLogger("mcp_trio")

# The maximum number of records per second of the same event by the same sender.
MOST_LINES = 10
# The maximum number of senders that are distinguished within a second.
MOST_SENDERS = 1000
# Seconds after which a call is slow. Many clients time out after 60.
SLOW = 10.0
# The maximum number of characters of a call's arguments in a record.
MOST_ARGUMENTS = 1000


class EventLog:
    """The log of one server's requests. Records have their fields as attributes.

    `with_arguments` adds the arguments of calls, which may be confidential.
    """

    def __init__(self) -> None:
        self.with_arguments = False
        # The number of records within this second, by event and sender.
        self._lines: Counter[tuple[str, str]] = Counter()

    def log_rejection(self, who: str, status: int, reply: bytes) -> None:
        """Log an HTTP request that was rejected with this reply."""
        why = json.decode(reply)["error"]["message"] if reply else ""
        text = f"refused: {who} ({status}): {why}"
        fields = {"event": "refused", "sender": who, "status": status, "error": why}
        self._write(logging.WARNING, text, fields)

    def log_failure(
        self, request: Request, reference: str, failure: BaseException
    ) -> None:
        """Log an exception that is hidden from the client, which gets the reference."""
        fields = {
            "event": "failed",
            "reference": reference,
            "error": type(failure).__name__,
            **self._describe(request),
        }
        text = f"{fields['method']} failed (reference {reference})"
        self._write(logging.ERROR, text, fields, failure)

    def log_unsuccessful(
        self,
        event: str,
        request: Request,
        error: str,
        level: int = logging.WARNING,
    ) -> None:
        """Log a request that was refused or failed, with the error in the reply."""
        if not log.isEnabledFor(level):
            return
        fields = self._describe(request)
        by = f" by {fields['sender']}" if fields["sender"] else ""
        text = f"{event}: {_name(fields)}{by}: {error}"
        self._write(level, text, {"event": event, "error": error, **fields})

    def log_slow(self, request: Request, seconds: float) -> None:
        """Log a slow request, unless it is a subscription."""
        if request.call.method == LISTENS:
            return
        fields = self._describe(request)
        text = f"slow: {_name(fields)} took {seconds:.1f} s"
        about = {"event": "slow", "seconds": round(seconds, 3)}
        self._write(logging.WARNING, text, {**about, **fields})

    def _describe(self, request: Request) -> dict[str, Any]:
        """Return the fields that identify a request."""
        call = request.call
        who = sender(request)
        fields = {
            "method": call.method,
            "sender": who if isinstance(who, str) else "",
            "revision": call.revision.name,
        }
        if call.method == "tools/call":
            fields["tool"] = call.params.name
            if self.with_arguments:
                arguments = bytes(call.params.arguments).decode(errors="replace")
                fields["arguments"] = arguments[:MOST_ARGUMENTS]
        return fields

    def _write(
        self,
        level: int,
        text: str,
        fields: dict[str, Any],
        failure: BaseException | None = None,
    ) -> None:
        """Write a record, or only count it if there are too many."""
        if not self._lines:
            trio.lowlevel.spawn_system_task(self._sum_up)
        key = fields["event"], fields["sender"]
        if key not in self._lines and len(self._lines) >= MOST_SENDERS:
            key = fields["event"], "others"
        self._lines[key] += 1
        if self._lines[key] > MOST_LINES:
            return
        if "arguments" in fields:
            text += f"; arguments {fields['arguments']}"
        log.log(level, "%s", visible(text), exc_info=failure, extra=fields)

    async def _sum_up(self) -> None:
        """After a second, log how many records were only counted."""
        try:
            await trio.sleep(1)
        finally:
            lines = self._lines
            self._lines = Counter()
            for (event, who), count in lines.items():
                more = count - MOST_LINES
                if more > 0:
                    by = who or "one client"
                    text = f"{event}: and {more:,} more within a second, by {by}"
                    fields = {"event": event, "sender": who, "more": more}
                    log.warning("%s", visible(text), extra=fields)


def _name(fields: dict[str, Any]) -> str:
    """Return the method and, for a call, the tool."""
    method: str = fields["method"]
    return f"{method} of {fields['tool']}" if "tool" in fields else method
