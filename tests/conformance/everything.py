"""The server that the official conformance suite expects, with its names and answers.

Each of its tools, resources and prompts shows one thing that a server can do. `python
-m tests.conformance` starts it and runs the suite against it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import trio
from msgspec import Meta, Struct

from mcp_trio import (
    Audio,
    Context,
    Elicit,
    Elicited,
    EmbeddedResource,
    Image,
    InvalidParams,
    MissingClientCapability,
    PromptMessage,
    Roots,
    Sample,
    Server,
    Text,
    TextContents,
    ToolError,
)
from mcp_trio.demo import png, wav

server = Server("conformance", "1.0.0", title="Conformance test server")
server.skills(Path(__file__).parent / "skills")

PNG, WAV = png(1), wav(440.0)
PAUSE = 0.05  # seconds, between two things that a tool says


# Content. The first tool is the one that the suite calls, without arguments, where it
# needs any tool at all.


@server.tool
async def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Answer with a picture."""
    return Image(PNG, "image/png")


@server.tool
async def test_audio_content() -> Audio:
    """Answer with a sound."""
    return Audio(WAV, "audio/wav")


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource's contents."""
    text = "This is an embedded resource content."
    return EmbeddedResource(
        TextContents("test://embedded-resource", text, mime_type="text/plain")
    )


@server.tool
async def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Answer with a text, a picture and a resource's contents."""
    data = '{"test":"data","value":123}'
    return [
        Text("Multiple content types test:"),
        Image(PNG, "image/png"),
        EmbeddedResource(
            TextContents(
                "test://mixed-content-resource", data, mime_type="application/json"
            )
        ),
    ]


@server.tool
async def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


# What a tool says before its result


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Send three log messages."""
    await ctx.log("info", "Tool execution started")
    await trio.sleep(PAUSE)
    await ctx.log("info", "Tool processing data")
    await trio.sleep(PAUSE)
    await ctx.log("info", "Tool execution completed")
    return "Three log messages were sent."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Send a log message, if the request wants any."""
    await ctx.log("info", "A log message")
    return "A log message was sent, if wanted."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Tell the progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await trio.sleep(PAUSE)
    return "The progress was told."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Let go of the client, which has to come back for the result."""
    await ctx.close_stream(retry=PAUSE)
    await trio.sleep(2 * PAUSE)
    return "The client has come back for this."


# Asking the client


class Response(Struct):
    """A form with one text."""

    response: Annotated[str, Meta(description="User's response")]


class Name(Struct):
    """A form that asks for a name."""

    name: str


class Color(Struct):
    """A form that asks for a colour."""

    color: str


class Confirmation(Struct):
    """A form to agree to."""

    ok: bool


class Topic(Struct):
    """A form that asks what a prompt is about."""

    context: str


class Defaults(Struct):
    """A form with every kind of field, each filled in beforehand."""

    name: Annotated[str, Meta(description="User name")] = "John Doe"
    age: Annotated[int, Meta(description="User age")] = 30
    score: Annotated[float, Meta(description="User score")] = 95.5
    status: Annotated[
        Literal["active", "inactive", "pending"], Meta(description="User status")
    ] = "active"
    verified: Annotated[bool, Meta(description="Verification status")] = True


def titled(**titles: str) -> list[dict[str, str]]:
    """Choices with titles, as JSON Schema writes them."""
    return [{"const": value, "title": title} for value, title in titles.items()]


VALUES = titled(value1="First Option", value2="Second Option", value3="Third Option")
OLD_TITLES = ["Option One", "Option Two", "Option Three"]
Option = Literal["option1", "option2", "option3"]
Value = Literal["value1", "value2", "value3"]


class Choices(Struct, rename="camel"):
    """A form with every kind of choice."""

    untitled_single: Option
    titled_single: Annotated[Value, Meta(extra_json_schema={"oneOf": VALUES})]
    legacy_enum: Annotated[
        Literal["opt1", "opt2", "opt3"],
        Meta(extra_json_schema={"enumNames": OLD_TITLES}),
    ]
    untitled_multi: Annotated[list[Option], Meta(min_length=1, max_length=3)]
    titled_multi: list[Annotated[Value, Meta(extra_json_schema={"anyOf": VALUES})]]


def told(answer: Elicited[Any]) -> str:
    """An answer to a form, in the words that the suite knows."""
    return f"action={answer.action}, content={msgspec.json.encode(answer.content or {}).decode()}"


@server.tool
async def test_sampling(ctx: Context, prompt: str) -> str:
    """Have the client's model answer a prompt."""
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@server.tool
async def test_elicitation(ctx: Context, message: str) -> str:
    """Ask the user something."""
    return f"User response: {told(await ctx.elicit(message, Response))}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Show the user a form that is filled in already."""
    return f"Elicitation completed: {told(await ctx.elicit('Please review the form', Defaults))}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Let the user choose."""
    return f"Elicitation completed: {told(await ctx.elicit('Please choose', Choices))}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need a client that can sample."""
    return (await ctx.sample("Say anything", max_tokens=10)).text


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Say something, then ask the user."""
    await ctx.progress(0, 1)
    return told(await ctx.elicit("What is your name?", Name))


# Asking where only a result can ask


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask the user for a name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return (
        f"Hello, {answer.content.name}!"
        if answer.content
        else "Hello, whoever you are!"
    )


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model for a capital."""
    return (
        await ctx.sample(
            "What is the capital of France?", max_tokens=100, key="capital_question"
        )
    ).text


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask the client for its roots."""
    return "Roots: " + ", ".join(
        root.uri for root in await ctx.roots(key="client_roots")
    )


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask the user to confirm, and find the own state again."""
    return f"state-ok, {told(await ctx.elicit('Please confirm', Confirmation, key='confirm'))}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask the user to confirm; a state that was changed on its way is refused before this runs again."""
    return told(await ctx.elicit("Please confirm", Confirmation, key="confirm"))


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the user, the client's model and the client in one round."""
    name, greeting, roots = await ctx.ask(
        Elicit("What is your name?", Name, key="user_name"),
        Sample("Generate a greeting", max_tokens=50, key="greeting"),
        Roots(key="client_roots"),
    )
    return f"{greeting.text} ({told(name)}; {len(roots)} roots)"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask the user twice, one after the other."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return f"{told(name)}; {told(color)}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask the user where the client lets us, else its model."""
    try:
        return told(await ctx.elicit("What is your name?", Name, key="user_name"))
    except MissingClientCapability:
        return (
            await ctx.sample("Make up a name", max_tokens=10, key="made_up_name")
        ).text


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that has to ask the user first."""
    answer = await ctx.elicit(
        "What context should the prompt use?", Topic, key="user_context"
    )
    return f"Use this context: {answer.content.context if answer.content else 'none'}"


