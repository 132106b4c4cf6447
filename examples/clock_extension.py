"""An extension of the protocol: a method, a notification and a result type of its own.

    python -m mcp_trio run examples/clock_extension.py

Clients that declare `com.example/clock` in their capabilities can ask when it is noon
somewhere. The tool is for all others.
"""

from msgspec import Struct

from mcp_trio import Server
from mcp_trio.extensions import Extension, ExtensionContext, Params, method

IDENTIFIER = "com.example/clock"
ASKED = "notifications/clock/asked"


class Zone(Params, rename="camel", kw_only=True):
    """The parameters of `clock/noon`."""

    hours_from_utc: int = 0


class Noon(Struct, rename="camel"):
    """The result of `clock/noon`."""

    utc_hour: int


class Clock(Extension):
    """Knows when it is noon."""

    identifier = IDENTIFIER
    notifications = (ASKED,)

    def __init__(self) -> None:
        """Say in the capabilities what the clock can do."""
        self.settings = {"precise": False}

    @method("clock/noon")
    async def noon(self, params: Zone, ctx: ExtensionContext) -> Noon:
        """Return the hour in UTC at which it is noon in a time zone."""
        await ctx.notify(ASKED, {"hoursFromUtc": params.hours_from_utc})
        return Noon(utc_hour=utc_hour_of_noon(params.hours_from_utc))


server = Server("clock_extension", extensions=[Clock()])


@server.tool
async def get_noon(hours_from_utc: int) -> str:
    """Tell at which hour in UTC it is noon in a time zone."""
    return f"It is noon there at {utc_hour_of_noon(hours_from_utc)}:00 UTC."


def utc_hour_of_noon(hours_from_utc: int) -> int:
    """Return the hour in UTC at which it is noon in a time zone."""
    return (12 - hours_from_utc) % 24


if __name__ == "__main__":
    server.run()
