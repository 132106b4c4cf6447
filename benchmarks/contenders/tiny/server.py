"""aiohttp-tiny-mcp: `server.py stdio` or `server.py http|stateless PORT`."""

import asyncio
import os
import sys

from aiohttp import web
from aiohttp_tiny_mcp import Endpoint, Exchange, Registry
from aiohttp_tiny_mcp.server.stdio import run_stdio
from pydantic import BaseModel

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


def main(mode: str, port: str = "0") -> None:
    """Serve as the command line says."""
    for number in range(int(os.environ.get("BENCH_TOOLS", "0"))):
        registry.tool(add, name=f"tool_{number}", description="Add two numbers.")
    if mode == "stdio":
        asyncio.run(run_stdio(registry))
    else:
        app = Endpoint(registry).app("/mcp")
        web.run_app(app, host="127.0.0.1", port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
