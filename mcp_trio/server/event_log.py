"""What is worth a line in the log: refusals, failures, slow calls. Who floods the server does not flood its log."""

import logging
from collections import Counter
from typing import Any

import trio
from msgspec import json

from ..protocol.sanitize import visible
from .limiter import LISTENS, sender
from .request import Request

log = logging.getLogger("mcp_trio")

# Lines in a second about the same event by the same sender; more are counted, and told of in one line.
MOST_LINES = 10
# Senders that are told apart in a second.
MOST_TOLD_APART = 1000
# Seconds after which a call is slow. Many clients give up after 60, and people before that; a tool that is known to
# take longer can say how far it is.
SLOW = 10.0
# Characters of a call's arguments.
MOST_ARGUMENTS = 1000


class EventLog:
    """One server's lines. Each has its fields in the record's attributes, for formatters that show them."""

    def __init__(self) -> None:
        self.with_arguments = False  # they may hold what is nobody's business
        self._lines: Counter[tuple[str, str]] = (
            Counter()
        )  # within this second, by event and sender

    def turned_away(self, who: str, status: int, reply: bytes) -> None:
        """Somebody was not let in, with this reply."""
        why = json.decode(reply)["error"]["message"] if reply else ""
        text = f"refused: {who} ({status}): {why}"
        self._write(
            logging.WARNING, text, event="refused", sender=who, status=status, error=why
        )

    def failed(self, request: Request, reference: str, failure: BaseException) -> None:
        """A request has failed for a reason that the client is not told; it gets the reference."""
        fields = self._about(request)
        text = f"{fields['method']} failed (reference {reference})"
        known = {
            "event": "failed",
            "reference": reference,
            "error": type(failure).__name__,
        }
        self._write(logging.ERROR, text, failure, **known, **fields)

    def told(
        self, event: str, request: Request, error: str, level: int = logging.WARNING
    ) -> None:
        """A request was not done for a reason that the client is told."""
        if not log.isEnabledFor(level):
            return
        fields = self._about(request)
        by = f" by {fields['sender']}" if fields["sender"] else ""
        self._write(
            level,
            f"{event}: {_name(fields)}{by}: {error}",
            event=event,
            error=error,
            **fields,
        )

    def took(self, request: Request, seconds: float) -> None:
        """A request has ended that was slow; who listens is not."""
        if request.call.method != LISTENS:
            fields = self._about(request)
            text = f"slow: {_name(fields)} took {seconds:.1f} s"
            self._write(
                logging.WARNING, text, event="slow", seconds=round(seconds, 3), **fields
            )

    def _about(self, request: Request) -> dict[str, Any]:
        call, who = request.call, sender(request)
        fields = {
            "method": call.method,
            "sender": who if isinstance(who, str) else "",
            "revision": call.revision.name,
        }
        if call.method == "tools/call":
            fields["tool"] = call.params.name
            if self.with_arguments:
                fields["arguments"] = bytes(call.params.arguments).decode(
                    errors="replace"
                )[:MOST_ARGUMENTS]
        return fields

    def _write(
        self, level: int, text: str, failure: BaseException | None = None, **fields: Any
    ) -> None:
        """Write a line; one of too many is only counted."""
        if not self._lines:
            trio.lowlevel.spawn_system_task(self._sum_up)
        key = fields["event"], fields["sender"]
        if key not in self._lines and len(self._lines) >= MOST_TOLD_APART:
            key = fields["event"], "others"
        self._lines[key] += 1
        if self._lines[key] <= MOST_LINES:
            text += (
                f"; arguments {fields['arguments']}" if "arguments" in fields else ""
            )
            log.log(level, "%s", visible(text), exc_info=failure, extra=fields)

    async def _sum_up(self) -> None:
        try:
            await trio.sleep(1)
        finally:
            lines, self._lines = self._lines, Counter()
            for (event, who), count in lines.items():
                if more := max(count - MOST_LINES, 0):
                    text = f"{event}: and {more:,} more within a second, by {who or 'one client'}"
                    log.warning(
                        "%s",
                        visible(text),
                        extra={"event": event, "sender": who, "more": more},
                    )


def _name(fields: dict[str, Any]) -> str:
    return (
        f"{fields['method']} of {fields['tool']}"
        if "tool" in fields
        else str(fields["method"])
    )
