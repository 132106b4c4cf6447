"""A server with content, descriptions and log messages of every kind.

Older revisions support only some of them.
"""

from __future__ import annotations

from typing import Annotated, Any

import trio
from msgspec import Meta, Struct

from mcp_trio import (
    Annotations,
    Audio,
    BlobContents,
    Context,
    EmbeddedResource,
    Icon,
    Image,
    PromptMessage,
    ResourceLink,
    Server,
    Text,
    TextContents,
    ToolAnnotations,
    ToolError,
    ToolResult,
)

ICON = Icon(
    "https://example.com/icon.png",
    mime_type="image/png",
    sizes=["48x48"],
    theme="light",
)
FOR_USERS = Annotations(
    audience=["user"], priority=0.5, last_modified="2025-01-12T15:00:58Z"
)
ABOUT = {"example.com/about": "a trace"}

server = Server(
    "content",
    "1.2.3",
    title="Content of every kind",
    description="What a server can say",
    icons=[ICON],
    website_url="https://example.com",
    instructions="Ask for anything.",
)


class Point(Struct):
    """A place in the plane."""

    x: int
    y: int = 0


@server.tool(
    title="Every kind",
    icons=[ICON],
    annotations=ToolAnnotations(
        title="Every kind of content",
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    ),
    meta=ABOUT,
)
async def every_kind() -> list[Any]:
    """Answer with content of every kind."""
    return [
        Text("A text", annotations=FOR_USERS),
        Image(b"picture", "image/png"),
        Audio(b"sound", "audio/wav", annotations=FOR_USERS),
        ResourceLink(
            "notes://1",
            "one",
            title="The first",
            description="A note",
            mime_type="text/plain",
            size=5,
        ),
        EmbeddedResource(TextContents("notes://1", "words", mime_type="text/plain")),
        EmbeddedResource(
            BlobContents("notes://2", b"bytes", mime_type="image/png"),
            annotations=FOR_USERS,
        ),
    ]


@server.tool
async def point(x: int, y: int = 0) -> Point:
    """Answer with an object."""
    return Point(x, y)


@server.tool
async def number() -> int:
    """Answer with a number."""
    return 42


@server.tool
async def points() -> list[Point]:
    """Answer with a list."""
    return [Point(1), Point(2, 3)]


@server.tool
async def labelled() -> ToolResult:
    """Answer with a result that says more about itself."""
    return ToolResult([Text("labelled")], meta=ABOUT)


@server.tool
async def fail() -> str:
    """Fail, and say why."""
    raise ToolError("There is no more paper")


@server.tool
async def crash() -> str:
    """Fail by a mistake, which stays in the server's log."""
    raise RuntimeError("the password is swordfish")


@server.tool
async def log_everything(ctx: Context) -> str:
    """Say something on each level."""
    for level in (
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    ):
        await ctx.log(level, {"said": level}, logger="content")
    return "Everything was said."


@server.tool
async def echo(text: str) -> str:
    """Answer with the same text."""
    return text


@server.tool(input_schema={"type": "object"})
async def keep(**anything: Any) -> dict[str, Any]:
    """Answer with the arguments, whatever they are."""
    return anything


@server.tool
async def wait(ctx: Context, seconds: float = 60.0) -> str:
    """Say that it has begun, and wait."""
    await ctx.progress(0)
    await trio.sleep(seconds)
    return "Waited."


@server.tool
async def in_region(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})],
) -> str:
    """Take an argument that HTTP clients repeat in a header."""
    return f"In {region}"


@server.tool
async def let_go(ctx: Context) -> str:
    """Let the client's connection end, and have it come back for the result."""
    await ctx.close_stream(retry=0.01)
    await trio.sleep(0.1)
    return "Here you are again."


@server.resource(
    "notes://1",
    title="The first",
    mime_type="text/plain",
    size=5,
    icons=[ICON],
    annotations=FOR_USERS,
    meta=ABOUT,
)
async def one() -> str:
    """A note."""
    return "words"


@server.resource("notes://{id}/words", title="Words", mime_type="text/plain")
async def words(id: str) -> str:
    """The words of a note."""
    return f"words of {id}"


@server.prompt(title="Every kind", icons=[ICON], meta=ABOUT)
async def illustrate(subject: str, style: str = "plain") -> list[PromptMessage]:
    """Content in a prompt.

    Args:
        subject: Of what
        style: How
    """
    return [
        PromptMessage("user", Text(f"Illustrate {subject} in a {style} style.")),
        PromptMessage("user", Image(b"picture", "image/png")),
        PromptMessage("user", Audio(b"sound", "audio/wav")),
        PromptMessage("user", ResourceLink("notes://1", "one")),
    ]
