"""FastMCP: `server.py stdio` or `server.py http|stateless|stream PORT`."""

import asyncio
import os
import sys
from typing import Annotated, Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from jsonschema import Draft202012Validator
from mcp_types import TextContent
from pydantic import BaseModel, Field

server = FastMCP("fastmcp", version="1")


class User(BaseModel):
    """An object in a structured result."""

    id: int
    name: str
    email: str
    active: bool
    tags: list[str]


def make_user(id: int) -> User:
    """Return one of the users."""
    name = f"user {id}"
    return User(id=id, name=name, email="user@example.com", active=True, tags=["a"])


# Without this option, FastMCP sends a string as structured content too.
@server.tool(output_schema=None)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(output_schema=None)
async def wait(a: int, b: int) -> str:
    """Add two numbers after a turn of the loop."""
    await asyncio.sleep(0)
    return str(a + b)


@server.tool(output_schema=None)
def block(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


@server.tool(output_schema=None)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool(output_schema=None)
async def progress(n: int, ctx: Context) -> str:
    """Tell of n steps, then answer."""
    for step in range(1, n + 1):
        await ctx.report_progress(step, n)
    return str(n)


@server.tool
async def total(a: int, b: int) -> int:
    """Add two numbers, as a structured result."""
    return a + b


@server.tool
async def user(a: int, b: int) -> User:
    """Return an object."""
    return make_user(a)


@server.tool
async def users(a: int, b: int) -> list[User]:
    """Return a list of objects."""
    return [make_user(id) for id in range(a, a + 100)]


class Address(BaseModel):
    """An address."""

    street: str = Field(min_length=1, max_length=100)
    postcode: str = Field(pattern="^[0-9]{5}$")


class Customer(BaseModel):
    """A customer."""

    name: str = Field(min_length=1, max_length=100)
    address: Address


class Item(BaseModel):
    """A line of an order."""

    sku: str = Field(pattern="^[A-Z]{2}[0-9]{4}$")
    quantity: int = Field(ge=1, le=100)
    price: float = Field(ge=0)


@server.tool(output_schema=None)
async def order(
    customer: Customer,
    items: Annotated[list[Item], Field(min_length=1, max_length=20)],
    shipping: Literal["normal", "express"],
) -> str:
    """Count what is ordered."""
    return str(sum(item.quantity for item in items))


# The schema of `route`, the same in all contenders.
ROUTE = {
    "type": "object",
    "properties": {
        "from": {"type": "string", "minLength": 1, "maxLength": 100},
        "to": {"type": "string", "minLength": 1, "maxLength": 100},
        "mode": {"enum": ["walk", "ride"]},
        "stops": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
    },
    "required": ["from", "to", "mode"],
    "additionalProperties": False,
}
validator = Draft202012Validator(ROUTE)


class Route(Tool):
    """A tool that has its own schema and validates its arguments."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Describe a route."""
        validator.validate(arguments)
        text = f"{arguments['mode']} from {arguments['from']} to {arguments['to']}"
        return ToolResult(content=[TextContent(type="text", text=text)])


server.add_tool(Route(name="route", description="Describe a route.", parameters=ROUTE))


@server.tool(output_schema=None)
async def grow(ctx: Context) -> str:
    """Add a tool, so that those who listen hear that the list has changed."""
    name = f"grown_{len(await server.list_tools())}"
    add_sum(name)
    # Only to the session of this request, because FastMCP keeps no list of the others.
    await ctx.session.send_tool_list_changed()
    return name


def add_sum(name: str) -> None:
    """Add a tool that adds two numbers."""

    async def total(a: int, b: int) -> str:
        return str(a + b)

    server.add_tool(
        Tool.from_function(
            total, name=name, description="Add two numbers.", output_schema=None
        )
    )


def main(mode: str, port: str = "0") -> None:
    """Serve the transport that the command line names."""
    for number in range(int(os.environ.get("BENCH_TOOLS", "0"))):
        add_sum(f"tool_{number}")
    if mode == "stdio":
        server.run("stdio", show_banner=False, log_level="WARNING")
        return
    server.run(
        "http",
        port=int(port),
        show_banner=False,
        log_level="WARNING",
        json_response=mode != "stream",
        stateless_http=mode == "stateless",
        uvicorn_config={
            "loop": "uvloop",
            "http": "httptools",
            "access_log": False,
            "log_level": "warning",
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
