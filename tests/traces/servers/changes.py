"""A server whose tools change what it offers."""

from __future__ import annotations

from mcp_trio import Server

server = Server("changes")


async def nothing() -> str:
    """Do nothing."""
    return "Nothing was done."


@server.tool
async def add_tool(name: str) -> str:
    """Add a tool that does nothing."""
    server.add_tool(nothing, name=name)
    return f"There is a tool {name}."


@server.tool
async def remove_tool(name: str) -> str:
    """Take a tool away."""
    server.remove_tool(name)
    return f"There is no tool {name} any more."


@server.tool
async def add_prompt(name: str) -> str:
    """Add a prompt."""
    server.add_prompt(nothing, name=name)
    return f"There is a prompt {name}."


@server.tool
async def add_note(id: str) -> str:
    """Add a resource."""
    server.add_resource(f"notes://{id}", nothing)
    return f"There is a note {id}."


@server.tool
async def edit(uri: str) -> str:
    """Say that a resource has changed."""
    server.resource_updated(uri)
    return f"{uri} has changed."


@server.resource("notes://first", mime_type="text/plain")
async def first() -> str:
    """The first note."""
    return "First of all"


@server.resource("lines://{number}", mime_type="text/plain")
async def line(number: str) -> str:
    """Any line."""
    return f"Line {number}"


@server.prompt
async def greet() -> str:
    """A greeting."""
    return "Say hello."
