"""aiohttp-tiny-mcp: `server.py stdio` or `server.py http|stateless PORT`."""

import asyncio
import os
import sys
from typing import Literal

from aiohttp import web
from aiohttp_tiny_mcp import Endpoint, Exchange, Registry
from aiohttp_tiny_mcp.server.stdio import run_stdio
from pydantic import BaseModel, ConfigDict, Field

registry = Registry("tiny", "1")


class Numbers(BaseModel):
    """Two numbers."""

    a: int
    b: int


class Words(BaseModel):
    """A text."""

    text: str


class Steps(BaseModel):
    """How often to report."""

    n: int


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


class Total(BaseModel):
    """A number. Only the fields of a model become structured content."""

    result: int


class Users(BaseModel):
    """A list of users."""

    result: list[User]


@registry.tool
async def add(args: Numbers) -> str:
    """Add two numbers."""
    return str(args.a + args.b)


@registry.tool
async def wait(args: Numbers) -> str:
    """Add two numbers after a turn of the loop."""
    await asyncio.sleep(0)
    return str(args.a + args.b)


@registry.tool
async def block(args: Numbers) -> str:
    """Add two numbers in a thread."""
    return await asyncio.to_thread(lambda: str(args.a + args.b))


@registry.tool
async def echo(args: Words) -> str:
    """Give the text back."""
    return args.text


@registry.tool
async def progress(args: Steps, ex: Exchange) -> str:
    """Report n steps, then answer."""
    for step in range(1, args.n + 1):
        await ex.progress(step, args.n)
    return str(args.n)


@registry.tool
async def total(args: Numbers) -> Total:
    """Add two numbers, as a structured result."""
    return Total(result=args.a + args.b)


@registry.tool
async def user(args: Numbers) -> User:
    """Return an object."""
    return make_user(args.a)


@registry.tool
async def users(args: Numbers) -> Users:
    """Return a list of objects."""
    return Users(result=[make_user(id) for id in range(args.a, args.a + 100)])


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


class Order(BaseModel):
    """An order."""

    customer: Customer
    items: list[Item] = Field(min_length=1, max_length=20)
    shipping: Literal["normal", "express"]


@registry.tool
async def order(args: Order) -> str:
    """Count what is ordered."""
    return str(sum(item.quantity for item in args.items))


class Route(BaseModel):
    """The arguments of `route`, because a tool only accepts models."""

    model_config = ConfigDict(extra="forbid")

    start: str = Field(alias="from", min_length=1, max_length=100)
    to: str = Field(min_length=1, max_length=100)
    mode: Literal["walk", "ride"]
    stops: list[str] = Field(default=[], max_length=10)


@registry.tool
async def route(args: Route) -> str:
    """Describe a route."""
    return f"{args.mode} from {args.start} to {args.to}"


def main(mode: str, port: str = "0") -> None:
    """Serve the transport that the command line names."""
    for number in range(int(os.environ.get("BENCH_TOOLS", "0"))):
        registry.tool(add, name=f"tool_{number}", description="Add two numbers.")
    if mode == "stdio":
        asyncio.run(run_stdio(registry))
    else:
        app = Endpoint(registry).app("/mcp")
        web.run_app(app, host="127.0.0.1", port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
