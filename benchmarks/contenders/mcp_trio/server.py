"""mcp_trio: `server.py stdio` or `server.py http|stateless|stream|ws PORT [ENGINE]`."""

import os
import sys
from functools import partial
from typing import Annotated, Any, Literal

import trio
from msgspec import Meta, Struct

from mcp_trio import Context, Server

server = Server("mcp_trio", "1")


class User(Struct):
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


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def wait(a: int, b: int) -> str:
    """Add two numbers after a turn of the loop."""
    await trio.lowlevel.checkpoint()
    return str(a + b)


@server.tool
def block(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


@server.tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool
async def progress(n: int, ctx: Context) -> str:
    """Tell of n steps, then answer."""
    for step in range(1, n + 1):
        await ctx.progress(step, n)
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


class Address(Struct):
    """An address."""

    street: Annotated[str, Meta(min_length=1, max_length=100)]
    postcode: Annotated[str, Meta(pattern="^[0-9]{5}$")]


class Customer(Struct):
    """A customer."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    address: Address


class Item(Struct):
    """A line of an order."""

    sku: Annotated[str, Meta(pattern="^[A-Z]{2}[0-9]{4}$")]
    quantity: Annotated[int, Meta(ge=1, le=100)]
    price: Annotated[float, Meta(ge=0)]


@server.tool
async def order(
    customer: Customer,
    items: Annotated[list[Item], Meta(min_length=1, max_length=20)],
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


@server.tool(input_schema=ROUTE)
async def route(**places: Any) -> str:
    """Describe a route."""
    return f"{places['mode']} from {places['from']} to {places['to']}"


@server.tool
async def grow() -> str:
    """Add a tool, so that those who listen hear that the list has changed."""
    name = f"grown_{next(grown)}"
    server.add_tool(add, name=name)
    return name


grown = iter(range(sys.maxsize))


def main(mode: str, port: str = "0", engine: str = "native") -> None:
    """Serve the transport that the command line names.

    Over HTTP, sessions, stateless requests, JSON and event streams work at once.
    """
    for number in range(int(os.environ.get("BENCH_TOOLS", "0"))):
        server.add_tool(add, name=f"tool_{number}", description="Add two numbers.")
    if mode == "stdio":
        server.run()
    elif mode == "ws":
        trio.run(partial(server.serve, ws=port))
    else:
        trio.run(partial(server.serve, http=port, http_engine=engine))


if __name__ == "__main__":
    main(*sys.argv[1:])
