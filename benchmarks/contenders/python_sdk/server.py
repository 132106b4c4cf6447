"""The official Python SDK.

    server.py stdio
    server.py http|stateless|stream PORT [asyncio|trio] [json|stream]

The last argument chooses the replies of `http` and `stateless`: JSON, or event streams,
which are the SDK's default.
"""

import os
import sys
from typing import Annotated, Literal

import anyio
import anyio.lowlevel
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, Field

server = MCPServer("python_sdk", version="1", log_level="WARNING")


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


@server.tool(structured_output=False)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(structured_output=False)
async def wait(a: int, b: int) -> str:
    """Add two numbers after a turn of the loop."""
    await anyio.lowlevel.checkpoint()
    return str(a + b)


@server.tool(structured_output=False)
def block(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool(structured_output=False)
async def progress(n: int, ctx: Context) -> str:
    """Tell of n steps, then answer."""
    for step in range(1, n + 1):
        await ctx.report_progress(step, n)
    return str(n)


@server.tool()
async def total(a: int, b: int) -> int:
    """Add two numbers, as a structured result."""
    return a + b


@server.tool()
async def user(a: int, b: int) -> User:
    """Return an object."""
    return make_user(a)


@server.tool()
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


@server.tool(structured_output=False)
async def order(
    customer: Customer,
    items: Annotated[list[Item], Field(min_length=1, max_length=20)],
    shipping: Literal["normal", "express"],
) -> str:
    """Count what is ordered."""
    return str(sum(item.quantity for item in items))


@server.tool(structured_output=False)
async def grow(ctx: Context) -> str:
    """Add a tool, so that those who listen hear that the list has changed."""
    name = f"grown_{len(await server.list_tools())}"
    server.add_tool(add, name=name, structured_output=False)
    # To all subscribers.
    await ctx.notify_tools_changed()
    # Only to the session of this request, because the SDK keeps no list of the others.
    await ctx.session.send_tool_list_changed()
    return name


def serve_http(mode: str, port: int, backend: str, replies: str) -> None:
    """Serve on the loopback interface, without logging requests."""
    json_response = "stream" not in (mode, replies)
    app = server.streamable_http_app(
        json_response=json_response, stateless_http=mode == "stateless"
    )
    if backend == "asyncio":
        import uvicorn

        uvicorn.run(
            app,
            port=port,
            loop="uvloop",
            http="httptools",
            log_level="warning",
            access_log=False,
        )
        return
    from functools import partial

    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config.from_mapping(bind=[f"127.0.0.1:{port}"], loglevel="WARNING")
    trio.run(partial(serve, app, config))  # type: ignore[arg-type]


def main(
    mode: str, port: str = "0", backend: str = "asyncio", replies: str = "json"
) -> None:
    """Serve the transport that the command line names."""
    for number in range(int(os.environ.get("BENCH_TOOLS", "0"))):
        server.add_tool(
            add,
            name=f"tool_{number}",
            description="Add two numbers.",
            structured_output=False,
        )
    if mode == "stdio":
        anyio.run(server.run_stdio_async, backend=backend)
    else:
        serve_http(mode, int(port), backend, replies)


if __name__ == "__main__":
    main(*sys.argv[1:])
