"""The time in any time zone, with the tools of the official reference server `time`.

    python -m mcp_trio run examples/timezones/timezones.py

LOCAL_TIMEZONE is the user's time zone, by default UTC. This folder is a project that can
be published: see docs/publishing.md.
"""

import os
from datetime import datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec

from mcp_trio import Server, ToolAnnotations, ToolError

LOCAL = os.environ.get("LOCAL_TIMEZONE", "UTC")
HINT = f"as an IANA name such as 'Europe/London'; the user's own is {LOCAL!r}"
HARMLESS = ToolAnnotations(
    read_only_hint=True,
    destructive_hint=False,
    idempotent_hint=True,
    open_world_hint=False,
)

server = Server("timezones", "1.0.0", title="Time zones")


class LocalTime(msgspec.Struct):
    timezone: str
    datetime: str
    day_of_week: str
    is_dst: bool


class Conversion(msgspec.Struct):
    source: LocalTime
    target: LocalTime
    time_difference: str


@server.tool(annotations=HARMLESS)
async def get_current_time(
    timezone: Annotated[str, f"The time zone, {HINT}"],
) -> LocalTime:
    """Tell the current time in a time zone."""
    return described(datetime.now(zone(timezone)), timezone)


@server.tool(annotations=HARMLESS)
async def convert_time(
    source_timezone: Annotated[str, f"The time zone to convert from, {HINT}"],
    time: Annotated[str, "The time of day, from 00:00 to 23:59"],
    target_timezone: Annotated[str, f"The time zone to convert to, {HINT}"],
) -> Conversion:
    """Convert a time of today from one time zone to another."""
    today = datetime.now(zone(source_timezone))
    at = parsed(time)
    source = today.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    target = source.astimezone(zone(target_timezone))
    return Conversion(
        described(source, source_timezone),
        described(target, target_timezone),
        difference(source, target),
    )


def zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise ToolError(
            f"Invalid timezone: expected an IANA name such as 'Europe/London', "
            f"got {name!r}"
        ) from None


def parsed(text: str) -> time:
    try:
        return datetime.strptime(text, "%H:%M").time()
    except ValueError:
        raise ToolError(
            f"Invalid time: expected HH:MM from 00:00 to 23:59, got {text!r}"
        ) from None


def described(at: datetime, timezone: str) -> LocalTime:
    is_dst = bool(at.dst())
    return LocalTime(timezone, at.isoformat(timespec="seconds"), f"{at:%A}", is_dst)


def difference(source: datetime, target: datetime) -> str:
    """Return how far apart two time zones are, such as "+9.0h" or "+5.75h"."""
    apart = offset(target) - offset(source)
    hours = apart / timedelta(hours=1)
    return f"{hours:+.1f}h" if hours.is_integer() else f"{hours:+g}h"


def offset(at: datetime) -> timedelta:
    return at.utcoffset() or timedelta()


def main() -> None:
    server.run()


if __name__ == "__main__":
    main()
