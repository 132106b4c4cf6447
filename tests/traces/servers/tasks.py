"""A server whose tools run as tasks."""

from __future__ import annotations

import trio
from msgspec import Struct

from mcp_trio import Context, Elicit, InvalidParams, Sample, Server, ToolError
from mcp_trio.extensions.tasks import Tasks

server = Server(
    "tasks",
    secret="the secret of the traces, which is no secret",
    extensions=[Tasks(most_tasks=4, ttl=600, poll_interval=0.5)],
)


class Consent(Struct):
    """A form to agree to something."""

    agreed: bool


@server.tool
async def settle() -> str:
    """Let tasks run until they wait."""
    for _ in range(20):
        await trio.lowlevel.checkpoint()
    return "Settled."


@server.tool(task="optional")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(task="optional")
async def wait(ctx: Context, message: str = "") -> str:
    """Wait until the task is cancelled."""
    if message:
        await ctx.progress(1, 2, message)
    await trio.sleep_forever()
    return "This is never reached."


@server.tool(task="optional")
async def count(ctx: Context) -> str:
    """Report progress without a message."""
    await ctx.progress(3, 4)
    return "Counted to four."


@server.tool(task="required")
async def fail() -> str:
    """Fail as a tool does."""
    raise ToolError("There is no more paper.")


@server.tool(task="optional")
async def refuse() -> str:
    """Fail with an error of the protocol."""
    raise InvalidParams("The printer does not exist", data={"printer": "left"})


@server.tool(task="optional")
async def ask(ctx: Context, times: int = 1) -> str:
    """Ask the user, once or more often."""
    answers = [await ctx.elicit("Print it?", Consent) for _ in range(times)]
    return ", ".join(answer.action for answer in answers)


@server.tool(task="optional")
async def ask_two(ctx: Context) -> str:
    """Ask the user and the client's model at once."""
    form, said = await ctx.ask(
        Elicit("Print it?", Consent, key="consent"),
        Sample("Name a printer", max_tokens=10, key="printer"),
    )
    return f"{form.action}, {said.text}"


@server.tool(task="optional", manual_start=True)
async def order(ctx: Context, paper: bool = True) -> str:
    """Ask first, then go on as a task."""
    first = await ctx.elicit("How many?", Consent, key="number")
    if not paper:
        raise ToolError("There is no more paper.")
    await ctx.start_task()
    second = await ctx.elicit("Print it?", Consent)
    return f"{first.action}, {second.action}"


@server.tool
async def plain() -> str:
    """Answer without a task."""
    return "Done."
