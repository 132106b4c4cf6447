"""A clock that hosts of MCP Apps show as a page, and all others as text.

    python -m mcp_trio run examples/clock_app.py

The page is clock_page/clock.html, which is built from clock_page/src; `npm ci` and
`npm run build` in clock_page build it again.
"""

from datetime import datetime
from pathlib import Path
from typing import TypedDict
from zoneinfo import ZoneInfo

from mcp_trio import Context, Server, Text, ToolAnnotations, ToolError, ToolResult

PAGE = Path(__file__).parent / "clock_page" / "clock.html"
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Africa/Nairobi", "Asia/Tokyo"]

server = Server("clock")
server.ui("ui://clock/main", html=PAGE, title="Clock", prefers_border=True)


class Time(TypedDict):
    """The time in a zone, and the zones that the page offers."""

    zone: str
    date: str
    seconds: int
    zones: list[str]


def time_in(zone: str) -> Time:
    """Return the time in a zone. Raises ToolError."""
    try:
        now = datetime.now(ZoneInfo(zone))
    except (KeyError, OSError, ValueError):
        raise ToolError(
            f"There is no time zone {zone!r}; try a name such as Europe/Berlin"
        ) from None
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return Time(
        zone=zone,
        date=f"{now:%A, %d %B %Y}",
        seconds=(now - midnight).seconds,
        zones=list(dict.fromkeys([zone, *ZONES])),
    )


def sentence(time: Time) -> str:
    """Say what time it is."""
    hours, rest = divmod(time["seconds"], 3600)
    return f"It is {hours:02}:{rest // 60:02} on {time['date']} in {time['zone']}."


@server.tool(
    title="Clock",
    annotations=ToolAnnotations(read_only_hint=True),
    ui="ui://clock/main",
)
async def show_clock(ctx: Context, zone: str = "UTC") -> ToolResult:
    """Show the user a clock.

    Args:
        zone: The time zone, such as Europe/Berlin
    """
    time = time_in(zone)
    text = sentence(time)
    if ctx.renders_apps:
        text += " The user sees a clock, so do not repeat the time."
    return ToolResult([Text(text)], structured=time)


@server.tool(
    annotations=ToolAnnotations(read_only_hint=True),
    ui="ui://clock/main",
    visibility=["app"],
)
async def get_time(zone: str) -> Time:
    """Return the time in a zone, for the page."""
    return time_in(zone)


if __name__ == "__main__":
    server.run()