# Schemas

ADDRESS = {"street": {"type": "string"}, "city": {"type": "string"}}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {"$anchor": "addressDef", "type": "object", "properties": ADDRESS}
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=SCHEMA_2020_12)
async def json_schema_2020_12_tool(**contact: Any) -> str:
    """Take arguments that only a schema written by hand can describe."""
    return f"Called with {sorted(contact)}."


@server.tool
async def test_x_mcp_header(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})],
) -> str:
    """Take an argument that HTTP clients have to repeat in a header."""
    return f"Region: {region}"


# Tasks


class Deletion(Struct):
    """A form to agree to a deletion."""

    confirm: bool


@server.tool
async def greet(name: str) -> str:
    """Greet somebody, without a task."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take a while."""
    await trio.sleep(seconds)
    return f"Done: {label}"


@server.tool(task="required")
async def failing_job() -> str:
    """Fail as a tool."""
    raise ToolError("The job failed")


@server.tool(task="optional")
async def protocol_error_job() -> str:
    """Fail with an error of the protocol."""
    raise InvalidParams("The job cannot be done")


@server.tool(task="optional")
async def confirm_delete(ctx: Context, filename: str) -> str:
    """Ask the user before going on."""
    answer = await ctx.elicit(f"Delete {filename}?", Deletion)
    return f"{filename}: {told(answer)}"


@server.tool(task="optional")
async def multi_input(ctx: Context) -> str:
    """Ask the user two things at once."""
    name, agreed = await ctx.ask(
        Elicit("What is your name?", Name), Elicit("Go on?", Deletion)
    )
    return f"{told(name)}; {told(agreed)}"


@server.tool(task="required", manual_start=True)
async def test_tool_with_task(ctx: Context) -> str:
    """Ask the user first, then go on as a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.start_task()
    return f"Hello, {answer.content.name if answer.content else 'whoever you are'}!"


# Lists that change


async def test_dynamic_tool() -> str:
    """Be there for a moment."""
    return "Here."


@server.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools: one comes and goes."""
    server.add_tool(test_dynamic_tool)
    server.remove_tool("test_dynamic_tool")
    return "The list of tools has changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts: one comes and goes."""
    server.add_prompt(test_dynamic_tool, name="test_dynamic_prompt")
    server.remove_prompt("test_dynamic_prompt")
    return "The list of prompts has changed."


# Resources


@server.resource("test://static-text", title="Static text", mime_type="text/plain")
async def static_text() -> str:
    """A text that stays as it is."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", title="Static bytes", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that stays as it is."""
    return PNG


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template(id: str) -> dict[str, Any]:
    """The data of any id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments.

    Args:
        arg1: First test argument
        arg2: Second test argument
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.complete("test_prompt_with_arguments", "arg1")
async def complete_arg1(value: str) -> list[str]:
    """Words that begin so."""
    return [
        word
        for word in ("paris", "park", "party", "test", "testing")
        if word.startswith(value)
    ]


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:
    """A prompt that holds a resource's contents.

    Args:
        resourceUri: URI of the resource to embed
    """
    contents = TextContents(
        resourceUri, "Embedded resource content for testing.", mime_type="text/plain"
    )
    return [
        PromptMessage("user", EmbeddedResource(contents)),
        PromptMessage("user", Text("Please process the embedded resource above.")),
    ]


@server.prompt
async def test_prompt_with_image() -> list[PromptMessage]:
    """A prompt that holds a picture."""
    return [
        PromptMessage("user", Image(PNG, "image/png")),
        PromptMessage("user", Text("Please analyze the image above.")),
    ]
