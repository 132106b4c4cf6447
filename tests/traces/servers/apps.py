"""A server with pages for its tools."""

from __future__ import annotations

from mcp_trio import Context, Server, Text, ToolResult

server = Server("apps")
PAGE = "<!doctype html><title>Dice</title><p>A page."

server.ui(
    "ui://dice/main",
    html=PAGE,
    title="Dice",
    description="Shows a throw.",
    csp={
        "connectDomains": ["https://api.example.com"],
        "resourceDomains": ["https://cdn.example.com"],
        "frameDomains": [],
        "baseUriDomains": ["https://example.com"],
    },
    permissions=["camera", "clipboardWrite"],
    domain="dice.example.com",
    prefers_border=True,
)
server.ui("ui://dice/plain", html=PAGE)


@server.tool(ui="ui://dice/main")
async def throw(ctx: Context, sides: int = 6) -> ToolResult:
    """Throw a die."""
    text = "Shown." if ctx.renders_apps else f"You threw {sides}."
    return ToolResult([Text(text)], structured={"sides": sides, "shown": sides})


@server.tool(ui="ui://dice/main", visibility=["app"])
async def throw_again() -> int:
    """Throw again, which only the page does."""
    return 4


@server.tool(ui="ui://dice/plain", visibility=["model"], meta={"example.com/a": 1})
async def explain() -> str:
    """Explain the rules, which the page cannot ask for."""
    return "High wins."


@server.tool
async def count() -> int:
    """Count the dice, without a page."""
    return 2


async def rules(ctx: Context) -> str:
    """Return a page that is made when it is read."""
    return f"<!doctype html><p>Rules, in revision {ctx.revision}."


server.ui("ui://dice/function", html=rules)
