"""A server whose tools ask the client in all ways that some revision has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mcp_trio import (
    Context,
    Elicit,
    PromptMessage,
    Roots,
    Sample,
    Server,
    Text,
    Tool,
    UrlElicitationRequired,
)

# Every process that replays the traces can read the state that clients carry.
server = Server("questions", secret="the secret of the traces, which is no secret")


class Booking(Struct):
    """The form of book."""

    seats: Annotated[int, Meta(ge=1, le=9, description="How many")]
    seat_class: Literal["first", "second"] = "second"
    window: bool = False


class Name(Struct):
    """A form with one field."""

    name: str


@server.tool
async def book(ctx: Context, city: str = "Paris") -> str:
    """Ask the user for the details of a journey."""
    answer = await ctx.elicit(f"Seats to {city}?", Booking)
    if answer.content is None:
        return f"Not booked: {answer.action}"
    return f"{answer.content.seats} in {answer.content.seat_class} class to {city}"


@server.tool
async def visit(ctx: Context) -> str:
    """Send the user to a page."""
    return (
        await ctx.elicit_url("Please log in", "https://example.com/login", "login-1")
    ).action


@server.tool
async def pay(ctx: Context) -> str:
    """Refuse to go on before the user has been to a page."""
    page = {
        "mode": "url",
        "elicitationId": "pay-1",
        "url": "https://example.com/pay",
        "message": "Please pay first",
    }
    raise UrlElicitationRequired("A payment is due", [page])


@server.tool
async def think(ctx: Context) -> str:
    """Ask the client's model."""
    said = await ctx.sample(
        "The capital of France?",
        max_tokens=10,
        system_prompt="Be short.",
        temperature=0.5,
        stop_sequences=["."],
        model_preferences={"hints": [{"name": "small"}], "speedPriority": 1},
        include_context="none",
        metadata={"from": "think"},
    )
    return f"{said.model} says {said.text}"


@server.tool
async def think_with_tools(ctx: Context) -> str:
    """Ask the client's model, which may call a tool."""
    clock = Tool(
        name="clock", description="Tell the time", input_schema={"type": "object"}
    )
    said = await ctx.sample(
        [PromptMessage("user", Text("What time is it?"))],
        max_tokens=10,
        tools=[clock],
        tool_choice={"mode": "auto"},
    )
    return str(said.stop_reason)


@server.tool
async def look(ctx: Context) -> str:
    """Ask for the client's folders."""
    return ", ".join(
        f"{root.name or 'nameless'}: {root.uri}" for root in await ctx.roots()
    )


@server.tool
async def plan(ctx: Context) -> str:
    """Ask the user, the client's model and the client in one round."""
    name, said, roots = await ctx.ask(
        Elicit("Your name?", Name, key="name"),
        Sample("Where to?", max_tokens=5, key="where"),
        Roots(key="roots"),
    )
    return f"{name.content.name if name.content else 'nobody'} to {said.text}, from {roots[0].uri}"


@server.tool
async def register(ctx: Context) -> str:
    """Ask the user twice, with a step between that is done once."""
    numbers = iter(range(1, 10))

    async def reserve() -> int:
        return next(numbers)

    first = await ctx.elicit("Your name?", Name, key="name")
    number = await ctx.once("number", reserve)
    second = await ctx.elicit("Your friend's name?", Name, key="friend")
    names = [answer.content.name for answer in (first, second) if answer.content]
    return f"{' and '.join(names)}: number {number}"


@server.prompt
async def introduce(ctx: Context) -> str:
    """A prompt that has to ask first."""
    answer = await ctx.elicit("Who is it?", Name, key="who")
    return f"Introduce {answer.content.name if answer.content else 'nobody'}."


@server.resource("people://{id}")
async def person(ctx: Context, id: str) -> str:
    """A resource that has to ask first."""
    answer = await ctx.elicit(f"Who is {id}?", Name, key="who")
    return answer.content.name if answer.content else "nobody"


# Messages that the public API does not offer


@server.tool
async def ping_client(ctx: Context) -> str:
    """Ask whether the client is there."""
    await ctx._request.conversation.ask(
        "ping", {}, ctx._request.channel, ctx._request.call.revision
    )
    return "It is there."


@server.tool
async def tell(ctx: Context, method: str, params: dict[str, Any]) -> str:
    """Send the client a notification, of a kind that this server has no occasion for itself."""
    ctx._request.notify(method, params)
    return "Told."
